"""Networks that a list of layers describes, each with what it takes: for networks that a program draws up.

>>> from ngbkit.workloads import layers
>>> stem = {"op": "conv", "out": 8, "stride": 2}
>>> layers.network("tiny", [stem, {"op": "relu"}, {"op": "mean"}, {"op": "linear", "out": 10}], (3, 32, 32)).source
'layers'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Factors, Network, Source, TensorSpec, Workload
from ngbkit.workloads.randomise import randomise, run, seeded

if TYPE_CHECKING:
    import torch

Layer = Mapping[str, Any]
"""``op``, one of `OPERATORS`; ``takes``, the places of the values that it takes, where 0 is the input and 1 what the
first layer gave (default: what the layer before gave); and the arguments of its operator."""

Shape = Sequence[int]


def network(name: str, layers: Iterable[Layer], shape: Shape) -> Workload:
    """A network of these layers; what the last one gives is the output.

    Parameters
    ----------
    name
        Its label.
    layers
        In order.
    shape
        Of one sample: ``(3, 64, 64)``, or ``(tokens, width)``.

    Raises
    ------
    WorkloadError
        There is no layer; one takes what comes later, or an argument that its operator does not have.
    UnknownNameError
        There is no such operator.
    """
    listed = [dict(layer) for layer in layers]
    if not listed:
        raise WorkloadError(f"{name} has no layers; give at least one, such as {{'op': 'relu'}}.")
    for place, layer in enumerate(listed):
        _check(place, layer)
    spec = {"layers": listed, "shape": [int(side) for side in shape]}
    return Workload(name=name, source="layers", spec=spec)


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a list of layers varies no factor
    """The network, its weights drawn from the option `seed`."""
    seed, shape = options.get_options()["seed"], tuple(workload.spec["shape"])
    inputs = [TensorSpec(name="input", shape=shape)]
    with seeded(seed):
        module = _assembled(workload.spec["layers"], shape).eval()
    randomise(module, seed, lambda: run(module, feeds.draw(inputs, {}, 2, seed)))
    return Network(inputs=inputs, module=module)


def parse(text: str) -> Workload | None:  # noqa: ARG001  the protocol's
    """None: no word names a list of layers."""
    return None


def complete(prefix: str) -> Iterator[str]:  # noqa: ARG001  the protocol's
    """Nothing: no word names a list of layers."""
    return iter(())


SOURCE = Source(
    name="layers",
    summary="networks that a list of layers describes",
    build=build,
    parse=parse,
    complete=complete,
)


def _check(place: int, layer: Layer) -> None:
    if layer.get("op") not in OPERATORS:
        raise UnknownNameError(f"operator of layer {place + 1}", str(layer.get("op")), OPERATORS)
    _, arguments = OPERATORS[layer["op"]]
    for name in layer:
        if name not in ("op", "takes", *arguments):
            raise WorkloadError(
                f"layer {place + 1} is a {layer['op']}, which takes {', '.join(arguments) or 'no arguments'}; it came "
                f"with {name!r}."
            )
    for taken in layer.get("takes", ()):
        if not isinstance(taken, int) or not 0 <= taken <= place:
            raise WorkloadError(
                f"layer {place + 1} takes the value {taken!r}; valid are 0, which is the input, to {place}, what the "
                "layer before it gave."
            )


def _assembled(layers: Sequence[Layer], shape: Shape) -> torch.nn.Module:
    """The module; each layer is made when it is known what shape comes in."""
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
                values.append(step(*(values[at] for at in takes)))
            return values[-1]

    module = Layers()
    values = [torch.zeros(2, *shape)]
    with torch.no_grad():
        for place, layer in enumerate(layers):
            make, _ = OPERATORS[layer["op"]]
            takes = tuple(layer.get("takes", (place,)))
            taken = [values[at] for at in takes]
            about = {name: value for name, value in layer.items() if name not in ("op", "takes")}
            try:
                step = make(taken[0].shape, **about).eval()
                values.append(step(*taken))
            except (RuntimeError, ValueError, TypeError, IndexError) as error:
                shapes = " and ".join("×".join(map(str, one.shape[1:])) for one in taken)
                line = str(error).partition("\n")[0]
                raise WorkloadError(f"layer {place + 1}, a {layer['op']} of {shapes}, does not fit: {line}") from error
            module.steps.append(step)
            module.takes.append(takes)
    return module


def _conv(
    shape: Shape, out: int | None = None, kernel: int = 3, stride: int = 1, groups: int = 1, bias: bool = False
) -> torch.nn.Module:
    """`groups` 0 is one for each channel, as many as come in; so are the channels that go out, unless told."""
    from torch import nn

    channels = shape[1]
    return nn.Conv2d(
        channels, out or channels, kernel, stride=stride, padding=kernel // 2, groups=groups or channels, bias=bias
    )


def _pool(kind: str) -> Callable[..., torch.nn.Module]:
    def make(shape: Shape, kernel: int = 3, stride: int = 1) -> torch.nn.Module:  # noqa: ARG001
        from torch import nn

        if kind == "max":
            return nn.MaxPool2d(kernel, stride, (kernel - 1) // 2)
        return nn.AvgPool2d(kernel, stride, (kernel - 1) // 2, count_include_pad=False)

    return make


def _module(make: Callable[[Any, Shape], torch.nn.Module]) -> Callable[..., torch.nn.Module]:
    """One of `torch.nn` that follows from the shape alone."""

    def made(shape: Shape) -> torch.nn.Module:
        from torch import nn

        return make(nn, shape)

    return made


def _activation(name: str) -> Callable[..., torch.nn.Module]:
    """One of `torch.nn` that works by element."""

    def made(shape: Shape) -> torch.nn.Module:  # noqa: ARG001  every maker is told
        from torch import nn

        found: torch.nn.Module = getattr(nn, name)()
        return found

    return made


def _linear(shape: Shape, out: int, bias: bool = True) -> torch.nn.Module:
    from torch import nn

    return nn.Linear(shape[-1], out, bias=bias)


def _attention(shape: Shape, heads: int = 4) -> torch.nn.Module:
    """Of tokens among themselves, with its projections."""
    from torch import nn

    class Attention(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            if width % heads:
                raise ValueError(f"{heads} heads do not divide a width of {width}")
            self.projected, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            batch, count, width = tokens.shape
            parts = self.projected(tokens).reshape(batch, count, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
            found: torch.Tensor = self.out(attended.transpose(1, 2).reshape(batch, count, width))
            return found

    return Attention(shape[-1])


def _function(make: Callable[..., Callable[..., torch.Tensor]]) -> Callable[..., torch.nn.Module]:
    """A function of values as a module without weights."""

    def made(shape: Shape, **arguments: Any) -> torch.nn.Module:  # noqa: ARG001  every maker is told
        from torch import nn

        function = make(**arguments)

        class Step(nn.Module):
            def forward(self, *values: torch.Tensor) -> torch.Tensor:
                return function(*values)

        return Step()

    return made


def _add() -> Callable[..., torch.Tensor]:
    return lambda *values: sum(values[1:], start=values[0])


def _mul() -> Callable[..., torch.Tensor]:
    return lambda one, other: one * other


def _concat(axis: int = 1) -> Callable[..., torch.Tensor]:
    import torch

    return lambda *values: torch.cat(values, dim=axis)


def _mean(keep: bool = False) -> Callable[..., torch.Tensor]:
    return lambda value: value.mean((2, 3), keepdim=keep) if value.ndim == 4 else value.mean(1, keepdim=keep)


def _tokens() -> Callable[..., torch.Tensor]:
    return lambda value: value.flatten(2).transpose(1, 2)


def _slice(start: int = 0, stop: int | None = None) -> Callable[..., torch.Tensor]:
    return lambda value: value[:, start:stop]


OPERATORS: Mapping[str, tuple[Callable[..., torch.nn.Module], tuple[str, ...]]] = {
    "conv": (_conv, ("out", "kernel", "stride", "groups", "bias")),
    "linear": (_linear, ("out", "bias")),
    "attention": (_attention, ("heads",)),
    "batchnorm": (_module(lambda nn, shape: nn.BatchNorm2d(shape[1])), ()),
    "layernorm": (_module(lambda nn, shape: nn.LayerNorm(shape[-1])), ()),
    **{
        name: (_activation(of), ())
        for name, of in (
            *(("relu", "ReLU"), ("relu6", "ReLU6"), ("gelu", "GELU"), ("silu", "SiLU"), ("hardswish", "Hardswish")),
            *(("sigmoid", "Sigmoid"), ("hardsigmoid", "Hardsigmoid"), ("tanh", "Tanh"), ("identity", "Identity")),
        )
    },
    "maxpool": (_pool("max"), ("kernel", "stride")),
    "avgpool": (_pool("average"), ("kernel", "stride")),
    "mean": (_function(_mean), ("keep",)),
    "tokens": (_function(_tokens), ()),
    "slice": (_function(_slice), ("start", "stop")),
    "add": (_function(_add), ()),
    "mul": (_function(_mul), ()),
    "concat": (_function(_concat), ("axis",)),
}
"""By name: what makes the module from the shape of its first value (with the batch), and its arguments."""
