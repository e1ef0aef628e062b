"""Networks whose values are no usual tensors are rewritten, or refused in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import odd_networks
import pytest

from ngbkit.errors import UnsupportedError, UsageError
from ngbkit.predict import Graph, optimizer
from ngbkit.predict.optimizer import Rule, operations, proof
from ngbkit.predict.optimizer.beam_search import compute_ratio, search
from ngbkit.predict.optimizer.editing import load_model, open_model


@pytest.mark.parametrize("name", sorted({*odd_networks.NETWORKS} - {"map-output"}))
def test_every_network_is_searched(name: str, tmp_path: Path) -> None:
    """The original is among the candidates, also where its cost is 0 and where its nodes are not sorted."""
    candidates = search(open_model(load_model(odd_networks.write(name, tmp_path))), operations)

    assert 1 == sum(not candidate.steps for candidate in candidates)


def test_rewritings_of_a_network_without_operations_are_compared(tmp_path: Path) -> None:
    """Two costs of 0 are equal."""
    drop = Rule(
        name="drop-relu",
        summary="",
        find=lambda graph: ((node,) for node in list(graph) if node.op_type == "Relu"),
        rewrite=lambda edit, nodes: edit.replace(nodes[0].outputs[0], nodes[0].inputs[0]),
    )
    candidates = search(open_model(load_model(odd_networks.write("moving", tmp_path))), operations, [drop])

    assert 2 == len(candidates)
    assert (1.0, math.inf, 0.5) == (compute_ratio(0, 0), compute_ratio(1, 0), compute_ratio(1, 2))


def test_a_map_is_refused_with_its_remedy(tmp_path: Path) -> None:
    """No library of rewritings represents one."""
    path = odd_networks.write("map-output", tmp_path)

    with pytest.raises(UnsupportedError, match=r"cannot be rewritten: one of its values is a map\. .*'zipmap': False"):
        load_model(path)


def test_a_network_whose_input_is_a_size_is_optimised_with_its_values(tmp_path: Path) -> None:
    """The user's values feed the proof and the measurement of a network."""
    path = odd_networks.write("sized", tmp_path)
    double = Rule(
        name="double-relu",
        summary="",
        find=lambda graph: ((node,) for node in list(graph) if node.op_type == "Relu"),
        rewrite=lambda edit, nodes: edit.replace(
            nodes[0].outputs[0], edit.compute(nodes[0], "Relu", edit.compute(nodes[0], "Relu", nodes[0].inputs[0]))
        ),
    )
    optimised = optimizer.optimize(
        str(path), cost=prefer_more, rules=[double], top=1, repeats=3, inputs={"sizes": np.array([1, 8])}
    )

    assert [0.0] == [attempt.error for attempt in optimised.tried]
    assert ["ok", "ok"] == optimised.data["status"].values.ravel().tolist()
    with pytest.raises(UsageError, match=r"sized: input sizes is .* --inputs FILE"):
        optimizer.optimize(str(path), cost=prefer_more)


def prefer_more(graphs: Sequence[Graph]) -> np.ndarray:
    """Prefer the network with the most operators."""
    return np.array([-float(len(graph.operators)) for graph in graphs])


def test_texts_are_proved_equal(tmp_path: Path) -> None:
    """Two texts are the same, or as far apart as can be."""
    path = odd_networks.write("text-labels", tmp_path)

    assert 0.0 == proof.measure_error(path, path)
    assert math.inf == proof.compare_outputs([np.array(["ant"], object)], [np.array(["bee"], object)])


@pytest.mark.parametrize(
    ("actual", "expected", "error"),
    [
        ([[np.ones(2)]], [[np.ones(2)]], 0.0),
        ([[np.ones(2)]], [[np.ones(2), np.ones(2)]], math.inf),
        ([np.ones(2)], [[np.ones(2)]], math.inf),
        ([None], [None], 0.0),
        ([None], [np.ones(2)], math.inf),
        ([np.ones(3)], [np.ones(2)], math.inf),
        ([np.array([1, np.nan])], [np.ones(2)], math.inf),
        ([np.ones(2)], [np.array([1, np.nan])], math.inf),
        ([np.array([1, np.nan])], [np.array([1, np.nan])], 0.0),
        ([np.array([1, np.inf])], [np.array([1, -np.inf])], math.inf),
        ([np.full(2, np.nan)], [np.full(2, np.nan)], math.inf),
        ([np.ones((0, 4))], [np.ones((0, 4))], 0.0),
    ],
)
def test_outputs_of_every_kind_are_compared(actual: list[object], expected: list[object], error: float) -> None:
    """Sequences by their elements, optionals by their presence; an output without a finite value proves nothing."""
    assert error == proof.compare_outputs(actual, expected)
