"""Networks to learn from: cells of NAS-Bench-201, stacks of random blocks, and networks of timm at several sizes.

The name of each begins with its family. The same count and seed give the same networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.workloads import layers, timm
from ngbkit.workloads.base import Workload

Layers = list[dict[str, Any]]

CELL = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
"""What may stand on each of the six edges of a cell: Dong and Yang, NAS-Bench-201 (ICLR 2020), table 1."""

_EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))

TIMM = (
    *("resnet10t", "resnet14t", "resnet18", "resnet26", "resnext26ts", "seresnet18", "regnetx_002", "regnetx_004"),
    *("regnety_002", "regnety_004", "mobilenetv2_050", "mobilenetv2_100", "mobilenetv3_small_050"),
    *("mobilenetv3_small_100", "mobilenetv3_large_075", "mnasnet_050", "semnasnet_075", "fbnetc_100", "spnasnet_100"),
    *("tinynet_e", "tinynet_d", "lcnet_050", "lcnet_100", "ghostnet_050", "ghostnet_100", "efficientnet_lite0"),
    *("efficientnet_b0", "rexnet_100", "repvgg_a0", "mobileone_s0", "hardcorenas_a", "edgenext_xx_small"),
    *("convnext_atto", "convnext_femto", "mobilevit_xxs", "vit_tiny_patch16_224", "deit_tiny_patch16_224"),
    *("mixer_s32_224", "levit_128s", "pit_ti_224", "poolformer_s12", "selecsls42", "dla34", "hrnet_w18_small"),
)
"""Small networks of many families of timm."""

_SIZES = (64, 96, 128, 160, 192, 224)


def nasbench201(cell: Sequence[int], *, channels: int = 16, cells: int = 1, size: int = 32) -> Workload:
    """A network of NAS-Bench-201, with fewer cells a stage than the five of the benchmark unless told.

    Parameters
    ----------
    cell
        Six places in `CELL`, for the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3.
    channels
        Of the first stage; the second and the third have twice and four times as many.
    cells
        In a stage.
    size
        Pixels of a side.

    Raises
    ------
    UsageError
        A cell that is none, or one whose output does not depend on its input.
    """
    if len(cell) != len(_EDGES) or not all(0 <= one < len(CELL) for one in cell):
        raise UsageError(f"a cell of NAS-Bench-201 is six numbers from 0 to {len(CELL) - 1}; {list(cell)} came.")
    drawn = _Drawing()
    value = drawn.unit(0, "conv", out=channels)
    for stage, width in enumerate((channels, 2 * channels, 4 * channels)):
        if stage:
            value = _reduction(drawn, value, width)
        for _ in range(cells):
            value = _cell(drawn, value, cell)
    _head(drawn, drawn.add("relu", drawn.add("batchnorm", value)), classes=10)
    digits = "".join(map(str, cell))
    return layers.network(f"nasbench-{digits}-{channels}x{cells}-{size}", drawn.layers, (3, size, size))


def cells(count: int, seed: int = 0) -> list[Workload]:
    """Random networks of NAS-Bench-201, no two of one cell and size."""
    generator = np.random.default_rng([seed, 1])
    names: dict[str, Workload] = {}
    while len(names) < count:
        cell = generator.integers(0, len(CELL), len(_EDGES)).tolist()
        if not _connected(cell):
            continue
        about = {"channels": int(generator.choice([8, 16, 24])), "cells": int(generator.integers(1, 4))}
        found = nasbench201(cell, **about, size=int(generator.choice([32, 48, 64])))
        names[found.name] = found
    return list(names.values())


def stacks(count: int, seed: int = 0) -> list[Workload]:
    """Random stacks of blocks, as many of each of the families of `BLOCKS`, of random widths, depths and sizes."""
    kinds = list(BLOCKS)
    found = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        found.append(_stack(kind, number, np.random.default_rng([seed, 2, number])))
    return found


def zoo(count: int, seed: int = 0) -> list[Workload]:
    """Networks of timm at random sizes; first each network once."""
    generator = np.random.default_rng([seed, 3])
    fixed = [name for name in TIMM if name.endswith("_224")]
    once = [(name, None if name in fixed else int(generator.choice(_SIZES))) for name in generator.permutation(TIMM)]
    rest = [(name, size) for name, size in product(TIMM, _SIZES) if name not in fixed and (name, size) not in once]
    order = [*once, *(rest[at] for at in generator.permutation(len(rest)))]
    return [timm.model(str(name), img_size=size) for name, size in islice(order, count)]


class _Drawing:
    """Layers as they are drawn up; each method gives the place of the value that it made."""

    def __init__(self) -> None:
        self.layers: Layers = []

    def add(self, op: str, *takes: int, **arguments: Any) -> int:
        self.layers.append({"op": op, "takes": list(takes), **arguments})
        return len(self.layers)

    def unit(self, value: int, op: str, act: str = "", **arguments: Any) -> int:
        """A convolution with its BatchNorm and, where one is named, an activation."""
        value = self.add("batchnorm", self.add(op, value, **arguments))
        return self.add(act, value) if act else value


def _connected(cell: Sequence[int]) -> bool:
    """Whether the output of a cell depends on its input."""
    reached = {0}
    for (start, end), one in zip(_EDGES, cell, strict=True):
        if CELL[one] != "none" and start in reached:
            reached.add(end)
    return 3 in reached


def _cell(drawn: _Drawing, value: int, cell: Sequence[int]) -> int:
    made: dict[int, list[int]] = {0: [value]}
    for node in (1, 2, 3):
        for (start, end), one in zip(_EDGES, cell, strict=True):
            if end == node and CELL[one] != "none" and start in made:
                made.setdefault(node, []).append(_edge(drawn, _sum(drawn, made, start), CELL[one]))
    if 3 not in made:
        raise UsageError(f"the output of cell {list(cell)} does not depend on its input.")
    return _sum(drawn, made, 3)


def _sum(drawn: _Drawing, made: dict[int, list[int]], node: int) -> int:
    """The sum of what comes in at a node, made once."""
    if len(made[node]) > 1:
        made[node] = [drawn.add("add", *made[node])]
    return made[node][0]


def _edge(drawn: _Drawing, value: int, kind: str) -> int:
    if kind == "skip_connect":
        return value
    if kind == "avg_pool_3x3":
        return drawn.add("avgpool", value, kernel=3)
    return drawn.unit(drawn.add("relu", value), "conv", kernel=3 if kind.endswith("3x3") else 1)


def _reduction(drawn: _Drawing, value: int, width: int) -> int:
    """The residual block between two stages: half the size, twice the channels."""
    left = drawn.unit(drawn.add("relu", value), "conv", out=width, stride=2)
    left = drawn.unit(drawn.add("relu", left), "conv", out=width)
    right = drawn.add("conv", drawn.add("avgpool", value, kernel=2, stride=2), out=width, kernel=1)
    return drawn.add("add", left, right)


def _head(drawn: _Drawing, value: int, classes: int = 100) -> int:
    return drawn.add("linear", drawn.add("mean", value), out=classes)


def _plain(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    return drawn.unit(value, "conv", act=_activation(chance), out=width, kernel=_odd(chance))


def _residual(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    act = _activation(chance)
    left = drawn.unit(drawn.unit(value, "conv", act, out=width), "conv", out=width, kernel=_odd(chance))
    right = drawn.unit(value, "conv", out=width, kernel=1)
    return drawn.add(act, drawn.add("add", left, right))


def _bottleneck(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    inner = max(8, 8 * (width // int(chance.choice([16, 32]))))
    groups = int(chance.choice([1, 1, 2, 4, 8]))
    left = drawn.unit(value, "conv", "relu", out=inner, kernel=1)
    left = drawn.unit(left, "conv", "relu", out=inner, groups=groups)
    left = drawn.unit(left, "conv", out=width, kernel=1)
    right = drawn.unit(value, "conv", out=width, kernel=1)
    return drawn.add("relu", drawn.add("add", left, right))


def _inverted(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    act = str(chance.choice(["relu6", "hardswish", "silu"]))
    inner = width * int(chance.choice([2, 3, 4, 6]))
    found = drawn.unit(value, "conv", act, out=inner, kernel=1)
    found = drawn.unit(found, "conv", act, groups=0, kernel=_odd(chance))
    if chance.random() < 0.5:
        found = _squeezed(drawn, found, inner)
    return drawn.unit(found, "conv", out=width, kernel=1)


def _squeezed(drawn: _Drawing, value: int, width: int) -> int:
    """Squeeze and excitation: channels weighed by what their means say."""
    means = drawn.add("mean", value, keep=True)
    small = drawn.add("relu", drawn.add("conv", means, out=max(8, width // 4), kernel=1, bias=True))
    gate = drawn.add("hardsigmoid", drawn.add("conv", small, out=width, kernel=1, bias=True))
    return drawn.add("mul", value, gate)


def _dense(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    grown = drawn.unit(value, "conv", "relu", out=max(8, width // 2), kernel=_odd(chance))
    return drawn.unit(drawn.add("concat", value, grown), "conv", "relu", out=width, kernel=1)


def _inception(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    part = max(8, width // 4)
    ones = drawn.unit(value, "conv", "relu", out=part, kernel=1)
    threes = drawn.unit(drawn.unit(value, "conv", "relu", out=part, kernel=1), "conv", "relu", out=part)
    fives = drawn.unit(drawn.unit(value, "conv", "relu", out=part, kernel=1), "conv", "relu", out=part, kernel=5)
    pooled = drawn.add(str(chance.choice(["maxpool", "avgpool"])), value, kernel=3)
    pooled = drawn.unit(pooled, "conv", "relu", out=part, kernel=1)
    return drawn.add("concat", ones, threes, fives, pooled)


def _branched(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:  # noqa: ARG001
    """RepVGG as it is trained: a 3x3, a 1x1, and their sum."""
    three, one = drawn.unit(value, "conv", out=width), drawn.unit(value, "conv", out=width, kernel=1)
    return drawn.add("relu", drawn.add("add", three, one))


def _tokens(drawn: _Drawing, value: int, width: int, chance: np.random.Generator) -> int:
    heads = int(chance.choice([2, 4, 8]))
    value = drawn.add("add", value, drawn.add("attention", drawn.add("layernorm", value), heads=heads))
    inner = drawn.add("linear", drawn.add("layernorm", value), out=width * int(chance.choice([2, 4])))
    return drawn.add("add", value, drawn.add("linear", drawn.add("gelu", inner), out=width))


BLOCKS: dict[str, Callable[[_Drawing, int, int, np.random.Generator], int]] = {
    "plain": _plain,
    "residual": _residual,
    "bottleneck": _bottleneck,
    "inverted": _inverted,
    "dense": _dense,
    "inception": _inception,
    "branched": _branched,
    "tokens": _tokens,
}
"""By family, what draws one block."""


def _stack(kind: str, number: int, chance: np.random.Generator) -> Workload:
    drawn = _Drawing()
    size, depth = int(chance.choice([32, 48, 64, 96, 128])), int(chance.integers(1, 9))
    width = 8 * int(chance.integers(2, 17))
    if kind == "tokens":
        patch = int(chance.choice([8, 16]))
        value = drawn.add("tokens", drawn.add("conv", 0, out=width, kernel=patch, stride=patch, bias=True))
        for _ in range(depth):
            value = _tokens(drawn, value, width, chance)
        drawn.add("linear", drawn.add("mean", drawn.add("layernorm", value)), out=100)
    else:
        value = drawn.unit(0, "conv", "relu", out=width, stride=int(chance.choice([1, 2])))
        for place in range(depth):
            value = BLOCKS[kind](drawn, value, width, chance)
            if place + 1 < depth and place % 3 == 1:
                value = drawn.add("maxpool", value, kernel=3, stride=2)
                width = min(256, 2 * width) if kind != "inception" else width
        _head(drawn, value)
    return layers.network(f"{kind}-{number:04d}", drawn.layers, (3, size, size))


def _activation(chance: np.random.Generator) -> str:
    return str(chance.choice(["relu", "relu", "relu6", "silu", "hardswish", "gelu"]))


def _odd(chance: np.random.Generator) -> int:
    return int(chance.choice([1, 3, 3, 3, 5]))


def everything(count: int, seed: int = 0) -> Iterator[Workload]:
    """About as many of each sort: a third cells, a third stacks, and a third of timm."""
    part = -(-count // 3)
    yield from islice((one for sort in (cells, stacks, zoo) for one in sort(part, seed)), count)
