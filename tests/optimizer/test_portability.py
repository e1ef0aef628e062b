"""What a cost model makes of networks, run on every runtime: the table, its summary, and what nobody may believe."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn import Spec
from onnxgraphs import Builder, write

from ngbkit import optimizer
from ngbkit.optimizer import portability, variants
from ngbkit.optimizer.drawing import draw as portability_figure
from ngbkit.optimizer.rules import Rule, rule
from ngbkit.predictor import Graph
from ngbkit.sweep.grid import Sweep

RUNTIMES = ["onnxruntime", "openvino"]


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    build = Builder(16, 24)
    build.add("Relu", build.add("Add", build.conv("x", 16, 3), build.conv("x", 16, 1)))
    return write(build.model("v3"), tmp_path / "branches.onnx")


def calls(several: Sequence[Graph]) -> np.ndarray:
    return np.array([float(len(graph.operators)) for graph in several])


def lazy(several: Sequence[Graph]) -> np.ndarray:
    """A cost model that prefers nothing to anything."""
    return np.ones(len(several))


def test_every_cost_model_runs_on_every_runtime(branches: Path) -> None:
    """One that leaves a network as it is gains 1, exactly; measurement itself is never behind another."""
    costs = {"calls": calls, "lazy": lazy}
    found = optimizer.study([str(branches)], costs, RUNTIMES, rules=[rule("sum-branches")], repeats=24, min_rounds=24)

    names = ["calls", "lazy", "measured on onnxruntime", "measured on openvino"]
    assert (names, RUNTIMES) == (found["cost"].values.tolist(), found["compiler"].values.tolist())
    assert ["sum-branches", ""] == found["steps"].values[0, :2].tolist()
    assert (found["speedup"].sel(cost="lazy") == 1).all()
    assert (found["guarded"].sel(cost="lazy") == 1).all()
    assert np.isfinite(found["speedup"]).all()
    calls_own = found.sel(cost="calls")
    assert (calls_own["low"] <= calls_own["speedup"]).all()
    assert (calls_own["speedup"] <= calls_own["high"]).all()
    for runtime in RUNTIMES:
        # The only candidate is either what the guard lets pass, or not: measured itself keeps the same.
        column = found["guarded"].sel(compiler=runtime)
        assert column.sel(cost="calls") == column.sel(cost=f"measured on {runtime}")
        assert column.sel(cost="calls").item() in (1.0, calls_own["speedup"].sel(compiler=runtime).item())


def test_what_computes_something_else_is_not_run(branches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is wrong gives NaN, and nothing is measured."""
    drop = Rule(
        name="drop-relu",
        summary="wrong",
        find=lambda graph: ((node,) for node in graph if node.op_type == "Add"),
        rewrite=lambda edit, nodes: edit.replace(nodes[0].outputs[0], nodes[0].inputs[0]),
    )
    monkeypatch.setattr(variants, "measure", lambda *_, **__: pytest.fail("it was measured"))
    found = optimizer.study([str(branches)], {"calls": calls}, RUNTIMES[:1], rules=[drop])

    assert np.isnan(found["speedup"].sel(cost="calls")).all()
    assert (found["speedup"].sel(cost="measured on onnxruntime") == 1).all()


def test_the_summary_says_how_far_a_cost_model_can_be_trusted() -> None:
    """By hand: a geometric mean, the share that is surely slower, the worst, and what is lost against the best."""
    speedup = [[[1.2], [1.2]], [[0.9], [1.0]], [[0.99], [1.1]], [[np.nan], [1.0]]]
    high = [[[1.3], [1.3]], [[0.95], [1.0]], [[0.995], [1.2]], [[np.nan], [1.0]]]
    guarded = [[[1.2], [1.2]], [[1.0], [1.0]], [[1.1], [1.1]], [[1.0], [1.0]]]
    dims = ("network", "cost", "compiler")
    labels = {"network": list("abcd"), "cost": ["mine", "measured on tvm"], "compiler": ["tvm"]}
    values = {"speedup": speedup, "high": high, "guarded": guarded, "guarded_high": guarded}
    found = portability.summary(xr.Dataset({name: (dims, one) for name, one in values.items()}, labels))
    mine = found.loc[("mine", "tvm")]

    assert 3 == mine["networks"]
    assert pytest.approx((1.2 * 0.9 * 0.99) ** (1 / 3)) == mine["speedup"]
    assert pytest.approx(1 / 3) == mine["regressions"]  # 1 % slower is noise
    assert 0.9 == mine["worst"]
    assert pytest.approx((0 + 0.1 + 0.1) / 3) == mine["regret"]
    assert pytest.approx(np.log(1.2 * 0.9 * 0.99) / np.log(1.2 * 1.1)) == mine["gain"]
    assert [0, 1, 0] == pytest.approx(mine[["guarded_regressions", "guarded_gain", "guarded_regret"]].tolist())
    assert 0 == found.loc[("measured on tvm", "tvm"), "regret"]


def test_a_study_is_drawn_with_all_that_it_says() -> None:
    """A mark a network and cost model, a bar a mean, and what is surely slower in a colour of its own."""
    dims, labels = ("network", "cost", "compiler"), {"network": list("ab"), "cost": ["mine"], "compiler": ["tvm"]}
    values = {"speedup": [[[1.2]], [[0.9]]], "low": [[[1.1]], [[0.85]]], "high": [[[1.3]], [[0.95]]]}
    values |= {f"guarded{end}": [[[1.2]], [[1.0]]] for end in ("", "_low", "_high")}
    found = xr.Dataset({name: (dims, one) for name, one in values.items()}, labels, {"batch_size": 1, "device": "cpu"})
    found["steps"] = (dims[:2], [["fold"], ["merge"]])
    first, kept = (Spec(portability_figure(found, guarded=one)).rows for one in (False, True))

    assert [("a", "faster"), ("b", "slower")] == [(row["network"], row["is"]) for row in first if row["mean"] == 0]
    assert [("a", "faster"), ("b", "as fast")] == [(row["network"], row["is"]) for row in kept if row["mean"] == 0]
    mean = next(float(row["speedup"]) for row in first if row["mean"] == 1)
    assert pytest.approx((1.2 * 0.9) ** 0.5, rel=1e-4) == mean


def test_a_graph_that_did_not_come_along_is_said(branches: Path) -> None:
    """A column of a file that is no artifact of its network fails with what to do."""
    workload = variants.single(str(branches), ["onnxruntime"])
    column = 'onnxruntime{"graph":"' + "0" * 32 + '"}'
    data = Sweep(workload, compilers=["onnxruntime", column], repeats=5).run()

    assert ["ok", "failed"] == data["status"].values.ravel().tolist()
    assert "is no artifact of this workload" in data["error"].values.ravel()[1]
