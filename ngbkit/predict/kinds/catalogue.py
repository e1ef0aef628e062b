"""The kinds of models that can be fitted, by name: a graph network, and its baselines."""

from __future__ import annotations

from ngbkit.errors import UnknownNameError
from ngbkit.predict.kinds.additive import Flops, Linear
from ngbkit.predict.kinds.base import Model
from ngbkit.predict.kinds.boosting import Boosting
from ngbkit.predict.kinds.gnn import Gnn

KINDS: dict[str, type[Model]] = {model.kind: model for model in (Flops, Linear, Boosting, Gnn)}


def find_kind(name: str) -> type[Model]:
    """Return the class of a kind of models, or raise the error that lists the kinds."""
    if name not in KINDS:
        raise UnknownNameError("kind of model", name, KINDS)
    return KINDS[name]
