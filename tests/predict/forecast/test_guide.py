"""A run with a budget measures the most informative trials, stops in time, and predicts the rest visibly."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import synthetic
import xarray as xr
from asking import build_sweep, facts_of
from learned import build_examples
from onnxgraphs import residual

import ngbkit
from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.dataset.assembly import assemble, nodes
from ngbkit.errors import UsageError
from ngbkit.predict import Predictor, fit, forecast, graph
from ngbkit.predict.forecast import Guide
from ngbkit.predict.forecast.costs import compute_cost
from ngbkit.predict.forecast.earlier import EarlierTrial
from ngbkit.predict.forecast.imputation import VARIABLES, Key, Prediction, build_key, fill
from ngbkit.predict.scoring.intervals import Calibration
from ngbkit.sweep.records import Failure, Measurement, Record
from ngbkit.sweep.trials import Trial
from ngbkit.workloads.base import Workload


def carry_out(guide: Guide, records: Sequence[Record]) -> list[Record]:
    """Measure all trials that the guide chooses, and return their records."""
    records_by_id = {record.trial_id: record for record in records}
    recorded: list[Record] = []
    while ids := guide.next(recorded):
        assert not {record.trial_id for record in recorded} & set(ids)
        recorded += [records_by_id[trial_id] for trial_id in ids]
    return recorded


def test_a_share_of_the_trials_finds_the_best_compilers() -> None:
    """From a quarter of the trials, the chosen compiler is within five per cent of the best in nearly all groups."""
    sweep = build_sweep()
    records = synthetic.make_records(sweep)
    guide = Guide(sweep, trials=27, facts_of=facts_of)
    recorded = carry_out(guide, records)
    data = fill(assemble(sweep, recorded), guide.predictions(recorded))
    medians = synthetic.make_dataset(sweep)["latency"].median("repeat")
    winners = forecast.best(data)
    losses = []
    for row in winners.to_dict(orient="records"):
        group = medians.sel({dim: row[dim] for dim in ("workload", "width", "depth", "device", "batch_size")})
        losses.append(float(group.sel(compiler=row["compiler"]) / group.min()) - 1)

    assert 27 == len(recorded)
    assert 27 == len(winners)
    assert np.mean(np.array(losses) <= 0.05) >= 0.9


def test_whole_groups_come_first() -> None:
    """Every compiler is measured on dissimilar networks first."""
    sweep = build_sweep()
    guide = Guide(sweep, trials=30, facts_of=facts_of)
    first = guide.next([])
    trials = {trial.id: trial for trial in sweep.trials()}
    groups = {(trials[trial_id].factors, trials[trial_id].batch_size) for trial_id in first}

    assert (8, 2) == (len(first), len(groups))


def test_a_compiler_that_never_works_is_given_up() -> None:
    """After two failures it is measured no more, and is the best of no group."""
    sweep = build_sweep()
    trials = {trial.id: trial for trial in sweep.trials()}
    records: list[Record] = [
        Failure(trial_id=record.trial_id, status="unsupported", stage="compile", error="no such chip")
        if trials[record.trial_id].compiler == "openvino"
        else record
        for record in synthetic.make_records(sweep)
    ]
    guide = Guide(sweep, trials=40, facts_of=facts_of)
    recorded = carry_out(guide, records)
    data = fill(assemble(sweep, recorded), guide.predictions(recorded))

    assert 40 == len(recorded)
    assert 2 == sum(isinstance(record, Failure) for record in recorded)
    assert "openvino" not in forecast.best(data)["compiler"].tolist()
    assert "predicted" not in data["status"].sel(compiler="openvino").values


def test_predictions_are_beside_measurements() -> None:
    """Each trial has one or the other; metrics use measurements only, and a merge drops predictions."""
    sweep = build_sweep()
    guide = Guide(sweep, trials=20, facts_of=facts_of)
    recorded = carry_out(guide, synthetic.make_records(sweep))
    data = fill(assemble(sweep, recorded, run_id="a"), guide.predictions(recorded))
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
    """Networks with different factors are in different nodes."""
    plain = Workload(name="plain", source="timm", spec={"name": "plain"})
    wide = Workload(name="wide", source="timm", spec={"name": "wide"}, takes=("width",), factors={"width": (8, 16)})
    sweep = Sweep([plain, wide], ["identity", "openvino"])
    recorded = synthetic.make_records(sweep)[:4]
    data = fill(assemble(sweep, recorded), Guide(sweep, trials=4, facts_of=lambda _: {}).predictions(recorded))

    assert isinstance(data, xr.DataTree)
    plain, wide = nodes(data).values()
    assert {"ok"} == set(plain["status"].values.ravel())
    assert {"ok", "predicted"} == set(wide["status"].values.ravel())
    assert 3 == len(forecast.best(data))


def slow_down(record: Record, share: float) -> Record:
    """The record as if other work had slowed the first `share` of its samples, and doubled them."""
    count = round(share * len(record.latency_s))
    latency_s = tuple((2.0 if index < count else 1.0) * seconds for index, seconds in enumerate(record.latency_s))
    return replace(record, latency_s=latency_s, contended_samples=tuple(range(count)))


def test_what_other_work_slowed_bends_no_prediction() -> None:
    """An inconclusive trial is left out, unless its compiler has no other; contended samples of others are."""
    sweep = build_sweep()
    records = synthetic.make_records(sweep)[::3]
    guide = Guide(sweep, trials=0, facts_of=facts_of)
    chosen = {0, 7, 20}

    def predict(share: float, contended: Collection[int]) -> dict[Key, Prediction]:
        return guide.predictions(
            [slow_down(record, share) if index in contended else record for index, record in enumerate(records)]
        )

    without = guide.predictions([record for index, record in enumerate(records) if index not in chosen])
    slowed = predict(1.0, chosen)
    for key, prediction in slowed.items():
        assert without[key] == pytest.approx(prediction, rel=1e-6)
    partly = predict(0.1, chosen)
    for key, prediction in guide.predictions(records).items():
        assert partly[key] == pytest.approx(prediction, rel=0.1)
    assert predict(1.0, range(len(records))).keys() == guide.predictions(records).keys()


def test_the_best_says_whether_it_is_conclusive() -> None:
    """The best compiler is that of uncontended samples, and is marked as conclusive or not."""
    sweep = build_sweep(factors={"width": [16], "depth": [1]}, batch_sizes=[1, 4, 16])
    records = synthetic.make_records(sweep)
    quiet = forecast.best(assemble(sweep, records))
    shares = [0.0] * 4 + [0.1] * 4 + [1.0] * 4
    best = forecast.best(assemble(sweep, list(map(slow_down, records, shares))))

    assert [True, True, True] == quiet["conclusive"].tolist()
    assert [True, True, False] == best["conclusive"].tolist()
    slowest = max(range(4), key=lambda index: np.median(records[index].latency_s))
    slowed = [slow_down(record, 1.0 if index == slowest else 0.0) for index, record in enumerate(records)]
    assert [False, True, True] == forecast.best(assemble(sweep, slowed))["conclusive"].tolist()
    assert best["latency"].tolist() == pytest.approx((quiet["latency"] * [1, 1, 2]).tolist(), rel=0.05)


def test_time_ends_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trials are chosen while there is time for them, by the durations so far; at least one is."""
    now = 100.0
    monkeypatch.setattr("ngbkit.predict.forecast.guide.time.monotonic", lambda: now)
    sweep = build_sweep()
    records = {record.trial_id: record for record in synthetic.make_records(sweep)}
    guide = Guide(sweep, seconds=60.0, facts_of=facts_of)
    recorded: list[Record] = []
    assert guide.left_s() is None
    for _ in range(200):
        ids = guide.next(recorded)
        if not ids:
            break
        recorded += [records[trial_id] for trial_id in ids]
        now += 4.0 * len(ids)

    assert 0 < len(recorded) < len(sweep)
    assert guide.left_s() < 30
    late = Guide(sweep, seconds=1e-6, facts_of=facts_of)
    assert 1 == len(late.next([]))


