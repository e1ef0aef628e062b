"""The kinds of models, by name: a graph network, and its baselines; and models adapted to a family or a device."""

from ngbkit.predict.kinds.adapted import Adapted
from ngbkit.predict.kinds.catalogue import KINDS, find_kind
from ngbkit.predict.kinds.transferred import Transferred

__all__ = ["KINDS", "Adapted", "Transferred", "find_kind"]
