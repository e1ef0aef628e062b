"""A plugin of ngbkit: networks described by a list of layers, which engines build by its entry point.

>>> import ngbkit_layers
>>> stem = {"op": "conv", "out": 8, "stride": 2}
>>> ngbkit_layers.network("tiny", [stem, {"op": "relu"}, {"op": "mean"}], (3, 32, 32)).source
'layers'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.randomise import build_network, seed_generators

if TYPE_CHECKING:
    import torch

Layer = Mapping[str, Any]
"""``op``, one of `OPERATORS`; ``takes``, the indices of its input values, where 0 is the network's input and 1 the
output of the first layer (default: the output of the previous layer); and the arguments of its operator."""

Shape = Sequence[int]


def network(name: str, layers: Iterable[Layer], shape: Shape) -> Workload:
    """Describe a network of these layers, for samples of a shape such as ``(3, 64, 64)``; the last gives the output."""
    spec = {"layers": [dict(layer) for layer in layers], "shape": [int(side) for side in shape]}
    return Workload(name=name, source="layers", spec=spec)


def build(workload: Workload, factors: Factors) -> Network:
    """Build the network, its weights drawn from the option `seed`."""
    seed, shape = options.get_options()["seed"], tuple(workload.spec["shape"])
    with seed_generators(seed):
        module = _assemble(workload.spec["layers"], shape).eval()
    return build_network(module, shape, seed)


SOURCE = Source(
    name="layers",
    summary="networks described by a list of layers",
    build=build,
    # No word names a list of layers.
    parse=lambda text: None,
    complete=lambda prefix: iter(()),
)


def _assemble(layers: Sequence[Layer], shape: Shape) -> torch.nn.Module:
    """Build the module, each layer for the shape of its first input value."""
    import torch
    from torch import nn

    class Layers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.ModuleList()
            self.takes: list[tuple[int, ...]] = []

        def forward(self, value: torch.Tensor) -> torch.Tensor:
            values = [value]
            for step, takes in zip(self.steps, self.takes, strict=True):
                values.append(step(*(values[index] for index in takes)))
            return values[-1]

    module = Layers()
    values = [torch.zeros(2, *shape)]
    with torch.no_grad():
        for index, layer in enumerate(layers):
            takes = tuple(layer.get("takes", (index,)))
            operands = [values[source] for source in takes]
            arguments = {name: value for name, value in layer.items() if name not in ("op", "takes")}
            step = OPERATORS[layer["op"]](operands[0].shape, **arguments).eval()
            values.append(step(*operands))
            module.steps.append(step)
            module.takes.append(takes)
    return module


def _build_conv(
    shape: Shape, out: int | None = None, kernel: int = 3, stride: int = 1, groups: int = 1, bias: bool = False
) -> torch.nn.Module:
    """Build a convolution; by default `out` is the number of input channels, and so is `groups` if 0."""
    from torch import nn

    channels = shape[1]
    return nn.Conv2d(
        channels, out or channels, kernel, stride=stride, padding=kernel // 2, groups=groups or channels, bias=bias
    )


def _build_max_pool(shape: Shape, kernel: int = 3, stride: int = 1) -> torch.nn.Module:
    from torch import nn

    return nn.MaxPool2d(kernel, stride, (kernel - 1) // 2)


def _build_average_pool(shape: Shape, kernel: int = 3, stride: int = 1) -> torch.nn.Module:
    from torch import nn

    return nn.AvgPool2d(kernel, stride, (kernel - 1) // 2, count_include_pad=False)


def _build_linear(shape: Shape, out: int, bias: bool = True) -> torch.nn.Module:
    from torch import nn

    return nn.Linear(shape[-1], out, bias=bias)


def _build_attention(shape: Shape, heads: int = 4) -> torch.nn.Module:
    """Build self-attention with its projections."""
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.projected, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            batch, count, width = tokens.shape
            parts = self.projected(tokens).reshape(batch, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
            output: torch.Tensor = self.out(attended.transpose(1, 2).reshape(batch, count, width))
            return output

    return Attention(shape[-1])


def _defer(build_module: Callable[[Any, Shape], torch.nn.Module]) -> Callable[..., torch.nn.Module]:
    """Wrap ``build_module(torch.nn, shape)``, so that torch is imported only when a network is built."""

    def build_from_shape(shape: Shape) -> torch.nn.Module:
        from torch import nn

        return build_module(nn, shape)

    return build_from_shape


def _defer_activation(name: str) -> Callable[..., torch.nn.Module]:
    return _defer(lambda nn, shape: getattr(nn, name)())


def _wrap(function: Callable[..., torch.Tensor]) -> Callable[..., torch.nn.Module]:
    """Wrap a function of values as the builder of a module without weights."""

    def build_step(shape: Shape, **arguments: Any) -> torch.nn.Module:
        from torch import nn

        class Step(nn.Module):
            def forward(self, *values: torch.Tensor) -> torch.Tensor:
                return function(*values, **arguments)

        return Step()

    return build_step


def _concat(*values: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.cat(values, dim=1)


def _mean(value: torch.Tensor, keep: bool = False) -> torch.Tensor:
    return value.mean((2, 3), keepdim=keep) if value.ndim == 4 else value.mean(1, keepdim=keep)


ACTIVATIONS = ("ReLU", "ReLU6", "GELU", "SiLU", "Hardswish", "Hardsigmoid")
OPERATORS: Mapping[str, Callable[..., torch.nn.Module]] = {
    "conv": _build_conv,
    "linear": _build_linear,
    "attention": _build_attention,
    "batchnorm": _defer(lambda nn, shape: nn.BatchNorm2d(shape[1])),
    "layernorm": _defer(lambda nn, shape: nn.LayerNorm(shape[-1])),
    **{name.lower(): _defer_activation(name) for name in ACTIVATIONS},
    "maxpool": _build_max_pool,
    "avgpool": _build_average_pool,
    "mean": _wrap(_mean),
    "tokens": _wrap(lambda value: value.flatten(2).transpose(1, 2)),
    "add": _wrap(lambda *values: sum(values[1:], start=values[0])),
    "mul": _wrap(lambda left, right: left * right),
    "concat": _wrap(_concat),
}
"""By name: the builder of a module from the shape of its first value (with the batch)."""