def test_earlier_runs_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The measurements of earlier runs give predictions before the first trial."""
    sweep = build_sweep()
    trials = {trial.id: trial for trial in sweep.trials()}
    selected = set(np.random.default_rng(0).permutation(len(sweep))[:36].tolist())
    earlier = [
        EarlierTrial(
            trial=trials[record.trial_id],
            seconds=float(np.median(record.latency_s)),
            conclusive=True,
            cost=compute_cost(record),
            facts={},
        )
        for index, record in enumerate(synthetic.make_records(sweep))
        if isinstance(record, Measurement) and index in selected
    ]
    uninformed, informed = (Guide(sweep, trials=5, facts_of=facts_of, earlier=entries) for entries in ([], earlier))

    assert {} == uninformed.predictions()
    predicted = informed.predictions()
    medians = {record.trial_id: np.median(record.latency_s) for record in synthetic.make_records(sweep)}
    errors = [abs(predicted[build_key(trial)][0] / medians[trial.id] - 1) for trial in sweep.trials()]
    assert len(sweep) == len(predicted)
    assert np.median(errors) < 0.1


def test_a_predictor_is_where_a_budget_begins(mlp: Workload) -> None:
    """A predictor predicts its own runtime before any measurement, and no other."""

    class Model:
        def predict(self, graphs: list) -> np.ndarray:
            return np.array([[1e-3 * len(graph_.operators)] for graph_ in graphs])

    nothing = Calibration(models=(), errors=np.empty((0, 1)), fold=np.empty(0, int), network=np.empty(0, int))
    fitted = Predictor(model=Model(), runtimes=(("cpu", "onnxruntime"),), calibration=nothing)
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    data = sweep.estimate(fitted).data

    assert {"predicted"} == set(data["status"].sel(compiler="onnxruntime").values.ravel())
    assert {"pending"} == set(data["status"].sel(compiler="identity").values.ravel())
    operators = len(graph(mlp, 1).operators)
    assert (data["predicted"].sel(compiler="onnxruntime") == pytest.approx(1e-3 * operators)).all()


def test_an_estimate_is_the_prediction_within_the_labels(tmp_path: Path) -> None:
    """It has the latency and the interval of the predictor, and none of a network that is far larger."""
    fitted = fit(build_examples(tmp_path), "linear")
    files = [str(residual(tmp_path, width, 2)) for width in (12, 24, 512)]
    sweep = Sweep(files, ["onnxruntime", "openvino"], devices=["cpu"], repeats=10, threads=1)
    predicted = Guide(sweep, trials=0, predictor=fitted, facts_of=count_blocks).predictions()
    table = fitted.predict(files[:2]).sort_values(["workload", "compiler"])

    names = [workload.name for workload in sweep.workloads]
    assert {(name, compiler) for name in names[:2] for compiler in sweep.compilers} == {
        (key[0], key[3]) for key in predicted
    }
    assert sorted(table["workload"].unique()) == sorted(names[:2])
    expected = [tuple(row) for row in table[["latency", "ci_low", "ci_high"]].to_numpy()]
    for key, values in zip(sorted(predicted, key=lambda key: (key[0], key[3])), expected, strict=True):
        assert values == pytest.approx(predicted[key])


def test_a_budget_on_a_new_device_begins_with_the_suggested_networks(tmp_path: Path) -> None:
    """A predictor of another device says which networks tell most; all compilers are measured on these."""
    fitted = fit(build_examples(tmp_path), "linear", folds=0)
    sweep = build_board_sweep(tmp_path)
    trials = {trial.id: trial.workload for trial in sweep.trials()}
    first = [trials[trial_id] for trial_id in Guide(sweep, trials=12, predictor=fitted, facts_of=count_blocks).next([])]

    assert 4 == len(first)
    assert set(fitted.suggest(sweep, 2)["workload"]) == set(first)


def test_a_predictor_of_another_device_shows_how_latencies_compare(tmp_path: Path) -> None:
    """Nothing is predicted of a new device before a measurement; from a single network, the others follow."""
    fitted = fit(build_examples(tmp_path), "linear")
    sweep = build_board_sweep(tmp_path)
    guide = Guide(sweep, trials=12, predictor=fitted, facts_of=count_blocks)
    columns = {compiler: column for column, (_, compiler) in enumerate(fitted.runtimes)}
    seconds = {
        (workload.name, compiler): 50 * float(fitted.model.predict([graph(workload, 1)])[0, column])
        for workload in sweep.workloads
        for compiler, column in columns.items()
    }
    trials = {trial.id: trial for trial in sweep.trials()}
    records = [
        replace(record, latency_s=(seconds[trials[record.trial_id].workload, trials[record.trial_id].compiler],) * 10)
        for record in synthetic.make_records(sweep)
        if trials[record.trial_id].workload == sweep.workloads[4].name
    ]
    predicted = guide.predictions(records)

    assert {} == guide.predictions()
    assert len(trials) - len(records) == len(predicted)
    for (name, _, _, compiler, _), (latency, _, _) in predicted.items():
        assert seconds[name, compiler] == pytest.approx(latency, rel=0.15)


def test_a_predictor_of_other_compilers_changes_no_prediction(tmp_path: Path) -> None:
    """Its predictions say nothing about the compilers of the sweep."""
    other = replace(fit(build_examples(tmp_path), "linear", folds=0), runtimes=(("cpu", "tvm"), ("cpu", "iree")))
    sweep = build_board_sweep(tmp_path)
    records = synthetic.make_records(sweep)[:4]
    alone, guided = (Guide(sweep, trials=9, predictor=each, facts_of=count_blocks) for each in (None, other))

    assert alone.predictions(records) == guided.predictions(records)


def build_board_sweep(folder: Path) -> Sweep:
    """Build the sweep of nine networks and two compilers on a new device."""
    files = [str(residual(folder, width, blocks)) for width in (8, 16, 32) for blocks in (1, 2, 4)]
    return Sweep(files, ["openvino", "onnxruntime"], devices=["board"], repeats=10, threads=1)


def count_blocks(trial: Trial) -> dict[str, float]:
    return {"macs": float(trial.workload.split("-")[2])}


@pytest.mark.parametrize("budget", ["soon", "-1min", "0%", "120%", 0, math.inf, True, ["1min"], "10 parsecs"])
def test_an_invalid_budget_is_an_error(budget: object) -> None:
    """The error precedes any measurement."""
    with pytest.raises(UsageError, match="expected a number of seconds, a time such as '20min'"):
        build_sweep().start(budget=budget)


def test_a_predictor_without_a_budget_predicts_nothing() -> None:
    """A predictor without a budget is an error."""
    with pytest.raises(UsageError, match="without a budget"):
        build_sweep().start(predictor="some.safetensors")


def test_a_run_measures_what_its_budget_holds(mlp: Workload) -> None:
    """On a real engine, some trials are measured and the others predicted; resumed, the run measures more of them."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 2, 3, 4], repeats=10, threads=1)
    run = sweep.start(budget="50%")
    data = run.result()

    assert ("finished", 4) == (run.state, run.progress.done)
    assert {"ok": 4, "predicted": 4} == dict(zip(*np.unique(data["status"], return_counts=True), strict=True))
    assert 4 == len(forecast.best(data))
    further = ngbkit.resume(run.id, budget="75%").result()
    assert {"ok": 6, "predicted": 2} == dict(zip(*np.unique(further["status"], return_counts=True), strict=True))
    resumed = ngbkit.resume(run.id).result()
    assert {"ok"} == set(resumed["status"].values.ravel())
    latency = data["latency"].values
    assert np.isin(latency[np.isfinite(latency)], resumed["latency"].values).all()


