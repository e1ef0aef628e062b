"""Charts of a dataset, and the accessor `ds.ngb` for charts and metrics.

charts/ has one chart per file. rows.py builds one row per trial from a dataset and a metric, lines.py draws one panel
per network, captions.py adds the title and its remarks, marks.py and theme.py style all charts, composition.py lets
them be parts of others; files.py writes a chart, renderer.py displays it in a notebook.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngbkit.figures.charts.ase import ase
    from ngbkit.figures.charts.break_even import break_even
    from ngbkit.figures.charts.bsr import bsr
    from ngbkit.figures.charts.capacity import capacity
    from ngbkit.figures.charts.cpu import cpu
    from ngbkit.figures.charts.depth import depth
    from ngbkit.figures.charts.frontier import frontier
    from ngbkit.figures.charts.heatmap import heatmap
    from ngbkit.figures.charts.latency import latency
    from ngbkit.figures.charts.networks import networks
    from ngbkit.figures.charts.overview import overview
    from ngbkit.figures.charts.reversals import reversals
    from ngbkit.figures.charts.roofline import roofline
    from ngbkit.figures.charts.speedup import speedup
    from ngbkit.figures.charts.status import status
    from ngbkit.figures.charts.throughput import throughput
    from ngbkit.figures.charts.traces import traces
    from ngbkit.figures.files import save

__all__ = [
    "ase",
    "break_even",
    "bsr",
    "capacity",
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
    "speedup",
    "status",
    "throughput",
    "traces",
]


def __getattr__(name: str) -> Any:
    # altair takes a second to import, and the accessor needs it only for a chart.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "files" if name == "save" else f"charts.{name}"
    return getattr(import_module(f"{__name__}.{module}"), name)
