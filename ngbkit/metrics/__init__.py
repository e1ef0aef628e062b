"""Metrics of the measurements, with intervals: on arrays, on labelled datasets, and as tables."""

from ngbkit.dataset.disturbance import settled, undisturbed
from ngbkit.metrics.economy import break_even
from ngbkit.metrics.factors import depth_slope, friction, retention
from ngbkit.metrics.labelled import ase, bsr, rtr, speedup, tcr, throughput
from ngbkit.metrics.ranking import ranking
from ngbkit.metrics.reversals import reversals
from ngbkit.metrics.roofline import roofline
from ngbkit.metrics.trials import failures, summary, why

__all__ = [
    "ase",
    "break_even",
    "bsr",
    "depth_slope",
    "failures",
    "friction",
    "ranking",
    "retention",
    "reversals",
    "roofline",
    "rtr",
    "settled",
    "speedup",
    "summary",
    "tcr",
    "throughput",
    "undisturbed",
    "why",
]
