"""Training networks: cells of NAS-Bench-201, stacks of random blocks, and networks of timm at several sizes.

The name of each network starts with its family. The same count and seed give the same networks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, islice, product
from typing import Any

import numpy as np
import torch
from torch import nn

from ngbkit import options
from ngbkit.workloads import timm
from ngbkit.workloads.base import Network, Workload
from ngbkit.workloads.randomise import build_network, seed_generators

Generator = np.random.Generator

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


def generate_cells(count: int, seed: int = 0) -> list[Workload]:
    """Generate random networks of NAS-Bench-201 with distinct cells and sizes."""
    generator = np.random.default_rng([seed, 1])
    workloads: dict[str, Workload] = {}
    while len(workloads) < count:
        cell = generator.integers(0, len(CELL), len(_EDGES)).tolist()
        if not _is_connected(cell):
            continue
        spec: dict[str, Any] = {"channels": int(generator.choice([8, 16, 24])), "cells": int(generator.integers(1, 4))}
        spec |= {"cell": cell, "size": int(generator.choice([32, 48, 64]))}
        name = "nasbench-{}-{channels}x{cells}-{size}".format("".join(map(str, cell)), **spec)
        workloads[name] = Workload(name=name, source="layers", spec=spec)
    return list(workloads.values())


def generate_stacks(count: int, seed: int = 0) -> list[Workload]:
    """Generate random stacks of blocks of random widths, depths and sizes, evenly over the families of `BLOCKS`."""
    workloads = []
    for number, family in zip(range(count), cycle(BLOCKS), strict=False):
        spec = {"family": family, "number": number, "seed": seed}
        workloads.append(Workload(name=f"{family}-{number:04d}", source="layers", spec=spec))
    return workloads


def generate_zoo(count: int, seed: int = 0) -> list[Workload]:
    """Generate networks of timm at random sizes, each network once before any repeats."""
    generator = np.random.default_rng([seed, 3])
    fixed = [name for name in TIMM if name.endswith("_224")]
    once = [(name, None if name in fixed else int(generator.choice(_SIZES))) for name in generator.permutation(TIMM)]
    rest = [(name, size) for name, size in product(TIMM, _SIZES) if name not in fixed and (name, size) not in once]
    order = [*once, *(rest[index] for index in generator.permutation(len(rest)))]
    return [timm.model(str(name), img_size=size) for name, size in islice(order, count)]


def build(spec: Mapping[str, Any]) -> Network:
    """Build a cell or a stack, its weights drawn from the option `seed`."""
    seed = options.get_options()["seed"]
    with seed_generators(seed):
        layers = _build_cells(**spec) if "cell" in spec else _build_stack(**spec)
    return build_network(layers.eval(), tuple(layers.shapes[0][1:]), seed)


class Step(nn.Module):
    """A function of values as a module without weights."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *values: torch.Tensor) -> torch.Tensor:
        return self.function(*values)


class Attention(nn.Module):
    """Self-attention with its projections."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.projected, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        batch, count, width = tokens.shape
        parts = self.projected(tokens).reshape(batch, count, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        output: torch.Tensor = self.out(attended.transpose(1, 2).reshape(batch, count, width))
        return output


class Layers(nn.Module):
    """Layers of earlier values; a value is an index: 0 the input, and then what each method adds and returns."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList()
        self.takes: list[tuple[int, ...]] = []
        self.shapes = [torch.Size((2, *shape))]

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        values = [value]
        for step, takes in zip(self.steps, self.takes, strict=True):
            values.append(step(*(values[index] for index in takes)))
        return values[-1]

    def add(self, step: nn.Module | Callable[..., torch.Tensor], *takes: int) -> int:
        module = step.eval() if isinstance(step, nn.Module) else Step(step)
        with torch.no_grad():
            self.shapes.append(module(*(torch.zeros(self.shapes[index]) for index in takes)).shape)
        self.steps.append(module)
        self.takes.append(takes)
        return len(self.steps)

    def conv(
        self, value: int, out: int = 0, kernel: int = 3, stride: int = 1, groups: int = 1, bias: bool = False
    ) -> int:
        """Add a convolution; `out` and `groups` are as many as there are channels if 0."""
        channels = self.shapes[value][1]
        out, groups, padding = out or channels, groups or channels, kernel // 2
        return self.add(nn.Conv2d(channels, out, kernel, stride, padding, groups=groups, bias=bias), value)

    def unit(self, value: int, act: str = "", **arguments: Any) -> int:
        """Add a convolution with its BatchNorm and an optional activation."""
        value = self.normalise(self.conv(value, **arguments))
        return self.add(ACTIVATIONS[act](), value) if act else value

    def normalise(self, value: int) -> int:
        width = self.shapes[value]
        return self.add(nn.BatchNorm2d(width[1]) if len(width) == 4 else nn.LayerNorm(width[-1]), value)

    def relu(self, value: int) -> int:
        return self.add(nn.ReLU(), value)

    def pool(self, value: int, kind: str, kernel: int = 3, stride: int = 1) -> int:
        padding = (kernel - 1) // 2
        if kind == "maxpool":
            return self.add(nn.MaxPool2d(kernel, stride, padding), value)
        return self.add(nn.AvgPool2d(kernel, stride, padding, count_include_pad=False), value)

    def sum(self, *values: int) -> int:
        return self.add(lambda first, *rest: sum(rest, start=first), *values)

    def concat(self, *values: int) -> int:
        return self.add(lambda *parts: torch.cat(parts, dim=1), *values)

    def linear(self, value: int, out: int) -> int:
        return self.add(nn.Linear(self.shapes[value][-1], out), value)

    def head(self, value: int, classes: int = 100) -> int:
        """Add a classifier of the means over an image, or over tokens."""
        dims = (2, 3) if len(self.shapes[value]) == 4 else (1,)
        return self.linear(self.add(lambda image: image.mean(dims), value), classes)


