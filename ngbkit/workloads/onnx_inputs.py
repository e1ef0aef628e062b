"""The inputs of an ONNX file: for each dimension the batch, a number, a factor, or an expression of factors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import dimensions, feeds, onnx_roles
from ngbkit.workloads.base import BATCH, Factors, TensorSpec
from ngbkit.workloads.dimensions import Dimension
from ngbkit.workloads.onnx_traversal import find_inputs

# A symbol without a letter, or one of these, names nothing: exporters write one such text in every open dimension.
_ANONYMOUS = re.compile(r"[\W\d_]*|none|null|nan|unk|unknown|dyn|dynamic", re.ASCII | re.IGNORECASE)
_BATCH_NAME = re.compile(r".*batch.*|bs|bsz|n|b", re.IGNORECASE)
# Leading dimensions of these names are no batch.
_SEQUENCE_NAME = re.compile(r"(.*_)?(seq|sequence|sequences|time|length|len|frames|steps)(_.*|\d*)?", re.IGNORECASE)
# Names may contain a hyphen or a slash; one between spaces, or before a number, is an operator.
_OPERATOR = re.compile(r"[+*()]|//|\s[-/%x]\s|[-/%]\s*\d")
_TIMES = re.compile(r"(?<=\s)x(?=\s)")
_NAME = re.compile(r"[A-Za-z_][\w.:]*")
_NO_IDENTIFIER = re.compile(r"\W", re.ASCII)

BatchAxes = Mapping[str, int | None]
"""The batch of inputs as the user names it: a dimension, or None for an input without a batch."""


@dataclass(frozen=True, slots=True)
class _Side:
    """A dimension as the file declares it: a number, or a symbol; an anonymous one has a symbol of its own."""

    size: int | None
    symbol: str = ""
    anonymous: bool = False


def describe(path: Path, model: Any, batch_axes: BatchAxes | None = None) -> tuple[list[TensorSpec], int | None]:
    """Describe the inputs of a file, and return the batch size if it is fixed; it is 1 where no input has a batch.

    The batch is where `batch_axes` says, else a symbol that is called so, else the first open dimension of each input,
    else the first dimension if all inputs have the same number there. `WorkloadError`: there is no input, or one is no
    tensor of a supported dtype with a shape.
    """
    values = find_inputs(model.graph)
    if not values:
        raise WorkloadError(f"{path} has no inputs; expected one or more.")
    kinds = {value.name: _find_dtype(path, value) for value in values}
    sides = {value.name: list(_read_sides(value)) for value in values}
    axes = _check_axes(path, sides, batch_axes or {})
    batch = _find_batch(sides, axes)
    names = _name_factors(side for listed in sides.values() for side in listed)
    shapes = {name: _build_shape(name, listed, axes, batch, names) for name, listed in sides.items()}
    roles = onnx_roles.find_roles(model, shapes)
    specs = [
        TensorSpec(name=name, shape=shape, dtype=kinds[name], below=roles[name].below, role=roles[name].text)
        for name, shape in shapes.items()
    ]
    return specs, batch.size if any(spec.batch_axes for spec in specs) else 1


def is_called_batch(model: Any, inputs: Sequence[TensorSpec]) -> bool:
    """Return whether the batch of these inputs is a symbol that is called so, and not a place alone."""
    symbols = {
        side.symbol
        for value, spec in zip(find_inputs(model.graph), inputs, strict=True)
        for side, dimension in zip(_read_sides(value), spec.shape, strict=True)
        if dimension == BATCH and not side.anonymous
    }
    return any(_BATCH_NAME.fullmatch(symbol) for symbol in symbols)


def list_factors(inputs: Sequence[TensorSpec]) -> tuple[str, ...]:
    """List the factors of inputs, in order."""
    return tuple(dict.fromkeys(name for spec in inputs for name in spec.factors))


def bind(inputs: Sequence[TensorSpec], factors: Factors) -> list[TensorSpec]:
    """Return the inputs at these values of the factors; WorkloadError if one is no integer, 0 or more."""
    sizes = {name: _check_size(name, factors[name]) for name in list_factors(inputs)}
    return [spec.substitute(sizes) for spec in inputs]


def _find_dtype(path: Path, value: Any) -> str:
    import onnx

    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        described = str(kind).removesuffix("_type").replace("_", " ") if kind else "value without a type"
        raise WorkloadError(
            f"invalid input {value.name} of {path}: got a {described}; expected a tensor. ngbkit feeds tensors only: "
            "export the network with a tensor there."
        )
    if not value.type.tensor_type.HasField("shape"):
        raise WorkloadError(f"input {value.name} of {path} is not a tensor with a shape. Export it with one.")
    if value.type.tensor_type.elem_type == onnx.TensorProto.STRING:
        return feeds.TEXT
    try:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name)
    except KeyError:
        dtype = f"unknown type {value.type.tensor_type.elem_type}"
    if dtype not in (*feeds.DTYPES, *feeds.NARROW_DTYPES):
        raise WorkloadError(
            f"invalid dtype of input {value.name} of {path}: got {dtype}; expected one of {', '.join(feeds.DTYPES)}. "
            "Export the network with one of these, and convert it inside."
        )
    return dtype


def _read_sides(value: Any) -> Iterator[_Side]:
    for index, dimension in enumerate(value.type.tensor_type.shape.dim):
        if dimension.HasField("dim_value"):
            yield _Side(size=int(dimension.dim_value))
        elif _ANONYMOUS.fullmatch(symbol := str(dimension.dim_param).strip()):
            yield _Side(size=None, symbol=f"{value.name}_dim{index}", anonymous=True)
        else:
            yield _Side(size=None, symbol=symbol)


def _check_axes(path: Path, sides: Mapping[str, Sequence[_Side]], batch_axes: BatchAxes) -> BatchAxes:
    for name, axis in batch_axes.items():
        if name not in sides:
            raise UnknownNameError(f"input of {path}", name, list(sides))
        if axis is not None and not 0 <= axis < len(sides[name]):
            raise WorkloadError(
                f"invalid batch axis of input {name} of {path}: got {axis}; expected 0 to {len(sides[name]) - 1}, or "
                "none."
            )
    return batch_axes


@dataclass(frozen=True, slots=True)
class _Batch:
    """The batch of a file: the symbols of its dimensions, or the first dimension of all; and its size if fixed."""

    symbols: frozenset[str] = frozenset()
    size: int | None = None
    comes_first: bool = False


def _find_batch(sides: Mapping[str, Sequence[_Side]], axes: BatchAxes) -> _Batch:
    chosen = {name: sides[name][axis] for name, axis in axes.items() if axis is not None}
    sizes = {name: side.size for name, side in chosen.items() if side.size is not None}
    if len(set(sizes.values())) > 1:
        raise WorkloadError(f"invalid batch axes: got inputs with {sizes} rows; expected the same number in all.")
    inferred = {name: listed for name, listed in sides.items() if name not in axes}
    others = {side.symbol for name in axes for index, side in enumerate(sides[name]) if axes[name] not in (None, index)}
    symbols = {side.symbol for side in chosen.values() if side.size is None} | (_infer_symbols(inferred) - others)
    if chosen or symbols:
        return _Batch(frozenset(symbols), next(iter(sizes.values()), None))
    first = {listed[0].size for listed in inferred.values() if listed}
    size = first.pop() if len(first) == 1 else None
    return _Batch(size=size, comes_first=True) if size else _Batch()


def _infer_symbols(sides: Mapping[str, Sequence[_Side]]) -> set[str]:
    """Infer which symbols are the batch: the symbols of its name, else the open first dimensions of inputs."""
    symbols = [side.symbol for listed in sides.values() for side in listed if side.symbol and not side.anonymous]
    leading = {listed[0].symbol for listed in sides.values() if listed and listed[0].symbol}
    parts = [name for symbol in symbols for name in _split(symbol) or [symbol]]
    batch_names = {
        name
        for name in parts
        if _BATCH_NAME.fullmatch(name) and (len(name) > 1 or name in leading)  # N may be the width of a matrix
    }
    anonymous = {listed[0].symbol for listed in sides.values() if listed and listed[0].anonymous}
    if batch_names:
        with_batch = {name for name, listed in sides.items() if any(side.symbol in batch_names for side in listed)}
        return (
            batch_names
            | {sides[name][0].symbol for name in sides if name not in with_batch and sides[name][:1]} & anonymous
        )
    inner = {side.symbol for listed in sides.values() for side in listed[1:]}
    first = next(iter(listed[0].symbol for listed in sides.values() if listed and listed[0].symbol), "")
    batch = {
        symbol
        for symbol in leading
        if (symbol not in inner or symbol == first)
        and not _SEQUENCE_NAME.fullmatch(symbol)
        and not _is_compound(symbol)
    }
    return batch | (set(_find_recurrent(sides)) if batch else set())


def _find_recurrent(sides: Mapping[str, Sequence[_Side]]) -> Iterator[str]:
    """Yield the anonymous dimensions of recurrent states, of shape ``(layers, batch, width)``."""
    for listed in sides.values():
        sizes = [side.size for side in listed]
        if len(listed) == 3 and listed[1].anonymous and sizes[0] is not None and sizes[2] is not None:
            yield listed[1].symbol


def _is_compound(symbol: str) -> bool:
    return _OPERATOR.search(symbol) is not None


def _name_factors(sides: Any) -> dict[str, str]:
    """Return the identifier of each name in symbols, each of its own; the names of symbols come first."""
    symbols = list(dict.fromkeys(side.symbol for side in sides if side.symbol))
    plain = [symbol for symbol in symbols if _split(symbol) is None]
    parts = [name for symbol in symbols for name in _split(symbol) or ()]
    names: dict[str, str] = {}
    for name in dict.fromkeys([*plain, *parts]):
        identifier = _NO_IDENTIFIER.sub("_", name)
        identifier = identifier if identifier.isidentifier() else f"dim_{identifier}"
        while identifier in names.values() or identifier == BATCH:
            identifier += "_"
        names[name] = identifier
    return names


def _split(symbol: str) -> list[str] | None:
    """Split a symbol that is an expression into its names; None if it is a name, or no expression."""
    if not _is_compound(symbol):
        return None
    text = _TIMES.sub("*", symbol)
    placeholders: dict[str, str] = {}
    draft = _NAME.sub(lambda match: placeholders.setdefault(match[0], _NO_IDENTIFIER.sub("_", match[0])), text)
    if not dimensions.is_expression(draft):
        return None
    used = dimensions.list_names(draft)
    return [name for name, placeholder in placeholders.items() if placeholder in used] or None


def _build_shape(
    name: str, sides: Sequence[_Side], axes: BatchAxes, batch: _Batch, names: Mapping[str, str]
) -> tuple[Dimension, ...]:
    shape: list[Dimension] = []
    for index, side in enumerate(sides):
        is_batch = index == axes[name] if name in axes else batch.comes_first and index == 0
        if side.size is not None:
            shape.append(BATCH if is_batch else side.size)
        elif is_batch or (side.symbol in batch.symbols and axes.get(name, 0) is not None):
            shape.append(BATCH)
        else:
            shape.append(_translate(side.symbol, batch.symbols, names))
    return tuple(shape)


def _translate(symbol: str, batch: frozenset[str], names: Mapping[str, str]) -> Dimension:
    """Translate a symbol to a dimension: its factor, or the expression of the batch and of factors."""
    if _split(symbol) is None:
        return names[symbol]
    text = _TIMES.sub("*", symbol)
    return _NAME.sub(lambda match: BATCH if match[0] in batch else names.get(match[0], match[0]), text)


def _check_size(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0 or value != int(value):
        raise WorkloadError(f"invalid {name}, a dimension of an input: got {value!r}; expected an integer >= 0.")
    return int(value)
