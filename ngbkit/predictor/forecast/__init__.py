"""What has not been measured yet: how long it would take, what would come of it, and which of it tells most.

earlier runs, a predictor, what was measured so far -> surrogate -> predictions with intervals -> the next trials
"""

from ngbkit.predictor.forecast.estimate import Estimate, estimate, guide_of
from ngbkit.predictor.forecast.guide import Guide
from ngbkit.predictor.forecast.imputation import best, fill

__all__ = ["Estimate", "Guide", "best", "estimate", "fill", "guide_of"]
