"""Every compiler of this machine's processor, in one real sweep."""

from __future__ import annotations

import pytest
from torch import nn

import ngbkit
from ngbkit.cluster import engines

COMPILERS = [
    "identity",
    "torchscript",
    "inductor",
    "aotinductor",
    "onnxruntime",
    "openvino",
    "tvm",
    "iree",
    "executorch",
]


@pytest.mark.guard
def test_each_is_measured_and_computes_what_the_network_does() -> None:
    """A module is compiled, checked against its reference and timed by all compilers of a processor."""
    import torch

    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    network = ngbkit.from_module("mlp", module, torch.ones(2, 16))
    data = ngbkit.Sweep(network, COMPILERS, [2], repeats=3, threads=1).run()
    engines.close()

    chosen = data.sel(batch_size=2).squeeze()
    assert ["ok"] * len(COMPILERS) == chosen["status"].values.tolist(), chosen["error"].values.tolist()
    assert bool((chosen["latency"] > 0).all())
