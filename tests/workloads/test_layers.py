"""Networks described by a list of layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.workloads import counts, layers
from ngbkit.workloads.base import Workload

BLOCK = [
    {"op": "conv", "out": 16, "stride": 2},
    {"op": "batchnorm"},
    {"op": "relu"},
    {"op": "conv", "groups": 0, "kernel": 5},
    {"op": "add", "takes": [3, 4]},
    {"op": "mean"},
    {"op": "linear", "out": 10},
]


def run(workload: Workload, batch: int = 2) -> torch.Tensor:
    network = layers.build(workload, {})
    with torch.no_grad():
        output: torch.Tensor = network.module(torch.ones(network.inputs[0].bind(batch)))
    return output


def test_a_layer_takes_the_outputs_of_other_layers() -> None:
    """By default that of the previous layer; a sum takes two."""
    sizes = counts.count(layers.build(layers.network("net", BLOCK, (3, 16, 16)), {}))

    assert (2, 10) == tuple(run(layers.network("net", BLOCK, (3, 16, 16))).shape)
    assert 16 * 64 * 27 + 16 * 64 * 25 + 160 == sizes.macs
    assert 16 * 27 + 2 * 16 + 16 * 25 + 170 == sizes.parameters


def test_a_list_is_sent_as_json() -> None:
    """The same list gives the same network, whatever its name."""
    workload = layers.network("net", BLOCK, (3, 16, 16))
    received = Workload.from_json(workload.to_json())

    assert workload.id == received.id == layers.network("other", BLOCK, (3, 16, 16)).id
    assert torch.equal(run(workload), run(received))


@pytest.mark.parametrize("op", layers.OPERATORS)
def test_every_operator_runs(op: str) -> None:
    """On an input of its rank, with its default arguments if it has any."""
    shape = (16, 24) if op in ("attention", "layernorm") else (16, 12, 12)
    arguments = {"linear": {"out": 4}, "conv": {"out": 4}, "add": {"takes": [0, 0]}, "mul": {"takes": [0, 0]}}
    arguments["concat"] = {"takes": [0, 0]}
    output = run(layers.network("net", [{"op": op, **arguments.get(op, {})}], shape))

    assert np.isfinite(output.numpy()).all()


@pytest.mark.parametrize(
    ("description", "error", "message"),
    [
        ([], WorkloadError, "has no layers"),
        ([{"op": "convolution"}], UnknownNameError, "conv"),
        (
            [{"op": "relu", "out": 3}],
            WorkloadError,
            "invalid argument of layer 1, a relu: got 'out'; expected no arguments",
        ),
        (
            [{"op": "relu"}, {"op": "add", "takes": [0, 2]}],
            WorkloadError,
            "invalid `takes` of layer 2: got 2; expected integers from 0",
        ),
    ],
)
def test_an_invalid_list_is_rejected(description: list[dict], error: type[Exception], message: str) -> None:
    """Before the build, with the number of the layer."""
    with pytest.raises(error, match=message):
        layers.network("net", description, (3, 8, 8))


def test_a_layer_with_an_invalid_input_is_rejected() -> None:
    """The error names the layer, the shapes and torch's reason."""
    workload = layers.network("net", [{"op": "mean"}, {"op": "conv", "out": 4}], (3, 8, 8))
    with pytest.raises(WorkloadError, match="invalid layer 2, a conv of 3: "):
        layers.build(workload, {})


def test_no_label_names_a_list() -> None:
    """The command line completes none."""
    assert layers.parse("layers") is None
    assert [] == list(layers.complete(""))
