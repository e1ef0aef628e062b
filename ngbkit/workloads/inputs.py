"""The inputs that a user describes by shapes or tensors, as the specs, example rows and the call of a module."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import batches, feeds
from ngbkit.workloads.base import BATCH, Network, TensorSpec
from ngbkit.workloads.export import flatten, is_flat, list_positional, read_signature, to_tensor
from ngbkit.workloads.export_refusals import describe_cause
from ngbkit.workloads.forward_arguments import check_arguments
from ngbkit.workloads.indices import check_indices
from ngbkit.workloads.onnx_inputs import BatchAxes
from ngbkit.workloads.randomise import randomise, run

if TYPE_CHECKING:
    import torch

    from ngbkit.workloads.feeds import Array

_SHAPES = "a tuple such as (3, 224, 224), a list of tuples, or a dict of them by input name"
_VALUES = "a tensor with a leading batch dimension, a tuple or list of these, or a dict of them by input name"
# The dtypes of weights whose module rejects float32 inputs.
_WEIGHTS = {"torch.float16": "float16", "torch.bfloat16": "bfloat16", "torch.float64": "float64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCall:
    """The call of a module: its inputs in order, their example values, and the arguments that they fill."""

    specs: Sequence[TensorSpec]
    examples: dict[str, Array] = field(default_factory=dict)
    # The inputs with their batch elsewhere, where the module is not seen to have it in `specs`.
    alternatives: Sequence[Sequence[TensorSpec]] = ()
    # Whether the user has said where the batch is.
    is_named: bool = False
    # The only batch size, None if any is valid, and the reason for the only one.
    batch_size: int | None = None
    batch_reason: str = ""
    # Whether the inputs are the module's first arguments, in order.
    is_positional: bool = True
    # Arranges tensors in order to positional and keyword arguments.
    arrange: Callable[[Sequence[Any]], tuple[Sequence[Any], Mapping[str, Any]]] = lambda tensors: (tensors, {})

    def with_batch(self, batch_axes: BatchAxes) -> ModuleCall:
        """Return the call with the batch of these inputs of known shapes in another dimension, or in none."""
        names = [spec.name for spec in self.specs]
        for name in batch_axes:
            if name not in names:
                raise UnknownNameError("input", name, names)
        return replace(
            self,
            alternatives=() if batch_axes else self.alternatives,
            is_named=bool(batch_axes),
            specs=[move_batch(spec, batch_axes[spec.name]) if spec.name in batch_axes else spec for spec in self.specs],
        )


def parse_shapes(input_shape: Any, module: torch.nn.Module) -> ModuleCall:
    """Parse an ``input_shape`` to inputs of the module's own floating type, named after its arguments."""
    if isinstance(input_shape, Mapping):
        shapes = {str(name): _parse_shape(shape) for name, shape in input_shape.items()}
    else:
        is_list = isinstance(input_shape, Sequence) and bool(input_shape) and not all(map(_is_side, input_shape))
        listed = [_parse_shape(shape) for shape in (input_shape if is_list else [input_shape])]
        shapes = dict(zip(_list_arguments(module, len(listed)), listed, strict=True))
    dtype = _find_weight_dtype(module)
    specs = [TensorSpec(name=name, shape=(BATCH, *shape), dtype=dtype) for name, shape in shapes.items()]
    call = _build_call(module, [specs], {}, list(shapes) if isinstance(input_shape, Mapping) else None)
    is_second = _has_sequence_first(module) and all(shapes.values())
    return replace(call, alternatives=[[move_batch(spec, 1) for spec in specs]] if is_second else [])


def parse_values(
    values: Any, module: torch.nn.Module, batch_axes: BatchAxes | None = None, *, shared: bool = False
) -> ModuleCall:
    """Parse example tensors to inputs and their values by input name.

    Tensors may be nested in tuples, lists and dicts, as the module takes them. The batch is looked for in the first
    dimension, of as many inputs as have the same number of rows; a scalar has none, nor has a tensor of one row beside
    others of more. `batch_axes` says where it is instead. Of `shared` values by name a module gets those that it takes.
    """
    if isinstance(values, Mapping):
        chosen = _select_accepted(values, module) if shared else dict(values)
        if not _takes_mapping(module, values):
            return _parse_arguments((), chosen, module, batch_axes)
        values = (dict(values),)
    elif not isinstance(values, (tuple, list)):
        values = (values,)
    return _parse_arguments(tuple(values), {}, module, batch_axes)


