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
    from ngbkit.figures.files import save

__all__ = ["list_figures", "save"]
# The file of each chart.
_CHARTS = {
    **{
        name: name
        for name in ("break_even", "frontier", "heatmap", "networks", "overview", "reversals", "roofline", "status")
    },
    **{"cpu": "metric", "depth": "metric", "latency": "samples", "traces": "samples", "tradeoff": "tradeoff"},
}


def list_figures() -> list[str]:
    """List the charts of a dataset, including the charts of metrics."""
    from ngbkit.metrics.metric import load_metrics

    charted = [name for name, metric in load_metrics().items() if metric.chart is not None]
    return sorted({*_CHARTS, *charted})


def __getattr__(name: str) -> Any:
    # altair takes a second to import, and the accessor needs it only for a chart.
    if name == "save" or name in _CHARTS:
        return getattr(import_module(f"{__name__}.{f'charts.{_CHARTS[name]}' if name in _CHARTS else 'files'}"), name)
    if name in registry.list_names(registry.METRICS) and name in list_figures():
        from ngbkit.figures.charts.metric import build_figure
        from ngbkit.metrics.metric import load_metrics

        return build_figure(load_metrics()[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
