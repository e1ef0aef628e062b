"""PyTorch 2 export quantisation, which writes a program that Inductor or ExecuTorch's XNNPACK runs in int8.

https://docs.pytorch.org/ao/stable/pt2e_quantization/ and
https://docs.pytorch.org/executorch/stable/backends/xnnpack/xnnpack-quantization.html
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.quantiser import Quantisation, Quantiser, is_arm, needs_reduced_range
from ngbkit.compilers.quantisers import architecture
from ngbkit.errors import UnsupportedError
from ngbkit.workloads.export import to_tensor

if TYPE_CHECKING:
    import torch


def _quantise_for_inductor(quantisation: Quantisation, *, is_dynamic: bool) -> dict[str, Any]:
    """Write a program whose operators Inductor replaces by those of oneDNN in int8."""
    if is_arm():
        from torchao.quantization.pt2e.quantizer import arm_inductor_quantizer as arm

        quantizer: Any = arm.ArmInductorQuantizer()
        quantizer.set_global(arm.get_default_arm_inductor_quantization_config(is_dynamic=is_dynamic))
        return _write_program(quantisation, lambda _: quantizer)
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    reduce_range = needs_reduced_range()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(
        x86.get_default_x86_inductor_quantization_config(is_dynamic=is_dynamic, reduce_range=reduce_range)
    )
    return {**_write_program(quantisation, lambda _: quantizer), "reduce_range": reduce_range}


def _quantise_for_xnnpack(quantisation: Quantisation, *, is_dynamic: bool) -> dict[str, Any]:
    """Write a program whose operators XNNPACK runs in int8, with weights by channel.

    Sums and products of a transformer stay in f32: one range for all of a residual stream loses its small values.
    """
    import torch
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer as xnnpack

    config = xnnpack.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=is_dynamic)

    def choose(kind: architecture.Architecture) -> Any:
        quantizer = xnnpack.XNNPACKQuantizer()
        if not kind.is_transformer:
            return quantizer.set_global(config)
        for operator in (torch.ops.aten.linear.default, *xnnpack.CONV_TARGETS):
            quantizer.set_operator_type(operator, config)
        # It makes each number that is added a float, also one that is added to an index, for sums that it quantises.
        quantizer.transform_for_annotation = lambda model: model
        return quantizer

    return _write_program(quantisation, choose)


def _write_program(quantisation: Quantisation, choose: Callable[[architecture.Architecture], Any]) -> dict[str, Any]:
    """Capture, calibrate and convert the module with the quantizer for its kind, and write it as a program."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    inputs: tuple[torch.Tensor, ...] = ()
    with torch.no_grad():
        for batch in quantisation.batches:
            arrays = tuple(map(to_tensor, batch.values()))
            if not inputs:
                inputs = arrays
                captured = torch.export.export(quantisation.require_module(), inputs).module()
                kind = architecture.read_program(captured.graph)
                quantizer = choose(kind)
                prepared = prepare_pt2e(captured, quantizer)
            prepared(*arrays)
        converted = convert_pt2e(prepared)
        if not any("quantize_per" in str(node.target) for node in converted.graph.nodes):
            raise UnsupportedError("the network has no operator that this quantiser knows: nothing is quantised")
        _remove_unused(converted)
        torch.export.save(torch.export.export(converted, inputs), quantisation.target)
    return {"quantizer": type(quantizer).__name__, "model_type": kind.to_settings()["model_type"]}


def _remove_unused(converted: torch.fx.GraphModule) -> None:
    """Remove the weights that were quantised, which would be a part of the file."""
    names = {str(node.target) for node in converted.graph.nodes if node.op == "get_attr"}
    for name in [name for name, _ in (*converted.named_parameters(), *converted.named_buffers()) if name not in names]:
        parent, _, attribute = name.rpartition(".")
        delattr(converted.get_submodule(parent), attribute)


def _load_program(path: Path, module: torch.nn.Module) -> torch.nn.Module:
    """Return the module of a program; torchao registers its operators, and how Inductor lowers them."""
    import torch
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer  # noqa: F401

    del module
    return torch.export.load(path).module()


INDUCTOR = Quantiser(
    name="pt2e-inductor",
    summary="PyTorch 2 export quantisation for Inductor on this kind of processor, in the range of the samples",
    precision="int8",
    compilers=("inductor",),
    packages=("torchao", "torch"),
    install="pip install 'ngbkit[torchao]'",
    quantise=partial(_quantise_for_inductor, is_dynamic=False),
    suffix=".pt2",
    load=_load_program,
)
INDUCTOR_DYNAMIC = Quantiser(
    name="pt2e-inductor-dynamic",
    summary="PyTorch 2 export quantisation for Inductor of linear layers, with ranges of each call",
    precision="int8-dynamic",
    compilers=("inductor",),
    packages=("torchao", "torch"),
    install="pip install 'ngbkit[torchao]'",
    quantise=partial(_quantise_for_inductor, is_dynamic=True),
    calibrates=False,
    suffix=".pt2",
    load=_load_program,
)
XNNPACK = Quantiser(
    name="xnnpack",
    summary="ExecuTorch's XNNPACK quantiser: weights by channel, in the range of the calibration samples",
    precision="int8",
    compilers=("executorch",),
    packages=("executorch", "torchao", "torch"),
    install="pip install 'ngbkit[executorch]'",
    quantise=partial(_quantise_for_xnnpack, is_dynamic=False),
    suffix=".pt2",
    load=_load_program,
)
XNNPACK_DYNAMIC = Quantiser(
    name="xnnpack-dynamic",
    summary="ExecuTorch's XNNPACK quantiser of linear layers: weights by channel, ranges of each call",
    precision="int8-dynamic",
    compilers=("executorch",),
    packages=("executorch", "torchao", "torch"),
    install="pip install 'ngbkit[executorch]'",
    quantise=partial(_quantise_for_xnnpack, is_dynamic=True),
    calibrates=False,
    suffix=".pt2",
    load=_load_program,
)
