"""How a sweep and a dataset's metrics are shown where one is the value of a cell: as a sheet, in text and in HTML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ngbkit.commands import arguments, listing
from ngbkit.sweep import parsing

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit.figures.accessor import Metrics
    from ngbkit.sweep.grid import Sweep

Row = dict[str, Any]


def register(shell: InteractiveShell) -> None:
    """Have a shell show them so."""
    formatters: Any = shell.display_formatter.formatters  # type: ignore[union-attr]
    for (module, name), describe in _SHEETS.items():
        formatters["text/html"].for_type_by_name(module, name, _html(describe))
        formatters["text/plain"].for_type_by_name(module, name, _text(describe))


def unregister(shell: InteractiveShell) -> None:
    """Have it show them as any other object again."""
    formatters: Any = shell.display_formatter.formatters  # type: ignore[union-attr]
    for module, name in _SHEETS:
        for kind in ("text/html", "text/plain"):
            formatters[kind].pop(f"{module}.{name}", None)


def describe_sweep(sweep: Sweep) -> Row:
    """What a sweep measures, as a row for `ngbkit.commands.listing.to_sheets`."""
    groups = sum(1 for _ in sweep.groups())
    row: Row = {
        "sweep": f"{len(sweep)} trials in {groups} groups",
        "workloads": ", ".join(dict.fromkeys(one.name for one in sweep.workloads)),
        "compilers": ", ".join(sweep.compilers),
        "batch sizes": parsing.write_numbers(sweep.batch_sizes),
        "devices": ", ".join(sweep.devices),
    }
    taken = {name: values for one in sweep.workloads for name, values in one.factors.items()}
    row |= {f"factor {name}": parsing.write_numbers(values) for name, values in {**taken, **sweep.factors}.items()}
    return row | {"options": " ".join(arguments.to_words(sweep))}


def describe_metrics(found: Metrics) -> Row:
    """What a dataset holds, in the same form."""
    from ngbkit.dataset.assembly import factor_dims, nodes
    from ngbkit.figures import captions

    data = found._data
    parts = list(nodes(data).values())
    statuses = Counter(str(status) for part in parts for status in part["status"].values.ravel() if status)
    counted = ", ".join(f"{count} {status}" for status, count in statuses.items())
    row: Row = {"dataset": f"{sum(statuses.values())} trials: {counted}", "made of": captions.provenance(data)}
    for dim in ("workload", "compiler", "batch_size", *(name for part in parts for name in factor_dims(part))):
        held = [part[dim].values.ravel().tolist() for part in parts if dim in part.coords]
        labels = dict.fromkeys(label for some in held for label in some)
        row[dim.replace("_", " ")] = ", ".join(map(str, labels))
    own = ", ".join(name for name in dir(found) if not name.startswith("_"))
    return row | {"metrics": own, "figures": ", ".join(name for name in dir(found.plot) if not name.startswith("_"))}


def _html(describe: Callable[[Any], Row]) -> Callable[[Any], str]:
    return lambda shown: listing.to_html_sheets([describe(shown)], "")


def _text(describe: Callable[[Any], Row]) -> Callable[[Any, Any, bool], None]:
    return lambda shown, printer, _cycle: printer.text(listing.to_sheets([describe(shown)], ""))


# By name, so that neither is imported to show something else.
_SHEETS: dict[tuple[str, str], Callable[[Any], Row]] = {
    ("ngbkit.sweep.grid", "Sweep"): describe_sweep,
    ("ngbkit.figures.accessor", "Metrics"): describe_metrics,
}
