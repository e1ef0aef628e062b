"""The search finds the cheapest graph, also through steps that pay only together, and includes the original."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import pytest
from onnxgraphs import Builder, build_branches
from rewriting import build_model, count_calls

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predict import Graph, Predictor
from ngbkit.predict.kinds import find_kind
from ngbkit.predict.optimizer import costs
from ngbkit.predict.optimizer.beam_search import Beam, search
from ngbkit.predict.optimizer.rules import rule
from ngbkit.predict.scoring.intervals import Calibration


@pytest.fixture
def branches() -> ir.Model:
    """A 3x3 and a 1x1 of one value, summed, three times in a row."""
    return build_model(build_branches(3))


def test_every_site_is_rewritten(branches: ir.Model) -> None:
    """Three pairs of convolutions with their sums become three convolutions; the original is among the candidates."""
    candidates = search(branches, count_calls, [rule("sum-branches")])

    assert 6 == candidates[0].cost
    assert ["sum-branches"] * 3 == [name for name, _ in candidates[0].steps]
    assert [12.0] == [candidate.cost for candidate in candidates if not candidate.steps]
    assert [candidate.cost for candidate in candidates] == sorted(candidate.cost for candidate in candidates)
    assert len(candidates) == len({candidate.graph.digest for candidate in candidates})


def test_all_sites_are_one_move(branches: ir.Model) -> None:
    """One round rewrites them all, where one site after the other would need three."""
    candidates = search(branches, count_calls, [rule("sum-branches")], Beam(rounds=1, tries=1))

    assert [6.0, 12.0] == [candidate.cost for candidate in candidates]
    assert ["sum-branches"] * 3 == [name for name, _ in candidates[0].steps]


def test_sites_that_share_a_node_are_not_one_move() -> None:
    """A move rewrites one of several sites that share a node."""
    build = Builder()
    build.add("Concat", *[build.conv("x", 8) for _ in range(3)], axis=1)
    model = build_model(build)
    sites = rule("merge-convs").sites(model)
    rewritten, used = rule("merge-convs").apply_all(model, sites)

    assert 4 == len(sites)
    assert sites[:1] == used
    assert 2 == sum(node.op_type == "Conv" for node in rewritten.graph)


def test_another_runtime_leaves_it(branches: ir.Model) -> None:
    """The search rewrites nothing for a runtime where only the bytes of weights cost."""

    def count_bytes(graphs: Sequence[Graph]) -> np.ndarray:
        return np.array([float(graph.weight_bytes + 1) for graph in graphs])

    candidates = search(branches, count_bytes, [rule("conv-to-matmul"), rule("push-transpose")])

    assert () == candidates[0].steps


def test_a_step_back_is_taken_for_two_ahead() -> None:
    """Two matrix products between transpositions cost more, until the transpositions between them cancel out."""
    build = Builder()
    build.add("Relu", build.conv(build.conv("x", 8, 1), 8, 1))

    def compute_cost(graphs: Sequence[Graph]) -> np.ndarray:
        convolutions = [sum(operator.kind == "Conv" for operator in graph.operators) for graph in graphs]
        return 100 + count_calls(graphs) + 1.5 * np.array(convolutions)

    rules = [rule("conv-to-matmul"), rule("merge-transposes")]
    best, careful = (search(build_model(build), compute_cost, rules, Beam(alpha=alpha))[0] for alpha in (1.05, 0.9))

    assert ["conv-to-matmul", "conv-to-matmul", "merge-transposes"] == [name for name, _ in best.steps]
    assert () == careful.steps


def test_it_ends_in_time_and_reports_progress(branches: ir.Model) -> None:
    """The search stops at its time limit and reports each round."""
    rounds: list[int] = []
    assert 1 == len(search(branches, count_calls, beam=Beam(seconds=0)))
    search(branches, count_calls, [rule("sum-branches")], Beam(rounds=2), lambda number, best: rounds.append(number))

    assert [1, 2] == rounds


def test_a_cost_that_is_no_number_is_the_last_choice(branches: ir.Model) -> None:
    """A candidate without a cost is never preferred."""

    def compute_partial_cost(graphs: Sequence[Graph]) -> np.ndarray:
        return np.array([np.nan if len(graph.operators) < 12 else 1.0 for graph in graphs])

    assert () == search(branches, compute_partial_cost, [rule("sum-branches")])[0].steps


def test_operations_are_a_cost(branches: ir.Model) -> None:
    """The search minimises FLOPs."""
    candidates = search(branches, costs.operations, [rule("sum-branches"), rule("conv-to-matmul")])

    assert 3 * 8 * 8 * 9 * 256 == candidates[0].cost


def test_a_predictor_is_a_cost_of_one_of_its_runtimes() -> None:
    """The runtime is chosen by compiler, and by device if there are several."""
    flops = find_kind("flops")()
    flops._prices = np.array([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]])
    runtimes = (("cpu", "openvino"), ("cpu", "tvm"), ("orin", "tvm"))
    nothing = Calibration(models=(), errors=np.empty((0, 3)), fold=np.empty(0, int), network=np.empty(0, int))
    fitted = Predictor(model=flops, runtimes=runtimes, calibration=nothing)
    graph = Graph(operators=(), edges=(), inputs=(), outputs=(), shared=(), digest="")

    assert [1.0] == costs.predicted(fitted, "openvino")([graph]).tolist()
    assert [3.0] == costs.predicted(fitted, "tvm", "orin")([graph]).tolist()
    with pytest.raises(UnknownNameError, match="openvino"):
        costs.predicted(fitted, "openvin")
    with pytest.raises(UnknownNameError, match="cpu"):
        costs.predicted(fitted, "openvino", "cp")
    with pytest.raises(UsageError, match="expected device= one of cpu, orin"):
        costs.predicted(fitted, "tvm")
