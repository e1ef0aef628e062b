"""The graphs of networks whose values are no usual tensors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import odd_networks
import pytest
from learned import graph
from onnx import helper, numpy_helper
from onnxgraphs import Builder

from ngbkit.errors import WorkloadError
from ngbkit.predict import Graph, read
from ngbkit.predict.features import encode_graph
from ngbkit.predict.graphs import Tensor


@pytest.mark.parametrize("name", odd_networks.NETWORKS)
def test_every_network_has_a_graph(name: str, tmp_path: Path) -> None:
    """The graph of every odd network has finite features and survives JSON."""
    network = read(odd_networks.write(name, tmp_path), 2)
    features = encode_graph(network)

    assert network == Graph.from_json(json.loads(json.dumps(network.to_json())))
    assert len(network.operators) > 0
    assert np.isfinite(features).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text-labels", Tensor(shape=(2,), dtype="string", bytes=0)),
        ("map-output", Tensor(shape=None, dtype="", bytes=0)),
        ("sequence-output", Tensor(shape=None, dtype="float", bytes=0)),
        ("optional-output", Tensor(shape=(2, 4), dtype="float", bytes=32)),
        ("bfloat16", Tensor(shape=(2, 4), dtype="bfloat16", bytes=16)),
    ],
)
def test_what_has_no_size_has_no_bytes(name: str, expected: Tensor, tmp_path: Path) -> None:
    """Texts, maps and sequences have a kind where ONNX tells it, and count as nothing."""
    (output,) = read(odd_networks.write(name, tmp_path), 2).outputs

    assert expected == output


def test_the_first_cause_is_told(tmp_path: Path) -> None:
    """A library that reads graphs wraps it in errors that name only its own functions."""
    values = numpy_helper.from_array(np.ones(2, np.float32), "values")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 5]), "places"), [4, 4])
    builder = Builder(4, 4)
    builder.nodes.append(helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    model = builder.model(builder.add("MatMul", "x", "w"))

    with pytest.raises(WorkloadError, match=r"no readable graph: NotImplementedError: Sparse tensors"):
        graph(model, tmp_path)
