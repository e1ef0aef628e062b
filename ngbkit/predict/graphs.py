"""Any network as an annotated graph: its operators with their shapes, work and bytes, and the values between them.

Graphs are plain data, small enough to be stored beside the measurements.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Any

Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]

UNPRUNED = "unpruned"
"""The lowering of a graph with the operators that feed no output or are fed constants alone."""

LAYOUT = 2
"""The version of the graph format: a change invalidates all cached graphs."""

# A value with more consumers makes no siblings: the number of pairs grows with the square.
_MOST_SIBLINGS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A value of a graph: a flowing one or a constant.

    Parameters
    ----------
    shape
        Includes the batch; None if it is unknown before the network runs, as of a sequence.
    dtype
        NumPy's name, or ONNX's if NumPy has none; of a sequence, that of its tensors; empty of a map.
    bytes
        0 if the shape is unknown, or of texts.
    """

    shape: tuple[int, ...] | None
    dtype: str
    bytes: int

    @property
    def size(self) -> int:
        """The number of elements; 0 if the shape is unknown."""
        return 0 if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator of a graph.

    Parameters
    ----------
    name
        The name of the node in the file.
    kind
        ``"Conv"``; with its domain if that is not ONNX's own: ``"com.microsoft.FusedConv"``.
    inputs, outputs
        The flowing values, in order.
    weights
        The constant inputs.
    attributes
        Numbers and texts by name, without tensors and graphs.
    macs
        Multiply-accumulate operations; None if its work is undefined.
    """

    name: str
    kind: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    attributes: Mapping[str, Attribute]
    macs: int | None

    @property
    def digest(self) -> str:
        """A hash of its work: equal for two operators that differ only in their names and in the values of weights."""
        groups = (self.inputs, self.weights, self.outputs)
        signature = [[[tensor.shape, tensor.dtype] for tensor in tensors] for tensors in groups]
        return hash_parts(self.kind, dict(self.attributes), signature)

    @property
    def bytes(self) -> int:
        """The bytes that it reads and writes at least: inputs, weights and outputs, each once."""
        return sum(tensor.bytes for tensor in (*self.inputs, *self.weights, *self.outputs))


@dataclass(frozen=True, kw_only=True, repr=False)
class Graph:
    """A network at one batch size.

    Parameters
    ----------
    operators
        In topological order.
    edges
        Distinct pairs of indices in `operators`: the second operator consumes a value of the first.
    inputs, outputs
        The values of the network.
    shared
        For each value with several consumers, the indices of these operators.
    digest
        Equal for graphs that differ only in names, in the order of operators and in the values of weights.
    dropped
        The number of operators of the file that feed no output or are fed constants alone, and are left out; None if it
        is unknown.
    lowering
        The compiler that optimised the network, if these are the operators that it executes: see
        `ngbkit.predict.lowering`. Empty for the network as it was exported, without operators of no effect, and
        ``"unpruned"`` with them.
    """

    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    shared: tuple[tuple[int, ...], ...]
    digest: str
    dropped: int | None = field(default=None, compare=False)
    lowering: str = ""

    def __repr__(self) -> str:
        macs = "an unknown number of" if self.macs is None else f"{self.macs:,}"
        return f"<Graph: {len(self.operators)} operators, {macs} MACs, {self.weight_bytes:,} bytes of weights>"

    @property
    def batch_size(self) -> int:
        """The first dimension of the first input that has one: the samples of a call. 1 without such an input."""
        return next((tensor.shape[0] for tensor in self.inputs if tensor.shape), 1)

    @cached_property
    def encodings(self) -> dict[str, Any]:
        """The encodings of the graph by the name of each, so that models that are fitted many times share them."""
        return {}

    @cached_property
    def siblings(self) -> tuple[tuple[int, int], ...]:
        """Pairs of operators that consume the same value, the smaller index first."""
        pairs = (pair for group in self.shared if len(group) <= _MOST_SIBLINGS for pair in combinations(group, 2))
        return tuple(sorted(set(pairs)))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """By operator, the number of operators on the longest path from an input to it, itself included."""
        depths = [1] * len(self.operators)
        for start, end in self.edges:  # sorted by start, so that each start is final
            depths[end] = max(depths[end], depths[start] + 1)
        return tuple(depths)

    @property
    def macs(self) -> int | None:
        """Multiply-accumulate operations; None if the number of any operator is unknown."""
        counts = [operator.macs for operator in self.operators if operator.macs is not None]
        return sum(counts) if len(counts) == len(self.operators) else None

    @property
    def weight_bytes(self) -> int:
        """The bytes of all constants; a constant that several operators consume counts for each."""
        return sum(tensor.bytes for operator in self.operators for tensor in operator.weights)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Graph:
        return cls(
            operators=tuple(_load_operator(operator) for operator in data["operators"]),
            edges=tuple((start, end) for start, end in data["edges"]),
            inputs=tuple(map(_load_tensor, data["inputs"])),
            outputs=tuple(map(_load_tensor, data["outputs"])),
            shared=tuple(tuple(places) for places in data["shared"]),
            digest=data["digest"],
            dropped=data.get("dropped"),
            lowering=data.get("lowering", ""),
        )


def hash_parts(*parts: Any) -> str:
    """Return a hash of values that JSON can hold."""
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=12).hexdigest()


def _load_tensor(data: Mapping[str, Any]) -> Tensor:
    shape = None if data["shape"] is None else tuple(data["shape"])
    return Tensor(shape=shape, dtype=data["dtype"], bytes=data["bytes"])


def _load_operator(data: Mapping[str, Any]) -> Operator:
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in data["attributes"].items()
    }
    tensors = {name: tuple(map(_load_tensor, data[name])) for name in ("inputs", "outputs", "weights")}
    return Operator(name=data["name"], kind=data["kind"], macs=data["macs"], attributes=attributes, **tensors)
