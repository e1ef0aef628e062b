"""Stacks of one block, as deep and as wide as a sweep asks for: the paper's section V-D and table V.

>>> from ngbkit.workloads import blocks
>>> blocks.conv([64, 96], range(1, 7)).factors["width"]
(64, 96)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import feeds, labels
from ngbkit.workloads.base import Factors, Network, Number, Source, TensorSpec, Workload
from ngbkit.workloads.randomise import randomise, run, seeded

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
        Channels, and blocks: one value, several, or None, and the sweep's factors ``width`` and ``depth`` give them.
    size
        Height and width of the input in pixels; a sample is of shape ``(width, *size)``. Table V says 244 x 244.
    name
        Its label.

    Raises
    ------
    WorkloadError
        A value that is not a positive integer.
    """
    if isinstance(size, (int, str)) or len(size) != 2:
        raise WorkloadError(f"size {size!r} does not fit; valid is a height and a width in pixels, such as (244, 244).")
    return _stack(name, {"block": "conv", "size": [_count("size", value) for value in size]}, width, depth)


def mha(
    embed: Values = None, depth: Values = None, *, sequence: int = 10, heads: int = 8, name: str = "mha"
) -> Workload:
    """A stack of attention blocks: multi-head self-attention, residual, LayerNorm without affine parameters, ReLU.

    Parameters
    ----------
    embed, depth
        The embedding dimension, which sweeps and datasets call ``width`` as they do for every block, and how many
        blocks: one value, several, or None, and the sweep's factors give them.
    sequence
        Tokens; a sample is of shape ``(sequence, embed)``. Table V says 10.
    heads
        Attention heads, which divide `embed`. The paper does not state their number.
    name
        Its label.

    Raises
    ------
    WorkloadError
        A value that is not a positive integer, or an `embed` that the heads do not divide.
    """
    spec = {"block": "mha", "sequence": _count("sequence", sequence), "heads": _count("heads", heads)}
    workload = _stack(name, spec, embed, depth)
    for value in workload.factors.get("width", ()):
        _check_heads(int(value), heads)
    return workload


_MAKERS: dict[str, tuple[Callable[..., Workload], tuple[str, ...]]] = {
    "conv": (conv, ("width", "depth", "size")),
    "mha": (mha, ("embed", "depth", "sequence", "heads")),
}


def build(workload: Workload, factors: Factors) -> Network:
    """The stack at this width and depth, its weights drawn from the option `seed`."""
    import torch

    spec, seed = workload.spec, options.get_options()["seed"]
    width, depth = (_count(name, factors[name]) for name in _TAKES)
    with seeded(seed):
        blocks = [
            _conv_block(width) if spec["block"] == "conv" else _mha_block(width, spec["heads"]) for _ in range(depth)
        ]
    module = torch.nn.Sequential(*blocks).eval()
    shape = (width, *spec["size"]) if spec["block"] == "conv" else (spec["sequence"], width)
    inputs = [TensorSpec(name="input", shape=shape)]
    randomise(module, seed, lambda: run(module, feeds.draw(inputs, {}, 2, seed)))
    return Network(inputs=inputs, module=module)


def parse(text: str) -> Workload | None:
    """The stack that ``blocks.conv`` or ``blocks.mha{"heads":4}`` names."""
    if not text.startswith(_PREFIX):
        return None
    label, arguments = labels.split(text)
    block = label[len(_PREFIX) :]
    if block not in _MAKERS:
        raise UnknownNameError("workload", label, [_PREFIX + known for known in _MAKERS])
    maker, takes = _MAKERS[block]
    for name in arguments:
        if name not in takes:
            raise UnknownNameError(f"argument of {label}", name, takes)
    shown = {key: value for key, value in arguments.items() if key not in ("width", "embed", "depth")}
    return maker(**arguments, name=labels.join(block, shown))


def complete(prefix: str) -> Iterator[str]:
    """The blocks whose name starts with `prefix`."""
    return (_PREFIX + block for block in _MAKERS if (_PREFIX + block).startswith(prefix))


SOURCE = Source(
    name="blocks",
    summary="stacks of convolution or attention blocks, at any width and depth",
    build=build,
    parse=parse,
    complete=complete,
)


def _stack(name: str, spec: Mapping[str, Any], width: Values, depth: Values) -> Workload:
    given = {"width": width, "depth": depth}
    factors = {key: _counts(key, value) for key, value in given.items() if value is not None}
    return Workload(name=name, source="blocks", spec=spec, takes=_TAKES, factors=factors)


def _counts(name: str, given: Number | Iterable[Number]) -> tuple[int, ...]:
    values = [given] if isinstance(given, (int, float)) else list(given)
    if not values:
        raise WorkloadError(f"{name} has no value; give one or more, or leave it to the sweep's factors.")
    return tuple(dict.fromkeys(_count(name, value) for value in values))


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1 or value != int(value):
        raise WorkloadError(f"{name} {value!r} does not fit a block; valid is an integer from 1 up.")
    return int(value)


def _check_heads(embed: int, heads: int) -> None:
    if embed % heads:
        raise WorkloadError(
            f"{heads} heads do not divide an embedding of {embed}; choose a multiple of {heads}, or other heads."
        )


def _conv_block(width: int) -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())


def _mha_block(embed: int, heads: int) -> torch.nn.Module:
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
