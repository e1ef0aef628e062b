"""Displays sweeps, estimates, datasets, their metrics and charts in a notebook, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.shell import choose_figures
from ngbkit.sweep import parsing

if TYPE_CHECKING:
    import altair as alt
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.dataset.storage import Data
    from ngbkit.figures.accessor import Metrics
    from ngbkit.report import Report
    from ngbkit.sweep.grid import Grid

Row = dict[str, Any]
# Every dataset that ngbkit assembles or merges has this attribute, and so have selections from it.
_ATTRIBUTE = "ngbkit_version"
_MOST_ROWS = 40


def register(shell: InteractiveShell) -> None:
    """Register the displays with a shell; a dataset that is not ngbkit's keeps xarray's own."""
    formatters: Any = shell.display_formatter.formatters  # type: ignore[union-attr]

    def display(name: tuple[str, str], to_text: Callable[[Any], str], to_html: Callable[[Any], str]) -> None:
        formatters["text/html"].for_type_by_name(*name, to_html)
        formatters["text/plain"].for_type_by_name(*name, lambda value, printer, _: printer.text(to_text(value)))

    def display_answer(name: tuple[str, str], to_answer: Callable[[Any], Answer]) -> None:
        display(name, lambda value: repr(to_answer(value)), lambda value: to_answer(value)._repr_html_())

    for name, to_answer in _ANSWERS.items():
        display_answer(name, to_answer)
    for name in _DATASETS:
        display(name, describe_dataset, render_dataset)
    bundles: Any = shell.display_formatter
    bundles.mimebundle_formatter.for_type_by_name(*_CHART, render_chart)


def unregister(shell: InteractiveShell) -> None:
    """Restore the plain displays."""
    formatters: Any = shell.display_formatter.formatters  # type: ignore[union-attr]
    for name in (*_ANSWERS, *_DATASETS):
        for kind in ("text/html", "text/plain"):
            formatters[kind].pop(".".join(name), None)
    bundles: Any = shell.display_formatter
    bundles.mimebundle_formatter.pop(".".join(_CHART), None)


def render_dataset(data: Data) -> str:
    """Render a dataset as tables with its values above xarray's own display; of another dataset only the latter."""
    from ngbkit.figures import statements

    inner = _to_xarray_html(data)
    if (report := build_report(data, with_verdict=False)) is None:
        return inner
    arguments = {"figures": choose_figures(data), "most": _MOST_ROWS, "with_verdict": False}
    return (
        statements.mark(report._repr_html_(), "report", data, **arguments)
        + statements.mark(statements.render("origin", data, {}), "origin", data)
        + f"<details><summary>{escape(_summarize(data))}</summary>{inner}</details>"
    )


def describe_dataset(data: Data) -> str:
    """Render a dataset as text: see `render_dataset`."""
    from ngbkit.figures.captions import describe_provenance

    if (report := build_report(data, with_verdict=False)) is None:
        return repr(data)
    return "\n".join([repr(report), describe_provenance(data), f"{_summarize(data)}; print() shows all of it"])


def _to_xarray_html(data: Data) -> str:
    """Render xarray's own display; the attributes of ngbkit, which are pages of JSON, are folded in it."""
    import xarray as xr

    if _ATTRIBUTE not in data.attrs:
        return data._repr_html_()
    with xr.set_options(display_expand_attrs=False):  # type: ignore[no-untyped-call]
        return data._repr_html_()


def build_report(data: Data, *, with_verdict: bool = True) -> Report | None:
    """Build the report of a dataset; None if it is not ngbkit's, or lacks what the tables need."""
    if _ATTRIBUTE not in data.attrs or not count_trials(data):
        return None
    from ngbkit.metrics import tables

    try:
        return tables.build_report(data, choose_figures(data), _MOST_ROWS, with_verdict=with_verdict)
    except Exception:  # noqa: BLE001  users select and compute as they like: a display never raises
        return None


def count_trials(data: Data) -> int:
    """Count the trials of a dataset, those included that no run requested."""
    from ngbkit.dataset.assembly import nodes

    return sum(node["status"].size for node in nodes(data).values() if "status" in node)


def _summarize(data: Data) -> str:
    """Summarize the shape of a dataset in the words of xarray."""
    name = f"xarray.{type(data).__name__}"
    if not data.sizes:
        return name
    return f"{name} ({', '.join(f'{dim}: {size}' for dim, size in data.sizes.items())})"


def render_chart(chart: alt.TopLevelMixin) -> Any:
    """Render a chart as the MIME bundle that a notebook stores, unless the user chose another renderer of altair."""
    import altair as alt

    from ngbkit.figures import composition, renderer

    is_transformed = alt.data_transformers.active != "default" and not composition.has_figure(chart)
    if alt.renderers.active not in ("", "default") or is_transformed:
        return chart._repr_mimebundle_()
    return renderer.to_mimebundle(composition.build_spec(chart))


def describe_sweep(sweep: Grid) -> Row:
    """Describe a sweep."""
    groups = sum(1 for _ in sweep.groups())
    row: Row = {
        "sweep": f"{len(sweep)} trials in {groups} groups",
        "workloads": ", ".join(dict.fromkeys(workload.name for workload in sweep.workloads)),
        "compilers": ", ".join(sweep.compilers),
        "batch sizes": parsing.format_numbers(sweep.batch_sizes),
        "devices": ", ".join(sweep.devices),
    }
    factors = {name: values for workload in sweep.workloads for name, values in workload.factors.items()}
    factors |= sweep.factors
    row |= {f"factor {name}": parsing.format_factor_values(values) for name, values in factors.items()}
    return row | {"options": " ".join(sweep.to_words())}


def describe_metrics(metrics: Metrics) -> Row:
    """Describe the dataset of an accessor."""
    from ngbkit.dataset.assembly import factor_dims, nodes
    from ngbkit.figures import captions

    data = metrics._data
    datasets = list(nodes(data).values())
    statuses = Counter(str(status) for node in datasets for status in node["status"].values.ravel() if status)
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    row: Row = {"dataset": f"{sum(statuses.values())} trials: {counts}", "made of": captions.describe_provenance(data)}
    for dim in ("workload", "compiler", "batch_size", *(name for node in datasets for name in factor_dims(node))):
        columns = [node[dim].values.ravel().tolist() for node in datasets if dim in node.coords]
        labels = dict.fromkeys(label for column in columns for label in column)
        row[dim.replace("_", " ")] = ", ".join(map(str, labels))
    return row | {"metrics": _list_public_names(metrics), "figures": _list_public_names(metrics.plot)}


def _list_public_names(value: object) -> str:
    return ", ".join(name for name in dir(value) if not name.startswith("_"))


# By name: registering the displays imports none of the classes.
_ANSWERS: dict[tuple[str, str], Callable[[Any], Answer]] = {
    ("ngbkit.api", "Sweep"): lambda sweep: Answer.of_rows([describe_sweep(sweep)], form="sheets"),
    ("ngbkit.figures.accessor", "Metrics"): lambda metrics: Answer.of_rows([describe_metrics(metrics)], form="sheets"),
}
# The base class of every chart.
_CHART = ("altair.vegalite.v6.api", "TopLevelMixin")
_DATASETS = (("xarray.core.dataset", "Dataset"), ("xarray.core.datatree", "DataTree"))
