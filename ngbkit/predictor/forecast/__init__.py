"""Predictions of unmeasured trials: how long a sweep takes, its likely results, and the most informative trials.

earlier runs, a predictor, measurements so far -> surrogate -> predictions with intervals -> the next trials
"""

from ngbkit.predictor.forecast.estimate import SweepEstimate, estimate, guide_of
from ngbkit.predictor.forecast.guide import Guide
from ngbkit.predictor.forecast.imputation import best, fill

__all__ = ["Guide", "SweepEstimate", "best", "estimate", "fill", "guide_of"]
