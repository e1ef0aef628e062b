"""A network is rewritten for a runtime, proved and measured, and the original stays where nothing is surely faster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxgraphs import Builder, residual, write
from state import share_state_dir

from ngbkit import optimizer
from ngbkit.errors import UsageError
from ngbkit.optimizer import optimise, proof, variants
from ngbkit.optimizer.rules import Rule, rule
from ngbkit.optimizer.variants import Outcome
from ngbkit.predictor import Graph, read

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    """Blocks of a 3x3, a 1x1 and their sum, as a file with an open batch."""
    build, value = Builder(16, 24), "x"
    for _ in range(3):
        value = build.add("Relu", build.add("Add", build.conv(value, 16, 3), build.conv(value, 16, 1)))
    return write(build.model(value), tmp_path / "branches.onnx")


def calls(several: Sequence[Graph]) -> np.ndarray:
    return np.array([float(len(graph.operators)) for graph in several])


def test_a_network_is_rewritten_proved_and_measured(branches: Path, tmp_path: Path) -> None:
    """Original and candidates take turns; each is equivalent, and what is kept is what is written."""
    told: list[str] = []
    found = optimizer.optimize(
        str(branches), cost=calls, batch_size=2, out=tmp_path / "out.onnx", told=told.append, repeats=12
    )

    outcomes = [one.outcome for one in found.tried]
    assert 1 <= len(found.tried) <= optimise.TOP
    assert found.tried[0].predicted > 1
    assert all(one.error < proof.LIMIT for one in found.tried)
    assert all(not one.problem and 0 < one.low <= one.speedup <= one.high for one in outcomes)
    assert {"ok"} == set(found.data["status"].values.ravel())
    assert 1 + len(found.tried) == found.data.sizes["compiler"]
    assert found.unguarded == outcomes[0].speedup
    assert found.looked_at >= len(found.tried)
    assert any(text.startswith("round 1") for text in told)
    assert optimise.choose(outcomes, guard=True) == found.chosen
    assert (2, 16, 24, 24) == read(tmp_path / "out.onnx").inputs[0].shape


@pytest.mark.parametrize(
    ("low", "chosen", "speedup", "kinds"),
    [(1.01, 0, 1.1, ["Conv", "Relu"] * 3), (0.99, None, 1.0, ["Conv", "Conv", "Add", "Relu"] * 3)],
)
def test_what_is_kept_is_what_is_written(
    branches: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    low: float,
    chosen: int | None,
    speedup: float,
    kinds: list[str],
) -> None:
    """A candidate that is surely faster; the original where that is not sure."""
    outcome = Outcome(speedup=1.1, low=low, high=1.2)
    monkeypatch.setattr(variants, "measure", lambda *_, **__: None)
    monkeypatch.setattr(variants, "outcomes", lambda data, compiler, files: [outcome for _ in files])
    optimised = optimizer.optimize(
        str(branches), cost=calls, rules=[rule("sum-branches")], top=1, out=tmp_path / "out.onnx"
    )

    assert (chosen, speedup) == (optimised.chosen, optimised.speedup)
    assert kinds == [operator.kind for operator in read(tmp_path / "out.onnx").operators]


def test_without_a_guard_the_cost_model_is_believed(branches: Path, tmp_path: Path) -> None:
    """Its first choice is kept, whatever was measured."""
    found = optimizer.optimize(
        str(branches),
        cost=calls,
        rules=[rule("sum-branches")],
        top=1,
        guard=False,
        out=tmp_path / "out.onnx",
        repeats=6,
    )

    assert 0 == found.chosen
    assert ["Conv", "Relu"] * 3 == [one.kind for one in read(tmp_path / "out.onnx").operators]


def test_where_nothing_is_preferred_nothing_is_measured(branches: Path, tmp_path: Path) -> None:
    """The original is what is written."""
    found = optimizer.optimize(str(branches), cost=calls, rules=[rule("split-conv")], out=tmp_path / "out.onnx")

    assert ((), None, None, 1.0) == (found.tried, found.chosen, found.data, found.speedup)
    assert found.looked_at > 0
    assert 3 * 4 == len(read(tmp_path / "out.onnx").operators)


def test_a_rule_that_is_wrong_is_found_out(branches: Path) -> None:
    """What computes something else is reported, and neither measured nor kept."""
    drop = Rule(
        name="drop-relu",
        summary="wrong",
        find=lambda graph: ((node,) for node in list(graph)[:-1] if node.op_type == "Relu"),
        rewrite=lambda edit, nodes: edit.replace(nodes[0].outputs[0], nodes[0].inputs[0]),
    )
    found = optimizer.optimize(str(branches), cost=calls, rules=[drop], top=1, guard=False)

    (one,) = found.tried
    assert one.error > 0.01
    assert "computes something else" in one.outcome.problem
    assert (None, None) == (found.chosen, found.data)


def test_the_guard_keeps_what_is_sure() -> None:
    """The fastest of those whose interval is above 1; without one, the original."""

    numbers = ((1.3, 0.99), (1.05, 1.01), (1.1, 1.02))
    several = [Outcome(speedup=speedup, low=low, high=2.0) for speedup, low in numbers]

    assert 2 == optimise.choose(several, guard=True)
    assert 0 == optimise.choose(several, guard=False)
    assert 1 == optimise.choose([Outcome(problem="crashed"), *several], guard=False)
    assert optimise.choose(several[:1], guard=True) is None


def test_a_proof_sees_what_differs(tmp_path: Path) -> None:
    """The same weights are 0 apart, others are not, and another output is infinitely far."""
    one = residual(tmp_path, blocks=1)
    found = ir.load(one)
    build = Builder()
    build.add("Relu", build.conv("x", 12))

    assert 0 == proof.error(one, one)
    weight = next(iter(found.graph.initializers.values()))
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.001), name=weight.name)
    ir.save(found, tmp_path / "other.onnx")
    assert 1e-5 < proof.error(one, tmp_path / "other.onnx") < 1e-2
    onnx.save(build.model("v1"), tmp_path / "wide.onnx")
    assert np.isinf(proof.error(one, tmp_path / "wide.onnx"))


def test_what_cannot_be_rewritten_is_refused(branches: Path) -> None:
    """A runtime that reads no ONNX; several networks; factors."""
    with pytest.raises(UsageError, match=r"torchscript reads no ONNX.*onnxruntime"):
        optimizer.optimize(str(branches), "torchscript", cost=calls)
    with pytest.raises(UsageError, match=r"one network at a time.*resnet18, resnet34"):
        optimizer.optimize(["resnet18", "resnet34"], cost=calls)
