"""NNCF's post-training quantisation to int8 for OpenVINO.

https://docs.openvino.ai/latest/openvino-workflow/model-optimization-guide/quantizing-models-post-training.html
"""

from __future__ import annotations

from typing import Any

from ngbkit.compilers.profiles import source_graph
from ngbkit.compilers.profiles.openvino import attach_source
from ngbkit.compilers.quantiser import Quantisation, Quantiser


def _quantise(quantisation: Quantisation) -> dict[str, Any]:
    """Write the network as OpenVINO's IR with int8 operators, in the range of the samples."""
    from ngbkit.compilers.openvino_runtime import get_core, openvino  # isort: skip  # without its telemetry
    import nncf

    samples = [dict(batch) for batch in quantisation.batches]
    model = nncf.quantize(
        get_core().read_model(str(quantisation.require_source())), nncf.Dataset(samples), subset_size=len(samples)
    )
    attach_source(model, source_graph.read(quantisation.require_source()))
    openvino.save_model(model, str(quantisation.target), compress_to_fp16=False)
    return {"preset": "performance", "subset_size": len(samples)}


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
