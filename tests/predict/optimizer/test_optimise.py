"""A network is rewritten for a runtime, proved and measured; the original is kept unless a candidate is faster."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnxgraphs import Builder, build_branches, residual, write
from rewriting import count_calls
from state import share_state_dir

from ngbkit.errors import UsageError
from ngbkit.predict import optimizer, read
from ngbkit.predict.optimizer import optimise, proof, variants
from ngbkit.predict.optimizer.rules import Rule, rule
from ngbkit.predict.optimizer.variants import Outcome

state_dir = pytest.fixture(autouse=True, scope="module")(share_state_dir)


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    """A file of blocks of a 3x3, a 1x1 and their sum, with an open batch."""
    return write(build_branches(3, 16, 24).model(), tmp_path / "branches.onnx")


@pytest.mark.guard
def test_a_network_is_rewritten_proved_and_measured(branches: Path, tmp_path: Path) -> None:
    """The original and the proved candidates are interleaved, and the kept network is written."""
    messages: list[str] = []
    optimised = optimizer.optimize(
        str(branches), cost=count_calls, batch_size=2, out=tmp_path / "out.onnx", report=messages.append, repeats=12
    )

    outcomes = [candidate.outcome for candidate in optimised.tried]
    assert 1 <= len(optimised.tried) <= optimise.TOP
    assert optimised.tried[0].predicted > 1
    assert all(candidate.error < proof.LIMIT for candidate in optimised.tried)
    assert all(
        not candidate.problem and 0 < candidate.low <= candidate.speedup <= candidate.high for candidate in outcomes
    )
    assert {"ok"} == set(optimised.data["status"].values.ravel())
    assert 1 + len(optimised.tried) == optimised.data.sizes["compiler"]
    assert optimised.looked_at >= len(optimised.tried)
    assert any(message.startswith("round 1") for message in messages)
    assert optimise.choose(outcomes) == optimised.chosen
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
    """A significantly faster candidate is kept, else the original."""
    outcome = Outcome(speedup=1.1, low=low, high=1.2)
    monkeypatch.setattr(variants, "measure", lambda *_, **__: None)
    monkeypatch.setattr(variants, "compute_outcomes", lambda data, compiler, files: [outcome for _ in files])
    optimised = optimizer.optimize(
        str(branches), cost=count_calls, rules=[rule("sum-branches")], top=1, out=tmp_path / "out.onnx"
    )

    assert (chosen, speedup) == (optimised.chosen, optimised.speedup)
    assert kinds == [operator.kind for operator in read(tmp_path / "out.onnx").operators]


def test_where_nothing_is_preferred_nothing_is_measured(branches: Path, tmp_path: Path) -> None:
    """The original is written, and nothing is measured, if no candidate is preferred."""
    optimised = optimizer.optimize(
        str(branches), cost=count_calls, rules=[rule("conv-to-matmul")], out=tmp_path / "out.onnx"
    )

    assert ((), None, None, 1.0) == (optimised.tried, optimised.chosen, optimised.data, optimised.speedup)
    assert optimised.looked_at > 0
    assert 3 * 4 == len(read(tmp_path / "out.onnx").operators)


def test_outputs_are_written_as_the_network_returns_them(tmp_path: Path) -> None:
    """The batch is second in an output that starts with the time, whatever the file declares."""
    build = Builder(6, 4)
    model = build.model(build.add("Transpose", "x", perm=[1, 0, 2, 3]))
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("v0", 1, ["batch", 6, 4, 4]))
    path = write(model, tmp_path / "time-first.onnx")
    optimizer.optimize(str(path), cost=count_calls, rules=[], batch_size=2, out=tmp_path / "out.onnx")

    assert (6, 2, 4, 4) == read(tmp_path / "out.onnx").outputs[0].shape


def test_a_rule_that_is_wrong_is_found_out(branches: Path) -> None:
    """A candidate with wrong results is reported, and neither measured nor kept."""
    drop = Rule(
        name="drop-relu",
        summary="wrong",
        find=lambda graph: ((node,) for node in list(graph)[:-1] if node.op_type == "Relu"),
        rewrite=lambda edit, nodes: edit.replace(nodes[0].outputs[0], nodes[0].inputs[0]),
    )
    optimised = optimizer.optimize(str(branches), cost=count_calls, rules=[drop], top=1)

    (candidate,) = optimised.tried
    assert candidate.error > 0.01
    assert "wrong result" in candidate.outcome.problem
    assert (None, None) == (optimised.chosen, optimised.data)


def test_the_guard_keeps_what_is_sure() -> None:
    """The fastest outcome whose interval is above 1 is kept, else the original."""

    numbers = ((1.3, 0.99), (1.05, 1.01), (1.1, 1.02))
    outcomes = [Outcome(speedup=speedup, low=low, high=2.0) for speedup, low in numbers]

    assert 2 == optimise.choose(outcomes)
    assert optimise.choose(outcomes[:1]) is None
    assert optimise.choose([Outcome(problem="crashed")]) is None


def test_a_proof_sees_what_differs(tmp_path: Path) -> None:
    """Equal weights have the error 0, other weights a larger one, and another shape an infinite one."""
    original = residual(tmp_path, blocks=1)
    model = ir.load(original)
    build = Builder()
    build.add("Relu", build.conv("x", 12))

    assert 0 == proof.measure_error(original, original)
    weight = next(iter(model.graph.initializers.values()))
    weight.const_value = ir.tensor(weight.const_value.numpy() * np.float32(1.001), name=weight.name)
    ir.save(model, tmp_path / "other.onnx")
    assert 1e-5 < proof.measure_error(original, tmp_path / "other.onnx") < 1e-2
    onnx.save(build.model("v1"), tmp_path / "wide.onnx")
    assert np.isinf(proof.measure_error(original, tmp_path / "wide.onnx"))


def test_what_cannot_be_rewritten_is_refused(branches: Path) -> None:
    """A runtime without ONNX, and several networks, are rejected."""
    with pytest.raises(UsageError, match=r"torchscript, which does not read ONNX.*onnxruntime"):
        optimizer.optimize(str(branches), "torchscript", cost=count_calls)
    with pytest.raises(UsageError, match=r"got resnet18, resnet34; expected one network"):
        optimizer.optimize(["resnet18", "resnet34"], cost=count_calls)
    with pytest.raises(UsageError, match="invalid top: got -1; expected an integer >= 1"):
        optimizer.optimize(str(branches), cost=count_calls, top=-1)
    with pytest.raises(UsageError, match="invalid seconds: got nan; expected a number of seconds above 0"):
        optimizer.optimize(str(branches), cost=count_calls, beam=optimizer.Beam(seconds=math.nan))


def test_an_open_dimension_is_a_factor(tmp_path: Path) -> None:
    """The written network has its value; without a value, or with several, the error says what to add."""
    build = Builder(8, 16)
    model = build.model(build.add("Relu", build.conv("x", 8)))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    file = str(write(model, tmp_path / "tall.onnx"))
    optimised = optimizer.optimize(file, cost=count_calls, factors={"height": 24}, rules=[], out=tmp_path / "out.onnx")

    assert {"height": 24} == optimised.factors
    assert (1, 8, 24, 16) == read(tmp_path / "out.onnx").inputs[0].shape
    with pytest.raises(UsageError, match=r"Add --factor height=… or factors=\{…\}\.$"):
        optimizer.optimize(file, cost=count_calls)
    with pytest.raises(UsageError, match=r"invalid factor height: got 16, 24; expected one value, such as height=16"):
        optimizer.optimize(file, cost=count_calls, factors={"height": [16, 24]})
