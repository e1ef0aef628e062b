"""Metrics of the measurements, with intervals: on arrays, on labelled datasets, and as tables."""

from ngbkit.dataset.disturbance import settled, undisturbed
from ngbkit.metrics.economy import break_even
from ngbkit.metrics.factors import depth_slope, friction, retention
from ngbkit.metrics.labelled import ase, bsr, rtr, speedup, tcr, throughput
from ngbkit.metrics.means import mean
from ngbkit.metrics.published import beside_paper
from ngbkit.metrics.rankings.front import front
from ngbkit.metrics.rankings.networks import compare_networks, network_ranking
from ngbkit.metrics.rankings.ranking import ranking, winners
from ngbkit.metrics.rankings.reversals import reversals
from ngbkit.metrics.roofline import roofline
from ngbkit.metrics.serving.capacity import capacity
from ngbkit.metrics.serving.deadlines import choose
from ngbkit.metrics.trials import failures, summary, why

__all__ = [
    "ase",
    "beside_paper",
    "break_even",
    "bsr",
    "capacity",
    "choose",
    "compare_networks",
    "depth_slope",
    "failures",
    "friction",
    "front",
    "mean",
    "network_ranking",
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
    "winners",
]
