"""The kinds of models that can be fitted, by name: a graph network, and its baselines."""

from __future__ import annotations

from ngbkit.errors import UnknownNameError
from ngbkit.predictor.kinds.additive import Flops, Linear
from ngbkit.predictor.kinds.base import Model
from ngbkit.predictor.kinds.boosting import Boosting
from ngbkit.predictor.kinds.gnn import Gnn
from ngbkit.predictor.kinds.kernels import Kernels
from ngbkit.predictor.kinds.operators import OperatorSum

KINDS: dict[str, type[Model]] = {model.kind: model for model in (Flops, Linear, OperatorSum, Boosting, Gnn, Kernels)}


def needs_profile(name: str) -> bool:
    """Return whether a kind learns from operators that a profiler timed, or raise the error of `find_kind`."""
    return find_kind(name) is Kernels


def find_kind(name: str) -> type[Model]:
    """Return the class of a kind of models, or raise the error that lists the kinds."""
    if name not in KINDS:
        raise UnknownNameError("kind of model", name, KINDS)
    return KINDS[name]