def move_batch(spec: TensorSpec, axis: int | None) -> TensorSpec:
    """Move the batch of an input of one sample's shape to another dimension; None for an input without one."""
    sides = [side for side in spec.shape if side != BATCH]
    if axis is not None and not 0 <= axis <= len(sides):
        raise WorkloadError(
            f"invalid batch axis of input {spec.name}: got {axis}; expected 0 to {len(sides)}, or none."
        )
    shape = sides if axis is None else [*sides[:axis], BATCH, *sides[axis:]]
    return replace(spec, shape=tuple(shape))


def build_network(name: str, module: torch.nn.Module, call: ModuleCall, seed: int, *, always: bool = False) -> Network:
    """Build the network of a module, its constants re-drawn, with the batch that it is seen to have."""
    wrapped, arrays = wrap_checked(name, module, call, seed, always=always)
    randomise(module, seed, lambda: run(wrapped, arrays))
    settled = settle_batch(call, wrapped, arrays, seed)
    return Network(
        inputs=settled.specs,
        module=wrapped,
        examples=settled.examples,
        batch_size=settled.batch_size,
        batch_reason=settled.batch_reason,
    )


def wrap(module: torch.nn.Module, call: ModuleCall, *, is_flat: bool = True) -> torch.nn.Module:
    """Wrap a module to take its inputs in order and return a flat tuple; the module itself if it does."""
    from torch import nn

    if call.is_positional and is_flat:
        return module
    arrange = call.arrange

    class InOrder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = module

        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arguments, keywords = arrange(tensors)
            return tuple(flatten(self.inner(*arguments, **keywords)))

    return InOrder().train(module.training)


def wrap_checked(
    name: str, module: torch.nn.Module, call: ModuleCall, seed: int, *, always: bool = False
) -> tuple[torch.nn.Module, list[Array]]:
    """Run a module on two rows or else one; return it, wrapped if needed, and the arrays. WorkloadError: no output."""
    import torch

    wrapped = wrap(module, call)
    rows = batches.count_rows(call.specs, call.examples)
    problem: Exception | None = None
    described = ""
    for count in dict.fromkeys((rows,) if call.examples and call.alternatives else (rows, 1)):
        arrays = feeds.draw(call.specs, call.examples, count, seed)
        try:
            with torch.no_grad():
                outputs = wrapped(*map(to_tensor, arrays))
            break
        except Exception as error:  # noqa: BLE001  a module may raise anything
            described = described or describe_feed(call.specs, arrays)
            problem = problem or error
    else:
        assert problem is not None
        check_arguments(name, read_signature(module), *call.arrange(arrays))
        check_indices(call.specs, wrapped, list(map(to_tensor, arrays)))
        reason = f"{type(problem).__name__}: {describe_cause(problem)}"
        raise WorkloadError(
            f"invalid inputs of {name}: fed {described}, it raised {reason}.{_advise(problem, call)}"
        ) from problem
    if not flatten(outputs):
        raise WorkloadError(
            f"{name} returned no tensor, but a {type(outputs).__name__}; expected one or more tensors, also in tuples, "
            "lists, dicts and dataclasses. Return them from forward()."
        )
    return wrap(module, call, is_flat=is_flat(outputs) and not always), arrays


def settle_batch(call: ModuleCall, module: torch.nn.Module, arrays: Sequence[Array], seed: int) -> ModuleCall:
    """Return the call with the batch that a wrapped module, which runs on these arrays, is seen to have."""
    claims = [specs for specs in (call.specs, *call.alternatives) if any(spec.batch_axis is not None for spec in specs)]
    if not claims:
        return replace(call, batch_size=1)
    pairs = zip(call.specs, arrays, strict=True)
    rows = next((array.shape[spec.batch_axis] for spec, array in pairs if spec.batch_axis is not None), 1)
    batch = batches.find_batch(module, claims, call.examples, rows, seed, is_named=call.is_named)
    return replace(call, specs=batch.specs, batch_size=batch.size, batch_reason=batch.reason)


