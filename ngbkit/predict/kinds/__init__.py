"""The kinds of models, by name: a graph network, and its baselines; and models adapted to a family or a device."""

from ngbkit.predict.kinds.adapted import Adapted
from ngbkit.predict.kinds.catalogue import KINDS, find_kind

__all__ = ["KINDS", "Adapted", "find_kind"]
