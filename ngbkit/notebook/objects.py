"""Displays sweeps, estimates, datasets and their metrics in a notebook, in text and in HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ngbkit.commands.listing import layout
from ngbkit.commands.run import answer_estimate
from ngbkit.notebook import datasets
from ngbkit.sweep import parsing
from ngbkit.sweep.option import format_options

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.figures.accessor import Metrics
    from ngbkit.predictor.forecast import Estimate
    from ngbkit.sweep.grid import Grid

Row = dict[str, Any]
Renderers = tuple[Callable[[Any], str], Callable[[Any], str]]
"""Render a value as text, and as HTML."""


def register(shell: InteractiveShell) -> None:
    """Register the displays with a shell; a dataset that is not ngbkit's keeps xarray's own."""
    formatters: Any = shell.display_formatter.formatters  # type: ignore[union-attr]
    for (module, name), (to_text, to_html) in _DISPLAYS.items():
        formatters["text/html"].for_type_by_name(module, name, to_html)
        formatters["text/plain"].for_type_by_name(module, name, _printer(to_text))


def unregister(shell: InteractiveShell) -> None:
    """Restore the plain displays."""
    formatters: Any = shell.display_formatter.formatters  # type: ignore[union-attr]
    for module, name in _DISPLAYS:
        for kind in ("text/html", "text/plain"):
            formatters[kind].pop(f"{module}.{name}", None)


def describe_sweep(sweep: Grid) -> Row:
    """Describe a sweep, as a row for `ngbkit.commands.listing.layout.to_sheets`."""
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
    return row | {"options": " ".join(format_options(sweep))}


def describe_metrics(metrics: Metrics) -> Row:
    """Describe the dataset of an accessor, as a row for `ngbkit.commands.listing.layout.to_sheets`."""
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


def _to_sheet(describe: Callable[[Any], Row]) -> Renderers:
    return (
        lambda value: layout.to_sheets([describe(value)], ""),
        lambda value: layout.to_html_sheets([describe(value)], ""),
    )


def _printer(to_text: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    return lambda value, printer, _cycle: printer.text(to_text(value))


def _to_text(estimate: Estimate) -> str:
    return answer_estimate(estimate).to_text()


def _to_html(estimate: Estimate) -> str:
    return answer_estimate(estimate).to_html()


# By name: registering the displays imports none of the classes.
_DISPLAYS: dict[tuple[str, str], Renderers] = {
    ("ngbkit.api", "Sweep"): _to_sheet(describe_sweep),
    ("ngbkit.figures.accessor", "Metrics"): _to_sheet(describe_metrics),
    ("ngbkit.predictor.forecast.estimate", "Estimate"): (_to_text, _to_html),
    ("xarray.core.dataset", "Dataset"): (datasets.to_text, datasets.to_html),
    ("xarray.core.datatree", "DataTree"): (datasets.to_text, datasets.to_html),
}
