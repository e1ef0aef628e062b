"""A run with a budget: it measures what tells most, stops in time, and predicts the rest without hiding it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import xarray as xr
from asking import facts_of, sweep

import ngbkit
from ngbkit import runs
from ngbkit.dataset import synthetic
from ngbkit.dataset.assembly import assemble, nodes
from ngbkit.errors import UsageError
from ngbkit.predictor import Predictor, forecast, graph
from ngbkit.predictor.forecast import Guide, guide
from ngbkit.predictor.forecast.expected import Seen
from ngbkit.predictor.forecast.imputation import VARIABLES, fill, key_of
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Failure, Measurement, Record
from ngbkit.workloads.base import Workload


def carried_out(own: Guide, records: Sequence[Record]) -> list[Record]:
    """What a run has that does what the guide says."""
    known = {one.trial_id: one for one in records}
    have: list[Record] = []
    while wanted := own.next(have):
        assert not {one.trial_id for one in have} & set(wanted)
        have += [known[one] for one in wanted]
    return have


def test_a_share_of_the_trials_finds_the_best_compilers() -> None:
    """Of a quarter measured the best compiler is within five per cent of the best in nearly all groups."""
    asked = sweep()
    records = synthetic.records(asked)
    own = Guide(asked, trials=27, facts_of=facts_of)
    have = carried_out(own, records)
    data = fill(assemble(asked, have), own.predictions(have))
    whole = synthetic.dataset(asked)["latency"].median("repeat")
    found = forecast.best(data)
    lost = []
    for row in found.to_dict(orient="records"):
        group = whole.sel({dim: row[dim] for dim in ("workload", "width", "depth", "device", "batch_size")})
        lost.append(float(group.sel(compiler=row["compiler"]) / group.min()) - 1)

    assert 27 == len(have)
    assert 27 == len(found)
    assert np.mean(np.array(lost) <= 0.05) >= 0.9


def test_whole_groups_come_first() -> None:
    """Every compiler is heard, of networks that are unlike each other, before anything else is asked for."""
    asked = sweep()
    own = Guide(asked, trials=30, facts_of=facts_of)
    first = own.next([])
    trials = {one.id: one for one in asked.trials()}
    groups = {(trials[one].factors, trials[one].batch_size) for one in first}

    assert (8, 2) == (len(first), len(groups))


def test_a_compiler_that_never_works_is_given_up() -> None:
    """Two failures are enough, and it is nobody's best."""
    asked = sweep()
    trials = {one.id: one for one in asked.trials()}
    records: list[Record] = [
        Failure(trial_id=one.trial_id, status="unsupported", stage="compile", error="no such chip")
        if trials[one.trial_id].compiler == "openvino"
        else one
        for one in synthetic.records(asked)
    ]
    own = Guide(asked, trials=40, facts_of=facts_of)
    have = carried_out(own, records)
    data = fill(assemble(asked, have), own.predictions(have))

    assert 40 == len(have)
    assert 2 == sum(isinstance(one, Failure) for one in have)
    assert "openvino" not in forecast.best(data)["compiler"].tolist()
    assert "predicted" not in data["status"].sel(compiler="openvino").values


def test_predictions_stand_beside_measurements() -> None:
    """Each trial has the one or the other; metrics see measurements alone, and a merge forgets predictions."""
    asked = sweep()
    own = Guide(asked, trials=20, facts_of=facts_of)
    have = carried_out(own, synthetic.records(asked))
    data = fill(assemble(asked, have, run_id="a"), own.predictions(have))
    guessed = data["status"] == "predicted"

    assert 20 == int((data["status"] == "ok").sum())
    assert 88 == int(guessed.sum())
    assert (data["latency"].notnull().any("repeat") == ~guessed).all()
    assert (data["predicted"].notnull() == guessed).all()
    assert (data["predicted_low"] < data["predicted"]).where(guessed, True).all()
    assert (data["predicted"] < data["predicted_high"]).where(guessed, True).all()
    assert {"s"} == {data[name].attrs["units"] for name in VARIABLES}
    assert (data.ngb.throughput().notnull() == ~guessed).all()
    merged = ngbkit.merge(data)
    assert {"ok", "pending"} == set(merged["status"].values.ravel())
    assert not set(VARIABLES) & set(merged.variables)


def test_a_tree_is_filled_node_by_node() -> None:
    """Networks with different factors are in nodes of their own."""
    plain = Workload(name="plain", source="timm", spec={"name": "plain"})
    wide = Workload(name="wide", source="timm", spec={"name": "wide"}, takes=("width",), factors={"width": (8, 16)})
    asked = Sweep([plain, wide], ["identity", "openvino"])
    have = synthetic.records(asked)[:4]
    data = fill(assemble(asked, have), Guide(asked, trials=4, facts_of=lambda _: {}).predictions(have))

    assert isinstance(data, xr.DataTree)
    plain, wide = nodes(data).values()
    assert {"ok"} == set(plain["status"].values.ravel())
    assert {"ok", "predicted"} == set(wide["status"].values.ravel())
    assert 3 == len(forecast.best(data))