ACTIVATIONS: Mapping[str, Callable[[], nn.Module]] = {
    **{"relu": nn.ReLU, "relu6": nn.ReLU6, "silu": nn.SiLU},
    **{"hardswish": nn.Hardswish, "gelu": nn.GELU},
}


def _build_cells(cell: Sequence[int], channels: int, cells: int, size: int) -> Layers:
    """Build a network of NAS-Bench-201 with `cells` cells per stage, where the benchmark has five.

    `cell` has six indices in `CELL`, for the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3; `channels` are those of the first
    stage, and the second and the third have twice and four times as many; `size` is a side of the image in pixels.
    """
    layers = Layers(3, size, size)
    value = layers.unit(0, out=channels)
    for stage, width in enumerate((channels, 2 * channels, 4 * channels)):
        if stage:  # a residual block of half the size and twice the channels
            left = layers.unit(layers.relu(value), out=width, stride=2)
            left = layers.unit(layers.relu(left), out=width)
            right = layers.conv(layers.pool(value, "avgpool", 2, 2), out=width, kernel=1)
            value = layers.sum(left, right)
        for _ in range(cells):
            value = _add_cell(layers, value, cell)
    layers.head(layers.relu(layers.normalise(value)), classes=10)
    return layers


def _is_connected(cell: Sequence[int]) -> bool:
    """Return whether the output of a cell depends on its input."""
    reached = {0}
    for (start, end), operation in zip(_EDGES, cell, strict=True):
        if CELL[operation] != "none" and start in reached:
            reached.add(end)
    return 3 in reached


def _add_cell(layers: Layers, value: int, cell: Sequence[int]) -> int:
    values: dict[int, list[int]] = {0: [value]}
    for node in (1, 2, 3):
        for (start, end), operation in zip(_EDGES, cell, strict=True):
            if end == node and CELL[operation] != "none" and start in values:
                source = _add_sum(layers, values, start)
                values.setdefault(node, []).append(_add_edge(layers, source, CELL[operation]))
    return _add_sum(layers, values, 3)


def _add_sum(layers: Layers, values: dict[int, list[int]], node: int) -> int:
    """Add the sum of the inputs of a node, once."""
    if len(values[node]) > 1:
        values[node] = [layers.sum(*values[node])]
    return values[node][0]


def _add_edge(layers: Layers, value: int, kind: str) -> int:
    if kind == "skip_connect":
        return value
    if kind == "avg_pool_3x3":
        return layers.pool(value, "avgpool")
    return layers.unit(layers.relu(value), kernel=3 if kind.endswith("3x3") else 1)


def _add_plain(layers: Layers, value: int, width: int, generator: Generator) -> int:
    return layers.unit(value, _draw_activation(generator), out=width, kernel=_draw_kernel(generator))


def _add_residual(layers: Layers, value: int, width: int, generator: Generator) -> int:
    act = _draw_activation(generator)
    left = layers.unit(layers.unit(value, act, out=width), out=width, kernel=_draw_kernel(generator))
    right = layers.unit(value, out=width, kernel=1)
    return layers.add(ACTIVATIONS[act](), layers.sum(left, right))


