"""Other tools run in processes of their own; their models are proved and measured beside ngbkit's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import build_branches, write
from state import share_state_dir
from watching import find_processes

from ngbkit import registry
from ngbkit.errors import UnknownNameError, UnsupportedError
from ngbkit.predict import Graph, optimizer
from ngbkit.predict.optimizer import proof
from ngbkit.predict.optimizer.optimise import simplify_all
from ngbkit.predict.optimizer.simplifiers import Simplifier, resolve, simplify

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)

FAULTS = {
    "absent": r"ngbkit-no-such-package not installed; install with: pip install ngbkit-no-such-package",
    "crashing": r"crashed: SIGSEGV",
    "failing": r"failed: ValueError: no such operator",
    "lazy": r"failed: it wrote no file",
}


@pytest.fixture
def network(tmp_path: Path) -> Path:
    model = build_branches(1, 16, 24).model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1
    return write(model, tmp_path / "branches.onnx")


def load(name: str) -> Simplifier:
    return registry.load(registry.SIMPLIFIERS, name)


def ignore_graphs(graphs: Sequence[Graph]) -> np.ndarray:
    return np.ones(len(graphs))


@pytest.mark.parametrize("name", FAULTS)
def test_a_tool_that_goes_wrong_is_a_reason(name: str, network: Path, tmp_path: Path) -> None:
    """A crash, an error, a missing package and a missing file: the caller goes on."""
    problem = simplify(load(name), network, tmp_path / "out.onnx")

    assert FAULTS[name] == problem


def test_a_tool_that_hangs_is_stopped(network: Path, tmp_path: Path, state_dir: Path) -> None:
    """A simplifier that hangs is killed at its time limit, with its process."""
    problem = simplify(load("hanging"), network, tmp_path / "out.onnx", limit_s=0.2)

    assert "stopped: it took longer than 0.2 s" == problem
    assert [] == find_processes(state_dir, "hanging")


def test_a_model_with_other_results_is_not_used(network: Path, tmp_path: Path) -> None:
    """The proof rejects a simplified model with other results."""
    copied, wrong = simplify_all([load("copying"), load("wrong")], network, tmp_path)

    assert (0.0, "") == (copied.error, copied.problem)
    assert copied.file is not None
    assert wrong.error > proof.LIMIT
    assert wrong.file is None
    assert wrong.problem.startswith("wrong result: error ")


@pytest.mark.guard
def test_tools_are_measured_beside_the_original(network: Path) -> None:
    """Each is a row with an interval or a reason, in the same run; the original is kept, whatever they gain."""
    names = ["copying", "wrong", "crashing"]
    optimised = optimizer.optimize(str(network), cost=ignore_graphs, simplifiers=names, repeats=6)
    outcomes = {tool.name: tool.outcome for tool in optimised.simplified}

    assert names == list(outcomes)
    assert 0 < outcomes["copying"].low <= outcomes["copying"].speedup <= outcomes["copying"].high
    assert "crashed: SIGSEGV" == outcomes["crashing"].problem
    assert outcomes["wrong"].problem
    assert ((), None) == (optimised.tried, optimised.chosen)
    assert 2 == optimised.data.sizes["compiler"]


def test_all_are_resolved_and_a_missing_one_has_a_hint() -> None:
    """A name that is not installed is an error; `all` leaves it to its row."""
    assert {*FAULTS, "copying", "hanging", "wrong"} <= {tool.name for tool in resolve(["all"])}
    assert ["copying"] == [tool.name for tool in resolve(["copying", "copying"])]
    with pytest.raises(UnsupportedError, match=r"got absent; ngbkit-no-such-package not installed; install with: pip"):
        resolve(["absent"])
    with pytest.raises(UnknownNameError, match="copying"):
        resolve(["copyin"])
