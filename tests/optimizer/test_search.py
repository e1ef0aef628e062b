"""The search finds what its cost model prefers, through steps that pay only together, and keeps what came."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxgraphs import Builder

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.optimizer import costs
from ngbkit.optimizer.editing import open_model
from ngbkit.optimizer.rules import rule
from ngbkit.optimizer.search import Beam, search
from ngbkit.predictor import Graph, Predictor
from ngbkit.predictor.kinds import kind


def model(build: Builder) -> ir.Model:
    found = build.model(build.nodes[-1].output[0])
    found.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return open_model(ir.from_proto(onnx.shape_inference.infer_shapes(found)))


@pytest.fixture
def branches() -> ir.Model:
    """A 3x3 and a 1x1 of one value, three times in a row, each summed."""
    build, value = Builder(), "x"
    for _ in range(3):
        value = build.add("Relu", build.add("Add", build.conv(value, 8, 3), build.conv(value, 8, 1)))
    return model(build)


def calls(several: Sequence[Graph]) -> np.ndarray:
    """A runtime whose operators all take the same."""
    return np.array([float(len(graph.operators)) for graph in several])


def test_every_place_is_rewritten(branches: ir.Model) -> None:
    """Nine convolutions and sums become three; what came is still among what was found."""
    found = search(branches, calls, [rule("sum-branches")])

    assert 6 == found[0].cost
    assert ["sum-branches"] * 3 == [name for name, _ in found[0].steps]
    assert [12.0] == [one.cost for one in found if not one.steps]
    assert [one.cost for one in found] == sorted(one.cost for one in found)
    assert len(found) == len({one.graph.digest for one in found})


def test_another_runtime_leaves_it(branches: ir.Model) -> None:
    """Where bytes of weights cost and calls do not, nothing of this pays."""

    def weights(several: Sequence[Graph]) -> np.ndarray:
        return np.array([float(graph.weight_bytes + 1) for graph in several])

    found = search(branches, weights, [rule("enlarge-conv"), rule("split-branch")])

    assert () == found[0].steps


def test_a_step_back_is_taken_for_two_ahead() -> None:
    """An enlarged window costs a little by itself, and lets two convolutions be merged."""
    build = Builder()
    build.add("Concat", build.conv("x", 8, 3), build.conv("x", 8, 1), axis=1)

    def by_hand(several: Sequence[Graph]) -> np.ndarray:
        convolutions = [sum(one.kind == "Conv" for one in graph.operators) for graph in several]
        return 100.0 * np.array(convolutions) + np.array([graph.macs / 1e6 for graph in several])

    rules = [rule("enlarge-conv"), rule("merge-convs")]
    assert ["enlarge-conv", "merge-convs"] == [name for name, _ in search(model(build), by_hand, rules)[0].steps]
    assert () == search(model(build), by_hand, rules, Beam(alpha=0.9))[0].steps


def test_it_ends_in_time_and_tells_how_far_it_is(branches: ir.Model) -> None:
    """No seconds are no rewriting; each round is told."""
    told: list[int] = []
    assert 1 == len(search(branches, calls, beam=Beam(seconds=0)))
    search(branches, calls, [rule("sum-branches")], Beam(rounds=2), lambda at, best: told.append(at))

    assert [1, 2] == told


def test_a_cost_that_is_no_number_is_the_last_choice(branches: ir.Model) -> None:
    """What a cost model cannot say is not taken."""

    def partly(several: Sequence[Graph]) -> np.ndarray:
        return np.array([np.nan if len(graph.operators) < 12 else 1.0 for graph in several])

    assert () == search(branches, partly, [rule("sum-branches")])[0].steps


def test_operations_are_a_cost(branches: ir.Model) -> None:
    """The one of those who count FLOPs."""
    found = search(branches, costs.operations, [rule("sum-branches"), rule("enlarge-conv")])

    assert 3 * 8 * 8 * 9 * 256 == found[0].cost


def test_a_predictor_is_a_cost_of_one_of_its_runtimes() -> None:
    """By compiler, and by device where there are several."""
    model = kind("flops")()
    model._prices = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    runtimes = (("cpu", "openvino"), ("cpu", "tvm"), ("orin", "tvm"))
    one = Predictor(model=model, runtimes=runtimes, errors=np.empty((0, 3)))
    graph = Graph(operators=(), edges=(), inputs=(), outputs=(), shared=(), digest="")

    assert [1.0] == costs.predicted(one, "openvino")([graph]).tolist()
    assert [3.0] == costs.predicted(one, "tvm", "orin")([graph]).tolist()
    with pytest.raises(UnknownNameError, match="openvino"):
        costs.predicted(one, "openvin")
    with pytest.raises(UnknownNameError, match="cpu"):
        costs.predicted(one, "openvino", "cp")
    with pytest.raises(UsageError, match="several devices: cpu, orin"):
        costs.predicted(one, "tvm")