def _add_bottleneck(layers: Layers, value: int, width: int, generator: Generator) -> int:
    inner = max(8, 8 * (width // int(generator.choice([16, 32]))))
    groups = int(generator.choice([1, 1, 2, 4, 8]))
    left = layers.unit(value, "relu", out=inner, kernel=1)
    left = layers.unit(left, "relu", out=inner, groups=groups)
    left = layers.unit(left, out=width, kernel=1)
    return layers.relu(layers.sum(left, layers.unit(value, out=width, kernel=1)))


def _add_inverted(layers: Layers, value: int, width: int, generator: Generator) -> int:
    act = str(generator.choice(["relu6", "hardswish", "silu"]))
    inner = width * int(generator.choice([2, 3, 4, 6]))
    value = layers.unit(value, act, out=inner, kernel=1)
    value = layers.unit(value, act, groups=0, kernel=_draw_kernel(generator))
    if generator.random() < 0.5:  # squeeze and excitation: a gate per channel, computed from the channel means
        means = layers.add(lambda image: image.mean((2, 3), keepdim=True), value)
        small = layers.relu(layers.conv(means, out=max(8, inner // 4), kernel=1, bias=True))
        gate = layers.add(nn.Hardsigmoid(), layers.conv(small, out=inner, kernel=1, bias=True))
        value = layers.add(torch.mul, value, gate)
    return layers.unit(value, out=width, kernel=1)


def _add_dense(layers: Layers, value: int, width: int, generator: Generator) -> int:
    grown = layers.unit(value, "relu", out=max(8, width // 2), kernel=_draw_kernel(generator))
    return layers.unit(layers.concat(value, grown), "relu", out=width, kernel=1)


def _add_inception(layers: Layers, value: int, width: int, generator: Generator) -> int:
    part = max(8, width // 4)
    ones = layers.unit(value, "relu", out=part, kernel=1)
    threes = layers.unit(layers.unit(value, "relu", out=part, kernel=1), "relu", out=part)
    fives = layers.unit(layers.unit(value, "relu", out=part, kernel=1), "relu", out=part, kernel=5)
    pooled = layers.pool(value, str(generator.choice(["maxpool", "avgpool"])))
    return layers.concat(ones, threes, fives, layers.unit(pooled, "relu", out=part, kernel=1))


def _add_branched(layers: Layers, value: int, width: int, generator: Generator) -> int:
    """Add a block of RepVGG in its training form: a 3x3, a 1x1, and their sum."""
    return layers.relu(layers.sum(layers.unit(value, out=width), layers.unit(value, out=width, kernel=1)))


def _add_tokens(layers: Layers, value: int, width: int, generator: Generator) -> int:
    attention = Attention(width, int(generator.choice([2, 4, 8])))
    value = layers.sum(value, layers.add(attention, layers.normalise(value)))
    inner = layers.linear(layers.normalise(value), width * int(generator.choice([2, 4])))
    return layers.sum(value, layers.linear(layers.add(nn.GELU(), inner), width))


BLOCKS: dict[str, Callable[[Layers, int, int, Generator], int]] = {
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


def _build_stack(family: str, number: int, seed: int) -> Layers:
    generator = np.random.default_rng([seed, 2, number])
    size, depth = int(generator.choice([32, 48, 64, 96, 128])), int(generator.integers(1, 9))
    width = 8 * int(generator.integers(2, 17))
    layers = Layers(3, size, size)
    if family == "tokens":
        patch = int(generator.choice([8, 16]))
        image = layers.conv(0, out=width, kernel=patch, stride=patch, bias=True)
        value = layers.add(lambda pixels: pixels.flatten(2).transpose(1, 2), image)
        for _ in range(depth):
            value = _add_tokens(layers, value, width, generator)
        value = layers.normalise(value)
    else:
        value = layers.unit(0, "relu", out=width, stride=int(generator.choice([1, 2])))
        for place in range(depth):
            value = BLOCKS[family](layers, value, width, generator)
            if place + 1 < depth and place % 3 == 1:
                value = layers.pool(value, "maxpool", stride=2)
                width = min(256, 2 * width) if family != "inception" else width
    layers.head(value)
    return layers


def _draw_activation(generator: Generator) -> str:
    return str(generator.choice(["relu", "relu", "relu6", "silu", "hardswish", "gelu"]))


def _draw_kernel(generator: Generator) -> int:
    return int(generator.choice([1, 3, 3, 3, 5]))
