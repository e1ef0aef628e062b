"""Metrics of the measurements, with intervals: on arrays, on labelled datasets, and as tables.

Each metric of the entry-point group ``ngbkit.metrics`` is a function here: ``ngbkit.metrics.speedup(ds)``. Rankings,
reversals and all other answers are methods of ``ds.ngb``.
"""

from __future__ import annotations

from typing import Any

from ngbkit import registry
from ngbkit.metrics.metric import load_metrics

__all__ = [*registry.list_names(registry.METRICS)]


def __getattr__(name: str) -> Any:
    if name in registry.list_names(registry.METRICS) and name in (metrics := load_metrics()):
        return metrics[name].to_function()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
