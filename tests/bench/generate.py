"""Generates training networks: cells of NAS-Bench-201, stacks of random blocks, and networks of timm at several sizes.

The name of each network starts with its family. The same count and seed give the same networks. Engines build them by
the plugin in `layers`, which this module puts on their path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from plugin_path import put_on_path

from ngbkit.workloads import timm
from ngbkit.workloads.base import Workload

put_on_path(Path(__file__).parent / "layers")
import ngbkit_layers as layers  # noqa: E402  of the folder that was put on the path

Layers = list[dict[str, Any]]

CELL = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
"""The operations of an edge of a cell: Dong and Yang, NAS-Bench-201 (ICLR 2020), table 1."""

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


def build_nasbench201(cell: Sequence[int], *, channels: int = 16, cells: int = 1, size: int = 32) -> Workload:
    """Build a network of NAS-Bench-201 with `cells` cells per stage, where the benchmark has five.

    `cell` has six indices in `CELL`, for the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3; `channels` are those of the first
    stage, and the second and the third have twice and four times as many; `size` is a side of the image in pixels.
    """
    builder = _Builder()
    value = builder.unit(0, "conv", out=channels)
    for stage, width in enumerate((channels, 2 * channels, 4 * channels)):
        if stage:
            value = _add_reduction(builder, value, width)
        for _ in range(cells):
            value = _add_cell(builder, value, cell)
    _add_head(builder, builder.add("relu", builder.add("batchnorm", value)), classes=10)
    digits = "".join(map(str, cell))
    return layers.network(f"nasbench-{digits}-{channels}x{cells}-{size}", builder.layers, (3, size, size))


def generate_cells(count: int, seed: int = 0) -> list[Workload]:
    """Generate random networks of NAS-Bench-201 with distinct cells and sizes."""
    generator = np.random.default_rng([seed, 1])
    names: dict[str, Workload] = {}
    while len(names) < count:
        cell = generator.integers(0, len(CELL), len(_EDGES)).tolist()
        if not _is_connected(cell):
            continue
        sizes = {"channels": int(generator.choice([8, 16, 24])), "cells": int(generator.integers(1, 4))}
        workload = build_nasbench201(cell, **sizes, size=int(generator.choice([32, 48, 64])))
        names[workload.name] = workload
    return list(names.values())


def generate_stacks(count: int, seed: int = 0) -> list[Workload]:
    """Generate random stacks of blocks of random widths, depths and sizes, evenly over the families of `BLOCKS`."""
    kinds = list(BLOCKS)
    workloads = []
    for number in range(count):
        kind = kinds[number % len(kinds)]
        workloads.append(_build_stack(kind, number, np.random.default_rng([seed, 2, number])))
    return workloads


def generate_zoo(count: int, seed: int = 0) -> list[Workload]:
    """Generate networks of timm at random sizes, each network once before any repeats."""
    generator = np.random.default_rng([seed, 3])
    fixed = [name for name in TIMM if name.endswith("_224")]
    once = [(name, None if name in fixed else int(generator.choice(_SIZES))) for name in generator.permutation(TIMM)]
    rest = [(name, size) for name, size in product(TIMM, _SIZES) if name not in fixed and (name, size) not in once]
    order = [*once, *(rest[index] for index in generator.permutation(len(rest)))]
    return [timm.model(str(name), img_size=size) for name, size in islice(order, count)]


class _Builder:
    """Builds a list of layers; each method returns the index of the value that it adds."""

    def __init__(self) -> None:
        self.layers: Layers = []

    def add(self, op: str, *takes: int, **arguments: Any) -> int:
        self.layers.append({"op": op, "takes": list(takes), **arguments})
        return len(self.layers)

    def unit(self, value: int, op: str, act: str = "", **arguments: Any) -> int:
        """Add a convolution with its BatchNorm and an optional activation."""
        value = self.add("batchnorm", self.add(op, value, **arguments))
        return self.add(act, value) if act else value


def _is_connected(cell: Sequence[int]) -> bool:
    """Return whether the output of a cell depends on its input."""
    reached = {0}
    for (start, end), operation in zip(_EDGES, cell, strict=True):
        if CELL[operation] != "none" and start in reached:
            reached.add(end)
    return 3 in reached


def _add_cell(builder: _Builder, value: int, cell: Sequence[int]) -> int:
    values: dict[int, list[int]] = {0: [value]}
    for node in (1, 2, 3):
        for (start, end), operation in zip(_EDGES, cell, strict=True):
            if end == node and CELL[operation] != "none" and start in values:
                values.setdefault(node, []).append(
                    _add_edge(builder, _add_sum(builder, values, start), CELL[operation])
                )
    return _add_sum(builder, values, 3)


def _add_sum(builder: _Builder, values: dict[int, list[int]], node: int) -> int:
    """Add the sum of the inputs of a node, once."""
    if len(values[node]) > 1:
        values[node] = [builder.add("add", *values[node])]
    return values[node][0]


def _add_edge(builder: _Builder, value: int, kind: str) -> int:
    if kind == "skip_connect":
        return value
    if kind == "avg_pool_3x3":
        return builder.add("avgpool", value, kernel=3)
    return builder.unit(builder.add("relu", value), "conv", kernel=3 if kind.endswith("3x3") else 1)


def _add_reduction(builder: _Builder, value: int, width: int) -> int:
    """Add the residual block between two stages: half the size, twice the channels."""
    left = builder.unit(builder.add("relu", value), "conv", out=width, stride=2)
    left = builder.unit(builder.add("relu", left), "conv", out=width)
    right = builder.add("conv", builder.add("avgpool", value, kernel=2, stride=2), out=width, kernel=1)
    return builder.add("add", left, right)


def _add_head(builder: _Builder, value: int, classes: int = 100) -> int:
    return builder.add("linear", builder.add("mean", value), out=classes)


def _add_plain(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    return builder.unit(value, "conv", act=_draw_activation(generator), out=width, kernel=_draw_kernel(generator))


def _add_residual(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    act = _draw_activation(generator)
    left = builder.unit(builder.unit(value, "conv", act, out=width), "conv", out=width, kernel=_draw_kernel(generator))
    right = builder.unit(value, "conv", out=width, kernel=1)
    return builder.add(act, builder.add("add", left, right))


def _add_bottleneck(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    inner = max(8, 8 * (width // int(generator.choice([16, 32]))))
    groups = int(generator.choice([1, 1, 2, 4, 8]))
    left = builder.unit(value, "conv", "relu", out=inner, kernel=1)
    left = builder.unit(left, "conv", "relu", out=inner, groups=groups)
    left = builder.unit(left, "conv", out=width, kernel=1)
    right = builder.unit(value, "conv", out=width, kernel=1)
    return builder.add("relu", builder.add("add", left, right))


def _add_inverted(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    act = str(generator.choice(["relu6", "hardswish", "silu"]))
    inner = width * int(generator.choice([2, 3, 4, 6]))
    value = builder.unit(value, "conv", act, out=inner, kernel=1)
    value = builder.unit(value, "conv", act, groups=0, kernel=_draw_kernel(generator))
    if generator.random() < 0.5:
        value = _add_squeeze_excitation(builder, value, inner)
    return builder.unit(value, "conv", out=width, kernel=1)


def _add_squeeze_excitation(builder: _Builder, value: int, width: int) -> int:
    """Add squeeze and excitation: a gate per channel, computed from the channel means."""
    means = builder.add("mean", value, keep=True)
    small = builder.add("relu", builder.add("conv", means, out=max(8, width // 4), kernel=1, bias=True))
    gate = builder.add("hardsigmoid", builder.add("conv", small, out=width, kernel=1, bias=True))
    return builder.add("mul", value, gate)


def _add_dense(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    grown = builder.unit(value, "conv", "relu", out=max(8, width // 2), kernel=_draw_kernel(generator))
    return builder.unit(builder.add("concat", value, grown), "conv", "relu", out=width, kernel=1)


def _add_inception(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    part = max(8, width // 4)
    ones = builder.unit(value, "conv", "relu", out=part, kernel=1)
    threes = builder.unit(builder.unit(value, "conv", "relu", out=part, kernel=1), "conv", "relu", out=part)
    fives = builder.unit(builder.unit(value, "conv", "relu", out=part, kernel=1), "conv", "relu", out=part, kernel=5)
    pooled = builder.add(str(generator.choice(["maxpool", "avgpool"])), value, kernel=3)
    pooled = builder.unit(pooled, "conv", "relu", out=part, kernel=1)
    return builder.add("concat", ones, threes, fives, pooled)


def _add_branched(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    """Add a block of RepVGG in its training form: a 3x3, a 1x1, and their sum."""
    three, pointwise = builder.unit(value, "conv", out=width), builder.unit(value, "conv", out=width, kernel=1)
    return builder.add("relu", builder.add("add", three, pointwise))


def _add_tokens(builder: _Builder, value: int, width: int, generator: np.random.Generator) -> int:
    heads = int(generator.choice([2, 4, 8]))
    value = builder.add("add", value, builder.add("attention", builder.add("layernorm", value), heads=heads))
    inner = builder.add("linear", builder.add("layernorm", value), out=width * int(generator.choice([2, 4])))
    return builder.add("add", value, builder.add("linear", builder.add("gelu", inner), out=width))


BLOCKS: dict[str, Callable[[_Builder, int, int, np.random.Generator], int]] = {
    "plain": _add_plain,
    "residual": _add_residual,
    "bottleneck": _add_bottleneck,
    "inverted": _add_inverted,
    "dense": _add_dense,
    "inception": _add_inception,
    "branched": _add_branched,
    "tokens": _add_tokens,
}
"""By family, the function that adds one block."""


def _build_stack(kind: str, number: int, generator: np.random.Generator) -> Workload:
    builder = _Builder()
    size, depth = int(generator.choice([32, 48, 64, 96, 128])), int(generator.integers(1, 9))
    width = 8 * int(generator.integers(2, 17))
    if kind == "tokens":
        patch = int(generator.choice([8, 16]))
        value = builder.add("tokens", builder.add("conv", 0, out=width, kernel=patch, stride=patch, bias=True))
        for _ in range(depth):
            value = _add_tokens(builder, value, width, generator)
        builder.add("linear", builder.add("mean", builder.add("layernorm", value)), out=100)
    else:
        value = builder.unit(0, "conv", "relu", out=width, stride=int(generator.choice([1, 2])))
        for place in range(depth):
            value = BLOCKS[kind](builder, value, width, generator)
            if place + 1 < depth and place % 3 == 1:
                value = builder.add("maxpool", value, kernel=3, stride=2)
                width = min(256, 2 * width) if kind != "inception" else width
        _add_head(builder, value)
    return layers.network(f"{kind}-{number:04d}", builder.layers, (3, size, size))


def _draw_activation(generator: np.random.Generator) -> str:
    return str(generator.choice(["relu", "relu", "relu6", "silu", "hardswish", "gelu"]))


def _draw_kernel(generator: np.random.Generator) -> int:
    return int(generator.choice([1, 3, 3, 3, 5]))
