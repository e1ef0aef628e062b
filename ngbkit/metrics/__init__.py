"""Metrics of the measurements, with intervals: on arrays, on labelled datasets, and as tables.

Each metric of the entry-point group ``ngbkit.metrics`` is a function here too: ``ngbkit.metrics.speedup(ds)``.
"""

from __future__ import annotations

from typing import Any

from ngbkit import registry
from ngbkit.dataset.contention import conclusive, uncontended
from ngbkit.metrics.contracts import allow_unlike
from ngbkit.metrics.means import mean
from ngbkit.metrics.metric import load_metrics
from ngbkit.metrics.published import beside_paper
from ngbkit.metrics.rankings.front import front
from ngbkit.metrics.rankings.networks import compare_networks
from ngbkit.metrics.rankings.ranking import network_ranking, ranking, winners
from ngbkit.metrics.rankings.reversals import reversals
from ngbkit.metrics.roofline import roofline
from ngbkit.metrics.serving.choices import choose
from ngbkit.metrics.trials import failures, why

__all__ = [
    "allow_unlike",
    "beside_paper",
    "choose",
    "compare_networks",
    "failures",
    "front",
    "mean",
    "network_ranking",
    "ranking",
    "reversals",
    "roofline",
    "conclusive",
    "uncontended",
    "why",
    "winners",
    *registry.list_names(registry.METRICS),
]


def __getattr__(name: str) -> Any:
    if name in registry.list_names(registry.METRICS) and name in (metrics := load_metrics()):
        return metrics[name].to_function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
