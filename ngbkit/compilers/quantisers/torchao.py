"""torchao's quantisation of linear layers, for PyTorch's eager mode.

https://docs.pytorch.org/ao/stable/
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.quantiser import Quantisation, Quantiser
from ngbkit.errors import UnsupportedError
from ngbkit.workloads.export import to_tensor

if TYPE_CHECKING:
    import torch

_INSTALL = "pip install 'ngbkit[torchao]'"


def _quantise_weights(quantisation: Quantisation) -> dict[str, Any]:
    """Write the state of the module with int8 weights, which are multiplied in f32."""
    from torchao.quantization import Int8WeightOnlyConfig

    return _write_state(quantisation, lambda _: Int8WeightOnlyConfig()) | {"computes": "f32"}


def _quantise_dynamic(quantisation: Quantisation) -> dict[str, Any]:
    """Write the state of the module with int8 weights, whose activations are quantised by row in each call."""
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig

    return _write_state(quantisation, lambda _: Int8DynamicActivationInt8WeightConfig())


def _quantise_static(quantisation: Quantisation) -> dict[str, Any]:
    """Write the state of the module with int8 weights by row, and activations in the range of the samples."""
    import torch
    from torchao.quantization import Int8StaticActivationInt8WeightConfig, PerRow, PerTensor

    ranges = _measure_ranges(quantisation)

    def configure(name: str) -> Any:
        scale = (ranges[name] / 127).clamp(min=torch.finfo(torch.float32).eps)
        return Int8StaticActivationInt8WeightConfig(act_quant_scale=scale, granularity=[PerTensor(), PerRow()])

    return _write_state(quantisation, configure, ranges) | {"calibrate_method": "MinMax"}


def _measure_ranges(quantisation: Quantisation) -> dict[str, torch.Tensor]:
    """Measure the largest magnitude of the input of each linear layer over the samples; of those that are called."""
    import torch

    ranges: dict[str, torch.Tensor] = {}

    def observe(name: str, layer: torch.nn.Module, arguments: tuple[torch.Tensor, ...]) -> None:
        del layer
        values = arguments[0].detach().abs().float()
        largest = values.amax(dim=tuple(range(values.ndim)), keepdim=True)  # of as many dimensions as the input
        ranges[name] = torch.maximum(ranges[name], largest) if name in ranges else largest

    layers = _find_linear(quantisation.require_module())
    hooks = [layer.register_forward_pre_hook(partial(observe, name)) for name, layer in layers.items()]
    with torch.no_grad():
        for batch in quantisation.batches:
            quantisation.require_module()(*map(to_tensor, batch.values()))
    for hook in hooks:
        hook.remove()
    return ranges


def _write_state(
    quantisation: Quantisation, configure: Callable[[str], Any], names: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Quantise the linear layers, and write the state of the module; torchao quantises no convolution of a CPU."""
    import torch
    from torchao.quantization import quantize_

    module = quantisation.require_module()
    layers = {name: layer for name, layer in _find_linear(module).items() if names is None or name in names}
    if not layers:
        raise UnsupportedError(
            "the network has no linear layer, and torchao's eager mode quantises nothing else; expected one with "
            'nn.Linear. Use onnxruntime{"precision":"int8"} or inductor{"precision":"int8"}.'
        )
    for name, layer in layers.items():
        quantize_(layer, configure(name), filter_fn=lambda candidate, _, layer=layer: candidate is layer)
    torch.save(module.state_dict(), quantisation.target)
    others = sum(hasattr(layer, "weight") for layer in module.modules()) - len(layers)
    return {"linear_layers": len(layers), "other_layers": others, **({"computes": "f32+int8"} if others else {})}


def _find_linear(module: torch.nn.Module) -> dict[str, torch.nn.Linear]:
    """Find the linear layers that torchao quantises: nn.MultiheadAttention reads the weights of its own itself."""
    import torch

    return {name: layer for name, layer in module.named_modules() if type(layer) is torch.nn.Linear}


def _load_state(path: Path, module: torch.nn.Module) -> torch.nn.Module:
    import torch
    import torchao.quantization  # noqa: F401  registers the tensors that a file may have

    module.load_state_dict(torch.load(path, weights_only=True), assign=True)
    return module


STATIC = Quantiser(
    name="torchao-static",
    summary="torchao's linear layers of int8 weights and activations, in the range of the calibration samples",
    precision="int8",
    compilers=("identity",),
    packages=("torchao", "torch"),
    install=_INSTALL,
    quantise=_quantise_static,
    suffix=".pt",
    load=_load_state,
)
DYNAMIC = Quantiser(
    name="torchao-dynamic",
    summary="torchao's linear layers of int8 weights, whose activations are quantised in each call",
    precision="int8-dynamic",
    compilers=("identity",),
    packages=("torchao", "torch"),
    install=_INSTALL,
    quantise=_quantise_dynamic,
    calibrates=False,
    suffix=".pt",
    load=_load_state,
)
WEIGHTS = Quantiser(
    name="torchao-weights",
    summary="torchao's linear layers of int8 weights that are multiplied in f32",
    precision="int8-weights",
    compilers=("identity",),
    packages=("torchao", "torch"),
    install=_INSTALL,
    quantise=_quantise_weights,
    calibrates=False,
    suffix=".pt",
    load=_load_state,
)
