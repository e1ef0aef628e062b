"""Networks that a list of layers describes."""

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


def called(workload: Workload, batch: int = 2) -> torch.Tensor:
    network = layers.build(workload, {})
    with torch.no_grad():
        found: torch.Tensor = network.module(torch.ones(batch, *network.inputs[0].shape))
    return found


def test_layers_take_what_they_say() -> None:
    """By default what the layer before gave; a sum of two takes both."""
    found = layers.build(layers.network("net", BLOCK, (3, 16, 16)), {})
    sizes = counts.count(found)

    assert (2, 10) == tuple(called(layers.network("net", BLOCK, (3, 16, 16))).shape)
    assert 16 * 64 * 27 + 16 * 64 * 25 + 160 == sizes.macs
    assert 16 * 27 + 2 * 16 + 16 * 25 + 170 == sizes.parameters


def test_a_list_travels_as_json() -> None:
    """The same list gives the same network, whatever it is called."""
    one = layers.network("net", BLOCK, (3, 16, 16))
    again = Workload.from_json(one.to_json())

    assert one.id == again.id == layers.network("other", BLOCK, (3, 16, 16)).id
    assert torch.equal(called(one), called(again))


@pytest.mark.parametrize("op", layers.OPERATORS)
def test_every_operator_runs(op: str) -> None:
    """On what it is made for, with its defaults where it has any."""
    shape = (16, 24) if op in ("attention", "layernorm") else (16, 12, 12)
    about = {"linear": {"out": 4}, "conv": {"out": 4}, "add": {"takes": [0, 0]}, "mul": {"takes": [0, 0]}}
    about["concat"] = {"takes": [0, 0]}
    found = called(layers.network("net", [{"op": op, **about.get(op, {})}], shape))

    assert np.isfinite(found.numpy()).all()


@pytest.mark.parametrize(
    ("listed", "error", "said"),
    [
        ([], WorkloadError, "has no layers"),
        ([{"op": "convolution"}], UnknownNameError, "conv"),
        ([{"op": "relu", "out": 3}], WorkloadError, "takes no arguments; it came with 'out'"),
        ([{"op": "relu"}, {"op": "add", "takes": [0, 2]}], WorkloadError, "layer 2 takes the value 2; valid are 0"),
    ],
)
def test_a_list_that_is_wrong_is_refused(listed: list[dict], error: type[Exception], said: str) -> None:
    """Before anything is built, with the layer's number."""
    with pytest.raises(error, match=said):
        layers.network("net", listed, (3, 8, 8))


def test_layers_that_do_not_fit_say_where() -> None:
    """The layer, the shapes that came, and torch's own word."""
    workload = layers.network("net", [{"op": "mean"}, {"op": "conv", "out": 4}], (3, 8, 8))
    with pytest.raises(WorkloadError, match=r"layer 2, a conv of 3, does not fit"):
        layers.build(workload, {})


def test_no_word_names_a_list() -> None:
    """The command line offers none."""
    assert layers.parse("layers") is None
    assert [] == list(layers.complete(""))
