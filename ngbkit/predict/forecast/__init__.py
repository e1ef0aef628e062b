"""Predictions of unmeasured trials: how long a sweep takes, its likely results, and the most informative trials.

earlier runs, a predictor, measurements so far -> surrogate -> predictions with intervals -> the next trials
"""

from ngbkit.predict.forecast.estimate import SweepEstimate, describe_duration, estimate, guide_of
from ngbkit.predict.forecast.guide import Guide
from ngbkit.predict.forecast.imputation import best, fill

__all__ = ["Guide", "SweepEstimate", "best", "describe_duration", "estimate", "fill", "guide_of"]
