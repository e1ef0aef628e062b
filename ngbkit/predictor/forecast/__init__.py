"""Predictions of unmeasured trials: how long a sweep takes, its likely results, and the most informative trials.

earlier runs, a predictor, measurements so far -> surrogate -> predictions with intervals -> the next trials
"""

from ngbkit.predictor.forecast.estimate import Estimate, estimate, guide_of
from ngbkit.predictor.forecast.guide import Guide
from ngbkit.predictor.forecast.imputation import best, fill

__all__ = ["Estimate", "Guide", "best", "estimate", "fill", "guide_of"]
