"""Stacks of one block at any depth and width: the paper's section V-D and table V.

>>> from ngbkit.workloads import blocks
>>> blocks.conv([64, 96], range(1, 7)).factors["width"]
(64, 96)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import labels
from ngbkit.workloads.base import Factors, Network, Number, Source, Workload
from ngbkit.workloads.randomise import build_network, seed_generators

if TYPE_CHECKING:
    import torch

Counts = Number | Iterable[Number]
Values = Counts | None

_TAKES = ("width", "depth")
# By block: what a sweep can vary beside its width and depth.
_CONDITIONS: Mapping[str, tuple[str, ...]] = {"conv": ("size", "kernel"), "mha": ("sequence", "heads")}
_KERNEL = 3
_PREFIX = "blocks."


def conv(
    width: Values = None,
    depth: Values = None,
    *,
    size: int | tuple[int, int] = (244, 244),
    kernel: Counts = _KERNEL,
    name: str = "conv",
) -> Workload:
    """A stack of convolution blocks: Conv2d with bias, BatchNorm, ReLU, from `width` channels to `width` channels.

    A sweep can vary the factors ``size``, the side of a square input in pixels, and ``kernel`` too.

    Parameters
    ----------
    width, depth
        The number of channels and of blocks: one value, several values, or None to sweep the factors ``width`` and
        ``depth``.
    size
        Height and width of the input in pixels, or the side of a square; a sample has the shape ``(width, *size)``.
        Table V states 244 x 244.
    kernel
        The side of the convolution's kernel, an odd number: one value, or several as a factor. Table V states 3.
    name
        The label.

    Raises
    ------
    WorkloadError
        A value is not a positive integer, or a kernel is even.
    """
    sides = (size, size) if isinstance(size, int) else size
    if isinstance(sides, str) or len(sides) != 2:
        raise WorkloadError(f"invalid size: got {size!r}; expected a height and a width in pixels, such as (244, 244).")
    kernels = _check_counts("kernel", kernel)
    for value in kernels:
        _check_kernel(value)
    # A stack of table V has no kernel in its description: its hash is that of what was measured already.
    conditions = {} if kernels == (_KERNEL,) else {"kernel": kernels}
    spec = {"block": "conv", "size": [_check_count("size", value) for value in sides]}
    return _build_stack(name, spec, width, depth, conditions)


def mha(
    embed: Values = None, depth: Values = None, *, sequence: Counts = 10, heads: Counts = 8, name: str = "mha"
) -> Workload:
    """A stack of attention blocks: multi-head self-attention, residual, LayerNorm without affine parameters, ReLU.

    A sweep can vary the factors ``sequence`` and ``heads`` too.

    Parameters
    ----------
    embed, depth
        The embedding dimension, named ``width`` in sweeps and datasets as for every block, and the number of blocks:
        one value, several values, or None to sweep the factors.
    sequence
        The number of tokens: one value, or several as a factor; a sample has the shape ``(sequence, embed)``. Table V
        states 10.
    heads
        The number of attention heads, divisors of `embed`: one value, or several as a factor. The paper states none.
    name
        The label.

    Raises
    ------
    WorkloadError
        A value is not a positive integer, or a number of heads does not divide `embed`.
    """
    conditions = {"sequence": _check_counts("sequence", sequence), "heads": _check_counts("heads", heads)}
    workload = _build_stack(name, {"block": "mha"}, embed, depth, conditions)
    for value in workload.factors.get("width", ()):
        for count in conditions["heads"]:
            _check_heads(int(value), count)
    return workload


# By the name of a block: the function, and its arguments with values as examples.
_MAKERS: Mapping[str, tuple[Callable[..., Workload], Mapping[str, Any]]] = {
    "conv": (conv, {"width": 64, "depth": 4, "size": [244, 244], "kernel": _KERNEL}),
    "mha": (mha, {"embed": 64, "depth": 4, "sequence": 10, "heads": 8}),
}


def build(workload: Workload, factors: Factors) -> Network:
    """Build the stack at these factors, its weights drawn from the option `seed`."""
    import torch

    spec, seed = workload.spec, options.get_options()["seed"]
    block = spec["block"]
    width, depth = (_check_count(name, factors[name]) for name in _TAKES)
    swept = {name: _check_count(name, factors[name]) for name in _CONDITIONS[block] if name in factors}
    conditions = {"kernel": _KERNEL, **spec, **swept}
    with seed_generators(seed):
        if block == "conv":
            size = [swept["size"]] * 2 if "size" in swept else spec["size"]
            blocks, shape = [_build_conv_block(width, conditions["kernel"]) for _ in range(depth)], (width, *size)
        else:
            blocks = [_build_mha_block(width, conditions["heads"]) for _ in range(depth)]
            shape = (conditions["sequence"], width)
    return build_network(torch.nn.Sequential(*blocks).eval(), shape, seed)


def parse(text: str) -> Workload | None:
    """Parse the name of a stack: ``blocks.conv``, or with arguments ``blocks.mha{"heads":4}``."""
    if not text.startswith(_PREFIX):
        return None
    label, arguments = labels.split(text)
    block = label[len(_PREFIX) :]
    if block not in _MAKERS:
        raise UnknownNameError("workload", label, [_PREFIX + name for name in _MAKERS])
    maker, takes = _MAKERS[block]
    for name in arguments:
        if name not in takes:
            raise UnknownNameError(f"argument of {label}", name, takes)
    fixed = {key: value for key, value in arguments.items() if key not in ("width", "embed", "depth")}
    return maker(**arguments, name=labels.join(block, fixed))


def complete(prefix: str) -> Iterator[str]:
    """Yield the blocks whose name starts with `prefix`."""
    return (_PREFIX + block for block in _MAKERS if (_PREFIX + block).startswith(prefix))


def list_arguments(name: str) -> Mapping[str, Any]:
    """Return the arguments of a block; none of a name that is no block's."""
    block = name.removeprefix(_PREFIX) if name.startswith(_PREFIX) else ""
    return _MAKERS[block][1] if block in _MAKERS else {}


