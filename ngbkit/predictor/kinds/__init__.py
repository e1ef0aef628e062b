"""The kinds of models, by name: a graph network, and its baselines; and models adapted to a family."""

from ngbkit.predictor.kinds.adapted import Adapted
from ngbkit.predictor.kinds.catalogue import KINDS, find_kind

__all__ = ["KINDS", "Adapted", "find_kind"]
