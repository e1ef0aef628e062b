"""Charts of a dataset, and the accessor `ds.ngb` for charts and metrics.

charts/ has one kind of chart per file; metric.py draws every metric that declares a chart. rows.py builds one row per
trial from a dataset and a metric, lines.py draws one panel per network, captions.py adds the title and its remarks,
marks.py and theme.py style all charts, composition.py lets them be parts of others; files.py writes a chart,
renderer.py displays it in a notebook.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ngbkit import registry

if TYPE_CHECKING:
    from ngbkit.figures.charts.break_even import break_even
    from ngbkit.figures.charts.frontier import frontier
    from ngbkit.figures.charts.heatmap import heatmap
    from ngbkit.figures.charts.metric import cpu, depth
    from ngbkit.figures.charts.networks import networks
    from ngbkit.figures.charts.overview import overview
    from ngbkit.figures.charts.reversals import reversals
    from ngbkit.figures.charts.roofline import roofline
    from ngbkit.figures.charts.samples import latency, traces
    from ngbkit.figures.charts.status import status
    from ngbkit.figures.charts.tradeoff import tradeoff
    from ngbkit.figures.files import save

__all__ = [
    "break_even",
    "cpu",
    "depth",
    "frontier",
    "heatmap",
    "latency",
    "networks",
    "overview",
    "reversals",
    "roofline",
    "save",
    "status",
    "traces",
    "tradeoff",
]
# The others have a file of their name.
_MODULES = {
    "save": "files",
    **dict.fromkeys(("cpu", "depth"), "charts.metric"),
    **dict.fromkeys(("latency", "traces"), "charts.samples"),
}


def list_figures() -> list[str]:
    """List the charts of a dataset, including the charts of metrics."""
    from ngbkit.metrics.metric import load_metrics

    charted = [name for name, metric in load_metrics().items() if metric.chart is not None]
    return sorted({*__all__, *charted} - {"save"})


def __getattr__(name: str) -> Any:
    # altair takes a second to import, and the accessor needs it only for a chart.
    if name in __all__:
        return getattr(import_module(f"{__name__}.{_MODULES.get(name, f'charts.{name}')}"), name)
    if name in registry.list_names(registry.METRICS) and name in list_figures():
        from ngbkit.figures.charts.metric import build_figure
        from ngbkit.metrics.metric import load_metrics

        return build_figure(load_metrics()[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
