"""The kinds of models, by name: a graph network, and its baselines; and models adapted to a family or a device."""

from ngbkit.predictor.kinds.adapted import Adapted
from ngbkit.predictor.kinds.catalogue import KINDS, find_kind
from ngbkit.predictor.kinds.transferred import Transferred

__all__ = ["KINDS", "Adapted", "Transferred", "find_kind"]
