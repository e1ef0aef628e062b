"""The sweep that the tests of forecasts ask for: one network with two factors, which nobody builds."""

from __future__ import annotations

from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import Workload

COMPILERS = ["identity", "onnxruntime", "openvino", "torchscript"]


def sweep(**more) -> Sweep:
    network = Workload(name="net", source="timm", spec={"name": "net"}, takes=("width", "depth"))
    factors = {"width": [16, 32, 64], "depth": [1, 2, 4]}
    return Sweep(network, **{"compilers": COMPILERS, "batch_sizes": [1, 4, 16], "factors": factors, **more})


def facts_of(trial: Trial) -> dict[str, float]:
    factors = dict(trial.factors)
    return {"macs": 1e6 * factors["width"] ** 2 * factors["depth"]}