def describe_feed(specs: Sequence[TensorSpec], arrays: Sequence[Array]) -> str:
    """Describe what a network was fed."""
    return ", ".join(f"{spec.name} {array.dtype} {array.shape}" for spec, array in zip(specs, arrays, strict=True))


def _advise(error: Exception, call: ModuleCall) -> str:
    """Return the remedy where noise is not what the module takes."""
    text = str(error)
    if call.examples or not any(word in text for word in ("ndices", "dtype", "Long", "Half", "Int", "scalar type")):
        return ""
    return (
        f" An input_shape feeds {call.specs[0].dtype} noise; for token ids, masks or another dtype bind tensors "
        "instead: inputs = torch.randint(0, 100, (2, 12))."
    )


def _parse_arguments(
    arguments: tuple[Any, ...], keywords: Mapping[str, Any], module: torch.nn.Module, batch_axes: BatchAxes | None
) -> ModuleCall:
    from torch.utils import _pytree

    leaves, structure = _pytree.tree_flatten((list(arguments), dict(keywords)), is_leaf=_is_tensor)
    names = _name_leaves(arguments, keywords, module)
    places = [place for place, leaf in enumerate(leaves) if _is_tensor(leaf)]
    arrays = {names[place]: _to_array(names[place], leaves[place]) for place in places}
    if not arrays:
        got = ", ".join(type(value).__name__ for value in (*arguments, *keywords.values())) or "none"
        raise WorkloadError(f"invalid inputs: got {got}, without a tensor; expected {_VALUES}.")
    claims = _list_claims(arrays, module, batch_axes or {})
    is_nested = len(places) < len(leaves) or any(not _is_tensor(leaf) for leaf in (*arguments, *keywords.values()))
    if not is_nested:
        return replace(_build_call(module, claims, arrays, list(keywords) or None), is_named=bool(batch_axes))

    def arrange(tensors: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        filled = list(leaves)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        positional, by_name = _pytree.tree_unflatten(filled, structure)
        return positional, by_name

    return ModuleCall(
        specs=claims[0],
        alternatives=claims[1:],
        is_named=bool(batch_axes),
        examples=arrays,
        is_positional=False,
        arrange=arrange,
    )


def _build_call(
    module: torch.nn.Module, claims: list[list[TensorSpec]], arrays: dict[str, Array], names: list[str] | None
) -> ModuleCall:
    """Build the call of a module whose inputs are its arguments, by position, or by these names."""
    call = ModuleCall(specs=claims[0], examples=arrays, alternatives=claims[1:])
    is_ordered = [spec.name for spec in call.specs] == list_positional(module)[: len(call.specs)]
    if names is None or is_ordered:
        return call
    return replace(call, is_positional=False, arrange=lambda tensors: ((), dict(zip(names, tensors, strict=True))))


def _name_leaves(arguments: Sequence[Any], keywords: Mapping[str, Any], module: torch.nn.Module) -> list[str]:
    """Name every leaf after its argument and its place in it: ``past.0``."""
    from torch.utils import _pytree

    names: list[str] = []
    tops = [*zip(_list_arguments(module, len(arguments)), arguments, strict=True), *keywords.items()]
    is_single = len(tops) == 1 and isinstance(tops[0][1], Mapping)
    for top, value in tops:
        for path, _ in _pytree.tree_flatten_with_path(value, is_leaf=_is_tensor)[0]:
            inner = [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", "")))) for key in path]
            names.append(".".join(inner if is_single else [top, *inner]))
    return names


def _takes_mapping(module: torch.nn.Module, values: Mapping[str, Any]) -> bool:
    """Return whether a module takes one argument, which is a dict with these keys."""
    parameters = read_signature(module).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return False
    required = [parameter for parameter in parameters if parameter.default is inspect.Parameter.empty]
    names = {parameter.name for parameter in parameters}
    return len(required) == 1 and not names & set(values)


def _select_accepted(values: Mapping[str, Any], module: torch.nn.Module) -> dict[str, Any]:
    """Select the values that a module takes, of those that several modules share."""
    parameters = read_signature(module).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return dict(values)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in values.items() if name in names} or dict(values)


def _list_claims(arrays: Mapping[str, Array], module: torch.nn.Module, batch_axes: BatchAxes) -> list[list[TensorSpec]]:
    """List the descriptions of arrays with their batch where it is named, or may be, in order of preference."""
    for name in batch_axes:
        if name not in arrays:
            raise UnknownNameError("input", name, list(arrays))
    is_second = _has_sequence_first(module) and all(array.ndim > 1 for array in arrays.values())
    defaults = [0, 1] if is_second else [0]
    claims = [claim for default in defaults for claim in _list_counts(arrays, batch_axes, default)]
    return claims or [[_describe_array(name, array, None) for name, array in arrays.items()]]


def _list_counts(arrays: Mapping[str, Array], batch_axes: BatchAxes, default: int) -> Iterator[list[TensorSpec]]:
    """Yield descriptions of arrays with their batch in a dimension, for each number of rows that some have there."""
    axes = {name: batch_axes.get(name, default if default < array.ndim else None) for name, array in arrays.items()}
    for name, axis in axes.items():
        if axis is not None and not 0 <= axis < arrays[name].ndim:
            raise WorkloadError(
                f"invalid batch axis of input {name}: got {axis}; expected a dimension of its shape "
                f"{arrays[name].shape}, or none."
            )
    rows = {name: arrays[name].shape[axis] for name, axis in axes.items() if axis is not None}
    most = max(rows.values(), default=0)
    counts = {name: count for name, count in rows.items() if not count == 1 < most or name in batch_axes}
    if 0 in counts.values() or (batch_axes and len(set(counts.values())) > 1):
        raise WorkloadError(
            f"invalid batch of the inputs: got {counts} rows; expected the same number >= 1 for all, or 1 for an input "
            "that all samples share. If the batch is in another dimension, or in none, name it: --batch-axis "
            f"{next(iter(counts))}=1, or batch_axis={{…}}."
        )
    for rows_of_some in dict.fromkeys(counts.values()):
        yield [
            _describe_array(name, array, axes[name] if counts.get(name) == rows_of_some else None)
            for name, array in arrays.items()
        ]


def _has_sequence_first(module: torch.nn.Module) -> bool:
    """Return whether parts of a module take sequences first, so that the batch may be the second dimension."""
    from torch import nn

    kinds = (nn.RNNBase, nn.MultiheadAttention)
    return any(isinstance(part, kinds) and not part.batch_first for part in module.modules())


def _describe_array(name: str, array: Array, axis: int | None) -> TensorSpec:
    shape = tuple(BATCH if index == axis else size for index, size in enumerate(array.shape))
    return TensorSpec(name=name, shape=shape, dtype=array.dtype.name)


def _list_arguments(module: torch.nn.Module, count: int) -> list[str]:
    """List the first `count` arguments of a module, or generate the names if it has fewer."""
    names = list_positional(module)
    return names[:count] if len(names) >= count else [f"input{index}" for index in range(count)]


def _find_weight_dtype(module: torch.nn.Module) -> str:
    """Find the dtype of a module's floating weights if all have the same; else float32."""
    dtypes = {str(weight.dtype) for weight in module.parameters() if weight.is_floating_point()}
    return _WEIGHTS.get(dtypes.pop(), "float32") if len(dtypes) == 1 else "float32"


def _parse_shape(shape: Any) -> tuple[int, ...]:
    sides = [shape] if _is_side(shape) else shape
    if not isinstance(sides, Sequence) or isinstance(sides, str) or not all(map(_is_side, sides)):
        raise WorkloadError(f"invalid input_shape: got {shape!r}; expected, without the batch dimension, {_SHAPES}.")
    return tuple(int(side) for side in sides)


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_tensor(value: Any) -> bool:
    import numpy as np
    import torch

    return isinstance(value, (torch.Tensor, np.ndarray))


def _to_array(name: str, value: Any) -> Array:
    import numpy as np
    import torch

    array = feeds.from_tensor(value) if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.dtype.kind == "c":
        raise WorkloadError(
            f"invalid dtype of input {name}: got {array.dtype}; expected real numbers, which every runtime takes. Feed "
            "a pair of real numbers, torch.view_as_real(z), and build the complex ones in forward()."
        )
    return array