def test_a_budget_cannot_choose_what_has_been_measured(mlp: Workload) -> None:
    """Settling and retrying inconclusive trials are for a run without a budget."""
    run = Sweep(mlp, ["identity"], repeats=6, threads=1).start()
    run.result()

    for keywords in ({"retry": ["inconclusive"]}, {"settling": runs.plan_settling(runs.find(run.id))}):
        with pytest.raises(UsageError, match="a budget chooses among trials that are missing"):
            ngbkit.resume(run.id, budget="50%", **keywords)
    with pytest.raises(UsageError, match="without a budget"):
        ngbkit.resume(run.id, predictor="some.safetensors")


@pytest.mark.guard
def test_an_estimate_measures_nothing(mlp: Workload) -> None:
    """The estimate is empty before the first run and matches the measurements afterwards."""
    sweep = Sweep(mlp, ["identity", "onnxruntime"], [1, 2], repeats=10, threads=1)
    before = sweep.estimate()
    assert (None, "4 trials in 2 groups; the duration is unknown without an earlier run") == (
        before.seconds,
        str(before),
    )
    assert {"pending"} == set(before.data["status"].values.ravel())
    assert before.best().empty
    measured = sweep.run()
    after = sweep.estimate()

    assert after.seconds > 0
    assert "4 trials in 2 groups, about" in str(after)
    assert {"predicted"} == set(after.data["status"].values.ravel())
    ratio = after.data["predicted"] / measured["latency"].median("repeat")
    assert ((ratio > 0.5) & (ratio < 2)).all()
    assert 2 == len(after.best())
