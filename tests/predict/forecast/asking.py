"""The sweep of the forecast tests: one network with two factors, which is never built."""

from __future__ import annotations

from ngbkit.api import Sweep
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import Workload

COMPILERS = ["identity", "onnxruntime", "openvino", "torchscript"]


def build_sweep(**settings) -> Sweep:
    network = Workload(name="net", source="timm", spec={"name": "net"}, takes=("width", "depth"))
    factors = {"width": [16, 32, 64], "depth": [1, 2, 4]}
    return Sweep(network, **{"compilers": COMPILERS, "batch_sizes": [1, 4, 16], "factors": factors, **settings})


def facts_of(trial: Trial) -> dict[str, float]:
    factors = dict(trial.factors)
    return {"macs": 1e6 * factors["width"] ** 2 * factors["depth"]}
