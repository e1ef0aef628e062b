"""What the measurements mean: on pure arrays, on labelled ones, and as ``ds.ngb``, which importing this registers."""

from ngbkit.metrics.accessor import Metrics
from ngbkit.metrics.labelled import (
    ase,
    bsr,
    depth_slope,
    failures,
    retention,
    rtr,
    speedup,
    summary,
    tcr,
    throughput,
)

__all__ = [
    "Metrics",
    "ase",
    "bsr",
    "depth_slope",
    "failures",
    "retention",
    "rtr",
    "speedup",
    "summary",
    "tcr",
    "throughput",
]
