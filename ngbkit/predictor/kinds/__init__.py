"""The kinds of models, by name: a graph network, and what it has to beat."""

from __future__ import annotations

from ngbkit.errors import UnknownNameError
from ngbkit.predictor.kinds.additive import Flops, Linear
from ngbkit.predictor.kinds.base import Model
from ngbkit.predictor.kinds.boosting import Boosting
from ngbkit.predictor.kinds.gnn import Gnn
from ngbkit.predictor.kinds.operators import OperatorSum

KINDS: dict[str, type[Model]] = {one.kind: one for one in (Flops, Linear, OperatorSum, Boosting, Gnn)}


def kind(name: str) -> type[Model]:
    """The class of a kind of models.

    Raises
    ------
    UnknownNameError
        There is none of that name.
    """
    if name not in KINDS:
        raise UnknownNameError("kind of model", name, KINDS)
    return KINDS[name]
