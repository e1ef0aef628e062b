"""A predictor: what it says, how sure it is, how it is kept, and how kinds of it compare."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from drawn import Spec
from learned import RUNTIMES, examples
from onnxgraphs import residual

from ngbkit import predictor, set_options
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predictor import Examples
from ngbkit.predictor.kinds import KINDS


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return examples(tmp_path_factory.mktemp("graphs"), alone=True)


def test_networks_are_predicted_with_an_interval(known: Examples, tmp_path: Path) -> None:
    """A row a network, a batch size and a runtime; the interval is around the prediction."""
    found = predictor.fit(known, "linear")
    file = residual(tmp_path, 20, 2)
    with set_options(state_dir=tmp_path / "state"):
        table = found.predict(str(file), batch_sizes=[1, 2], ci=0.5)

    assert [
        ("cpu", "openvino", 1),
        ("cpu", "onnxruntime", 1),
        ("cpu", "openvino", 2),
        ("cpu", "onnxruntime", 2),
    ] == list(table[["device", "compiler", "batch_size"]].itertuples(index=False, name=None))
    assert (table["ci_low"] <= table["latency"]).all()
    assert (table["latency"] <= table["ci_high"]).all()
    np.testing.assert_allclose(table["throughput"], table["batch_size"] / table["latency"])


def test_intervals_cover_as_often_as_they_say(known: Examples) -> None:
    """Of networks that come from where those that it is judged by came; too few of them give none."""
    rng = np.random.default_rng(0)
    errors = np.abs(rng.normal(0, 0.1, (500, 1)))
    model = predictor.fit(known, "flops").model
    one = predictor.Predictor(model=model, runtimes=RUNTIMES[:1], errors=errors)
    truth = np.exp(rng.normal(0, 0.1, 4000))
    _, low, high = (values[0, 0] for values in one.seconds(known.graphs[:1], ci=0.9))
    middle = math.sqrt(low * high)

    assert 0.86 < np.mean((low / middle <= truth) & (truth <= high / middle)) < 0.94
    few = predictor.Predictor(model=model, runtimes=RUNTIMES[:1], errors=errors[:5])
    assert np.isnan(few.seconds(known.graphs[:1], ci=0.95)[1][0, 0])
    with pytest.raises(UsageError, match="ci=95"):
        one.seconds(known.graphs[:1], ci=95)


@pytest.mark.parametrize("kind", KINDS)
def test_a_predictor_is_kept_as_numbers(kind: str, known: Examples, tmp_path: Path) -> None:
    """One file, which no code is in; what is loaded says the same."""
    settings = {"gnn": {"epochs": 3, "width": 16, "layers": 1, "members": 2}, "boosting": {"rounds": 20}}.get(kind, {})
    found = predictor.fit(known, kind, **settings)
    again = predictor.load(found.save(tmp_path / "deep" / "one.safetensors"))

    assert found.runtimes == again.runtimes
    for one, other in zip(found.seconds(known.graphs, 0.5), again.seconds(known.graphs, 0.5), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    """What it is not, and what to do."""
    from safetensors.numpy import save_file

    (tmp_path / "text").write_text("hello, this is no predictor at all")
    save_file({"a": np.zeros(1)}, tmp_path / "other.safetensors")
    for name in ("text", "other.safetensors", "missing"):
        with pytest.raises(UsageError, match="is no predictor"):
            predictor.load(tmp_path / name)


def test_too_few_networks_are_an_error(known: Examples) -> None:
    """One network leaves nothing to be judged by."""
    with pytest.raises(UsageError, match=r"has 1 network"):
        predictor.fit(known.take([0]), "flops")


def test_kinds_are_compared_in_one_table(known: Examples) -> None:
    """A row a kind, a runtime, a seed and a fold; the summary has a row a kind and runtime."""
    table = predictor.evaluate(known, ("flops", "linear"), split="family", seeds=(0, 1))
    shown = predictor.summary(table)

    assert 2 * 2 * 2 * 5 == len(table)
    assert {f"width{width}" for width in (8, 12, 16, 24, 32)} == set(table["left_out"])
    linear, flops = (shown.xs(kind, level="kind") for kind in ("linear", "flops"))
    assert (linear["mape"] < 0.05).all()
    assert flops["mape"].max() > linear["mape"].max()
    assert (linear["sign"] > 0.9).all()
    assert [2] == shown["seeds"].unique().tolist()
    one = table[(table["kind"] == "flops") & (table["compiler"] == "openvino")]
    mean = (one["mape"] * one["graphs"]).sum() / one["graphs"].sum()
    assert pytest.approx(mean) == flops.loc[("family", "cpu", "openvino"), "mape"]


@pytest.mark.parametrize("kind", ["linear", "operators", "gnn"])
def test_the_cost_of_each_operator_is_part_of_the_whole(kind: str, known: Examples) -> None:
    """In milliseconds, for a picture; what is left is the call's own."""
    settings = {"epochs": 3} if kind == "gnn" else {}
    found = predictor.fit(known, kind, **settings)
    one = known.graphs[0]
    costs = found.costs(one, "onnxruntime")
    (whole,), _, _ = found.seconds([one])

    assert (len(one.operators),) == costs.shape
    assert (costs >= 0).all()
    assert 0 < costs.sum() <= 1e3 * whole[found.column("onnxruntime")] * (1 + 1e-5)
    assert len(one.operators) == len([row for row in Spec(predictor.draw(one, costs)).rows if "cost" in row])


def test_trees_know_no_cost_of_an_operator(known: Examples) -> None:
    """They see the graph as a whole, and say what to take instead."""
    found = predictor.fit(known, "boosting", rounds=5)

    with pytest.raises(UsageError, match="Fit one that adds them up"):
        found.costs(known.graphs[0], "openvino")
    with pytest.raises(UnknownNameError, match="openvino"):
        found.column("openvno")
    with pytest.raises(UnknownNameError, match="cpu"):
        found.column("openvino", "gpu")
