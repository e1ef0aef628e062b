"""NNCF's post-training quantisation to int8 for OpenVINO.

https://docs.openvino.ai/latest/openvino-workflow/model-optimization-guide/quantizing-models-post-training.html
"""

from __future__ import annotations

from typing import Any

from ngbkit.compilers.profiles import source_graph
from ngbkit.compilers.profiles.openvino import attach_source
from ngbkit.compilers.quantiser import Quantisation, Quantiser
from ngbkit.compilers.quantisers import architecture


def _quantise(quantisation: Quantisation) -> dict[str, Any]:
    """Write the network as OpenVINO's IR with int8 operators, in the range of the samples."""
    from ngbkit.compilers.openvino_runtime import get_core, openvino  # isort: skip  # without its telemetry
    import nncf

    samples = [dict(batch) for batch in quantisation.batches]
    kind = architecture.read_onnx(quantisation.require_source())
    # Its documentation: transformers need a scheme of their own, and asymmetric activations another preset.
    preset = "mixed" if kind.is_transformer or kind.smooth_activations else "performance"
    model = nncf.quantize(
        get_core().read_model(str(quantisation.require_source())),
        nncf.Dataset(samples),
        subset_size=len(samples),
        model_type=nncf.ModelType.TRANSFORMER if kind.is_transformer else None,
        preset=nncf.QuantizationPreset(preset),
    )
    attach_source(model, source_graph.read(quantisation.require_source()))
    openvino.save_model(model, str(quantisation.target), compress_to_fp16=False)
    return {**kind.to_settings(), "preset": preset, "subset_size": len(samples)}


NNCF = Quantiser(
    name="nncf",
    summary="NNCF's post-training quantisation of OpenVINO's own graph, in the range of the calibration samples",
    precision="int8",
    compilers=("openvino",),
    packages=("nncf", "openvino"),
    install="pip install 'ngbkit[nncf]'",
    quantise=_quantise,
    suffix=".xml",
)
