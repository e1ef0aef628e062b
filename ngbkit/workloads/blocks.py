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

Values = Number | Iterable[Number] | None

_TAKES = ("width", "depth")
_PREFIX = "blocks."


def conv(
    width: Values = None, depth: Values = None, *, size: tuple[int, int] = (244, 244), name: str = "conv"
) -> Workload:
    """A stack of convolution blocks: Conv3x3 with bias, BatchNorm, ReLU, from `width` channels to `width` channels.

    Parameters
    ----------
    width, depth
        The number of channels and of blocks: one value, several values, or None to sweep the factors ``width`` and
        ``depth``.
    size
        Height and width of the input in pixels; a sample has the shape ``(width, *size)``. Table V states 244 x 244.
    name
        The label.

    Raises
    ------
    WorkloadError
        A value is not a positive integer.
    """
    if isinstance(size, (int, str)) or len(size) != 2:
        raise WorkloadError(f"invalid size: got {size!r}; expected a height and a width in pixels, such as (244, 244).")
    return _build_stack(name, {"block": "conv", "size": [_check_count("size", value) for value in size]}, width, depth)


def mha(
    embed: Values = None, depth: Values = None, *, sequence: int = 10, heads: int = 8, name: str = "mha"
) -> Workload:
    """A stack of attention blocks: multi-head self-attention, residual, LayerNorm without affine parameters, ReLU.

    Parameters
    ----------
    embed, depth
        The embedding dimension, named ``width`` in sweeps and datasets as for every block, and the number of blocks:
        one value, several values, or None to sweep the factors.
    sequence
        The number of tokens; a sample has the shape ``(sequence, embed)``. Table V states 10.
    heads
        The number of attention heads, a divisor of `embed`. The paper does not state it.
    name
        The label.

    Raises
    ------
    WorkloadError
        A value is not a positive integer, or `heads` does not divide `embed`.
    """
    spec = {"block": "mha", "sequence": _check_count("sequence", sequence), "heads": _check_count("heads", heads)}
    workload = _build_stack(name, spec, embed, depth)
    for value in workload.factors.get("width", ()):
        _check_heads(int(value), heads)
    return workload


# By the name of a block: the function, and its arguments with values as examples.
_MAKERS: Mapping[str, tuple[Callable[..., Workload], Mapping[str, Any]]] = {
    "conv": (conv, {"width": 64, "depth": 4, "size": [244, 244]}),
    "mha": (mha, {"embed": 64, "depth": 4, "sequence": 10, "heads": 8}),
}


def build(workload: Workload, factors: Factors) -> Network:
    """Build the stack at this width and depth, its weights drawn from the option `seed`."""
    import torch

    spec, seed = workload.spec, options.get_options()["seed"]
    width, depth = (_check_count(name, factors[name]) for name in _TAKES)
    is_conv = spec["block"] == "conv"
    with seed_generators(seed):
        blocks = [_build_conv_block(width) if is_conv else _build_mha_block(width, spec["heads"]) for _ in range(depth)]
    shape = (width, *spec["size"]) if is_conv else (spec["sequence"], width)
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


def _build_stack(name: str, spec: Mapping[str, Any], width: Values, depth: Values) -> Workload:
    factors = {
        factor: _check_counts(factor, values)
        for factor, values in zip(_TAKES, (width, depth), strict=True)
        if values is not None
    }
    return Workload(name=name, source="blocks", spec=spec, takes=_TAKES, factors=factors)


def _check_counts(name: str, values: Number | Iterable[Number]) -> tuple[int, ...]:
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


def _build_conv_block(width: int) -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())


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
