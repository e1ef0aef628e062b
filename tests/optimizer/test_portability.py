"""A study measures the choices of each cost model on every runtime, and its summary and figure match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn import Spec
from onnxgraphs import Builder, write

from ngbkit import optimizer
from ngbkit.api import Sweep
from ngbkit.optimizer import portability, variants
from ngbkit.optimizer.drawing import draw as portability_figure
from ngbkit.optimizer.rules import Rule, rule
from ngbkit.predictor import Graph

RUNTIMES = ["onnxruntime", "openvino"]


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    build = Builder(16, 24)
    build.add("Relu", build.add("Add", build.conv("x", 16, 3), build.conv("x", 16, 1)))
    return write(build.model("v3"), tmp_path / "branches.onnx")


def count_calls(graphs: Sequence[Graph]) -> np.ndarray:
    return np.array([float(len(graph.operators)) for graph in graphs])


def ignore_graphs(graphs: Sequence[Graph]) -> np.ndarray:
    """Cost the same for every graph."""
    return np.ones(len(graphs))


def test_every_cost_model_runs_on_every_runtime(branches: Path) -> None:
    """A cost model that keeps the original gains exactly 1; measurement itself is never behind another."""
    costs = {"calls": count_calls, "lazy": ignore_graphs}
    data = optimizer.study([str(branches)], costs, RUNTIMES, rules=[rule("sum-branches")], repeats=24, min_rounds=24)

    names = ["calls", "lazy", "measured on onnxruntime", "measured on openvino"]
    assert (names, RUNTIMES) == (data["cost"].values.tolist(), data["compiler"].values.tolist())
    assert ["sum-branches", ""] == data["steps"].values[0, :2].tolist()
    assert (data["speedup"].sel(cost="lazy") == 1).all()
    assert (data["guarded"].sel(cost="lazy") == 1).all()
    assert np.isfinite(data["speedup"]).all()
    selected = data.sel(cost="calls")
    assert (selected["low"] <= selected["speedup"]).all()
    assert (selected["speedup"] <= selected["high"]).all()
    for runtime in RUNTIMES:
        # There is one candidate, so that measurement itself makes the same choice as the guard.
        column = data["guarded"].sel(compiler=runtime)
        assert column.sel(cost="calls") == column.sel(cost=f"measured on {runtime}")
        assert column.sel(cost="calls").item() in (1.0, selected["speedup"].sel(compiler=runtime).item())


def test_what_computes_something_else_is_not_run(branches: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong rule gives NaN, and nothing is measured."""
    drop = Rule(
        name="drop-relu",
        summary="wrong",
        find=lambda graph: ((node,) for node in graph if node.op_type == "Add"),
        rewrite=lambda edit, nodes: edit.replace(nodes[0].outputs[0], nodes[0].inputs[0]),
    )
    monkeypatch.setattr(variants, "measure", lambda *_, **__: pytest.fail("it was measured"))
    data = optimizer.study([str(branches)], {"calls": count_calls}, RUNTIMES[:1], rules=[drop])

    assert np.isnan(data["speedup"].sel(cost="calls")).all()
    assert (data["speedup"].sel(cost="measured on onnxruntime") == 1).all()


def test_the_summary_scores_each_cost_model() -> None:
    """Scores match numbers by hand: a geometric mean, the regressions, the worst, and the regret."""
    speedup = [[[1.2], [1.2]], [[0.9], [1.0]], [[0.99], [1.1]], [[np.nan], [1.0]]]
    high = [[[1.3], [1.3]], [[0.95], [1.0]], [[0.995], [1.2]], [[np.nan], [1.0]]]
    guarded = [[[1.2], [1.2]], [[1.0], [1.0]], [[1.1], [1.1]], [[1.0], [1.0]]]
    dims = ("network", "cost", "compiler")
    labels = {"network": list("abcd"), "cost": ["mine", "measured on tvm"], "compiler": ["tvm"]}
    values = {"speedup": speedup, "high": high, "guarded": guarded, "guarded_high": guarded}
    summary = portability.summary(xr.Dataset({name: (dims, numbers) for name, numbers in values.items()}, labels))
    scores = summary.loc[("mine", "tvm")]

    assert 3 == scores["networks"]
    assert pytest.approx((1.2 * 0.9 * 0.99) ** (1 / 3)) == scores["speedup"]
    assert pytest.approx(np.std(np.log([1.2, 0.9, 0.99]), ddof=1) / 3**0.5) == scores["error"]
    assert pytest.approx(1 / 3) == scores["regressions"]  # 1 % slower is noise
    assert 0.9 == scores["worst"]
    assert pytest.approx((0 + 0.1 + 0.1) / 3) == scores["regret"]
    assert pytest.approx(np.log(1.2 * 0.9 * 0.99) / np.log(1.2 * 1.1)) == scores["gain"]
    assert [0, 1, 0] == pytest.approx(scores[["guarded_regressions", "guarded_gain", "guarded_regret"]].tolist())
    assert 0 == summary.loc[("measured on tvm", "tvm"), "regret"]


def test_a_study_is_drawn() -> None:
    """The figure has a mark per network and cost model, a bar per mean, and a colour for regressions."""
    dims, labels = ("network", "cost", "compiler"), {"network": list("ab"), "cost": ["mine"], "compiler": ["tvm"]}
    values = {"speedup": [[[1.2]], [[0.9]]], "low": [[[1.1]], [[0.85]]], "high": [[[1.3]], [[0.95]]]}
    values |= {f"guarded{end}": [[[1.2]], [[1.0]]] for end in ("", "_low", "_high")}
    data = xr.Dataset(
        {name: (dims, numbers) for name, numbers in values.items()}, labels, {"batch_size": 1, "device": "cpu"}
    )
    data["steps"] = (dims[:2], [["fold"], ["merge"]])
    first, guarded = (Spec(portability_figure(data, guarded=numbers)).rows for numbers in (False, True))

    assert [("a", "surely faster"), ("b", "surely slower")] == [
        (row["network"], row["is"]) for row in first if row["mean"] == 0
    ]
    assert [("a", "surely faster"), ("b", "not sure")] == [
        (row["network"], row["is"]) for row in guarded if row["mean"] == 0
    ]
    mean = next(row for row in first if row["mean"] == 1)
    assert pytest.approx((1.2 * 0.9) ** 0.5, rel=1e-4) == float(mean["speedup"])
    assert pytest.approx((1.2 * 0.9) ** 0.5 * (1.2 / 0.9), rel=1e-3) == float(mean["high"])


def test_a_missing_graph_is_a_failure(branches: Path) -> None:
    """A column of a file that is not an artifact of its network fails with advice."""
    workload = variants.parse_network(str(branches), ["onnxruntime"])
    column = 'onnxruntime{"graph":"' + "0" * 32 + '"}'
    data = Sweep(workload, compilers=["onnxruntime", column], repeats=5).run()

    assert ["ok", "failed"] == data["status"].values.ravel().tolist()
    assert "is no artifact of this workload" in data["error"].values.ravel()[1]