SOURCE = Source(
    name="blocks",
    summary="stacks of convolution or attention blocks, at any width and depth",
    build=build,
    parse=parse,
    complete=complete,
    arguments=list_arguments,
)


def _build_stack(
    name: str, spec: Mapping[str, Any], width: Values, depth: Values, conditions: Mapping[str, tuple[int, ...]]
) -> Workload:
    """Build the description of a stack: a condition of one value describes it, and one of several is a factor."""
    factors = {
        factor: _check_counts(factor, values)
        for factor, values in zip(_TAKES, (width, depth), strict=True)
        if values is not None
    }
    factors |= {condition: values for condition, values in conditions.items() if len(values) > 1}
    fixed = {condition: values[0] for condition, values in conditions.items() if len(values) == 1}
    optional = _CONDITIONS[spec["block"]]
    spec = {**spec, **fixed}
    takes = (*_TAKES, *optional)
    return Workload(name=name, source="blocks", spec=spec, takes=takes, optional=optional, factors=factors)


def _check_counts(name: str, values: Counts) -> tuple[int, ...]:
    counts = [_check_count(name, value) for value in ([values] if isinstance(values, (int, float)) else values)]
    if not counts:
        raise WorkloadError(f"{name} has no value; expected one or more. Omit it to sweep {name} as a factor.")
    return tuple(dict.fromkeys(counts))


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value != int(value):
        raise WorkloadError(f"invalid {name} of a block: got {value!r}; expected an integer >= 1.")
    return int(value)


def _check_heads(embed: int, heads: int) -> None:
    if embed % heads:
        raise WorkloadError(
            f"invalid embedding of {heads} heads: got {embed}; expected a multiple of {heads}. Change embed or heads."
        )


def _check_kernel(kernel: int) -> None:
    if kernel % 2 == 0:
        raise WorkloadError(
            f"invalid kernel of a block: got {kernel}; expected an odd number, since each block keeps the size of its "
            "input."
        )


def _build_conv_block(width: int, kernel: int) -> torch.nn.Module:
    from torch import nn

    _check_kernel(kernel)
    convolution = nn.Conv2d(width, width, kernel, padding=kernel // 2)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU())


def _build_mha_block(embed: int, heads: int) -> torch.nn.Module:
    from torch import nn

    _check_heads(embed, heads)

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(embed, heads, batch_first=True)
            self.norm = nn.LayerNorm(embed, elementwise_affine=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
            return nn.functional.relu(self.norm(tokens + attended))

    return Attention()
