"""Displays sweeps, estimates, datasets, their metrics and charts in a notebook, without a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ngbkit.commands.answer import Answer
from ngbkit.notebook import datasets
from ngbkit.sweep import parsing

if TYPE_CHECKING:
    import altair as alt
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.figures.accessor import Metrics
    from ngbkit.sweep.grid import Grid

Row = dict[str, Any]


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
        display(name, datasets.to_text, datasets.to_html)
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