def test_time_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are asked for while there is time for them, by what such trials took; at least one is."""
    now = 100.0
    monkeypatch.setattr(guide.time, "monotonic", lambda: now)
    asked = sweep()
    records = {one.trial_id: one for one in synthetic.records(asked)}
    own = Guide(asked, seconds=60.0, facts_of=facts_of)
    have: list[Record] = []
    assert own.left_s() is None
    for _ in range(200):
        wanted = own.next(have)
        if not wanted:
            break
        have += [records[one] for one in wanted]
        now += 4.0 * len(wanted)

    assert 0 < len(have) < len(asked)
    assert own.left_s() < 30
    late = Guide(asked, seconds=1e-6, facts_of=facts_of)
    assert 1 == len(late.next([]))


def test_earlier_runs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they measured is not asked for to begin with, and tells of what they did not."""
    asked = sweep()
    trials = {one.id: one for one in asked.trials()}
    drawn = set(np.random.default_rng(0).permutation(len(asked))[:36].tolist())
    seen = [
        Seen(trial=trials[one.trial_id], record=one, facts={})
        for at, one in enumerate(synthetic.records(asked))
        if isinstance(one, Measurement) and at in drawn
    ]
    nobody, somebody = (Guide(asked, trials=5, facts_of=facts_of, earlier=one) for one in ([], seen))

    assert {} == nobody.predictions()
    predicted = somebody.predictions()
    whole = {one.trial_id: np.median(one.latency_s) for one in synthetic.records(asked)}
    errors = [abs(predicted[key_of(one)][0] / whole[one.id] - 1) for one in asked.trials()]
    assert len(asked) == len(predicted)
    assert np.median(errors) < 0.1


def test_a_predictor_is_where_a_budget_begins(mlp: Workload) -> None:
    """What it says of its runtime is predicted before anything is measured; of others nothing is known."""

    class Model:
        def predict(self, graphs: list) -> np.ndarray:
            return np.array([[1e-3 * len(one.operators)] for one in graphs])

    known = Predictor(model=Model(), runtimes=(("cpu", "onnxruntime"),), errors=np.empty((0, 1)))
    asked = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    data = asked.estimate(known).data

    assert {"predicted"} == set(data["status"].sel(compiler="onnxruntime").values.ravel())
    assert {"pending"} == set(data["status"].sel(compiler="identity").values.ravel())
    operators = len(graph(mlp, 1).operators)
    assert (data["predicted"].sel(compiler="onnxruntime") == pytest.approx(1e-3 * operators)).all()


@pytest.mark.parametrize("budget", ["soon", "-1min", "0%", "120%", 0, math.inf, True, ["1min"], "10 parsecs"])
def test_a_budget_that_is_none_says_what_is_valid(budget: object) -> None:
    """Before anything is measured."""
    with pytest.raises(UsageError, match="valid is a number of seconds, a time such as '20min'"):
        sweep().start(budget=budget)


def test_a_predictor_without_a_budget_predicts_nothing() -> None:
    """And says so."""
    with pytest.raises(UsageError, match="without a budget"):
        sweep().start(predictor="some.safetensors")


def test_a_run_measures_what_its_budget_holds(mlp: Workload) -> None:
    """On a real engine: some trials are measured, the others predicted; to resume the run measures them too."""
    asked = Sweep(mlp, ["identity", "onnxruntime"], [1, 2, 3, 4], repeats=10, threads=1)
    run = asked.start(budget="50%")
    data = run.result()

    assert ("finished", 4) == (run.state, run.progress.done)
    assert {"ok": 4, "predicted": 4} == dict(zip(*np.unique(data["status"], return_counts=True), strict=True))
    assert 4 == len(forecast.best(data))
    whole = runs.resume(run.id).result()
    assert {"ok"} == set(whole["status"].values.ravel())
    kept = data["latency"].values[data["status"].values == "ok"]
    assert np.array_equal(kept, whole["latency"].values[data["status"].values == "ok"])


def test_an_estimate_measures_nothing(mlp: Workload) -> None:
    """Before the first run it knows nothing, and afterwards what that took."""
    asked = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    before = asked.estimate()
    assert (None, "4 trials in 2 groups; no earlier run tells how long") == (before.seconds, str(before))
    assert {"pending"} == set(before.data["status"].values.ravel())
    assert before.best().empty
    measured = asked.run()
    after = asked.estimate()

    assert after.seconds > 0
    assert "4 trials in 2 groups, about" in str(after)
    assert {"predicted"} == set(after.data["status"].values.ravel())
    ratio = after.data["predicted"] / measured["latency"].median("repeat")
    assert ((ratio > 0.5) & (ratio < 2)).all()
    assert 2 == len(after.best())
