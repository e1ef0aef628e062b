"""Merged trials: each is copied whole from one run, with the anchor of its group; other data is rejected."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import xarray as xr
from mergeable import load_attribute, network, records, reorder_like, run, sweep

from ngbkit import merge
from ngbkit.dataset import assembly as datasets
from ngbkit.errors import UsageError
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import Failure


def test_every_label_is_there_and_what_nobody_asked_for_has_no_status():
    """The join is an outer one; numbers are sorted; dtypes and units are those of a run's own dataset."""
    first = run(sweep(network("a"), compilers=[BASELINE, "openvino"], batch_sizes=[1, 8]))
    second = run(sweep(network("b"), compilers=["onnxruntime", "openvino"], batch_sizes=[4], devices=["orin"]), seed=1)

    merged = merge(second, first)

    labels = {dim: merged[dim].values.tolist() for dim in ("device", "workload", "compiler", "batch_size")}
    assert ["orin", "cpu"] == labels["device"]
    assert ["b", "a"] == labels["workload"]
    assert [BASELINE, "onnxruntime", "openvino"] == labels["compiler"]
    assert [1, 4, 8] == labels["batch_size"]
    assert {"": 30, "ok": 6} == dict(zip(*np.unique(merged["status"].astype(str), return_counts=True), strict=True))
    missing = merged.sel(device="orin", workload="a").drop_vars(
        ("status", "round", "contended", "anchor_round", "anchor_contended")
    )
    assert all(not values.notnull().any() or {""} == {*values.values.ravel()} for values in missing.data_vars.values())
    assert {-1} == {*merged["round"].sel(device="orin", workload="a").values.ravel().tolist()}
    assert {name: values.dtype for name, values in first.variables.items()} == {
        name: values.dtype for name, values in merged.variables.items()
    }
    assert {name: values.attrs for name, values in first.variables.items()} == {
        name: values.attrs for name, values in merged.variables.items()
    }


def test_samples_are_padded_to_the_longest():
    """Missing samples are NaN, without a round; the numbers of the rounds are unchanged."""
    few, many = (run(sweep(repeats=count, devices=[device])) for count, device in ((10, "cpu"), (30, "orin")))

    merged = merge(few, many)

    cell = merged.sel(device="cpu", workload="net", compiler="openvino", batch_size=4)
    trial = few.sel(device="cpu", workload="net", compiler="openvino", batch_size=4)
    assert 30 == merged.sizes["repeat"]
    assert [*trial["latency"].values, *[None] * 20] == [
        None if np.isnan(each) else each for each in cell["latency"].values
    ]
    assert [*trial["round"].values, *[-1] * 20] == cell["round"].values.tolist()
    assert [*trial["anchor_round"].values, *[-1] * 20] == cell["anchor_round"].values.tolist()


def test_what_was_asked_for_and_not_measured_is_pending():
    """The pending trials of a stopped run stay pending; cells that no run requested have an empty status."""
    grid = sweep(network("a"), compilers=[BASELINE], batch_sizes=[1, 4])
    stopped = datasets.assemble(grid, records(grid)[:1])
    other = run(sweep(network("b"), compilers=[BASELINE, "openvino"], batch_sizes=[1]), seed=1)

    merged = merge(stopped, other)

    statuses = {
        (workload, compiler, size): merged["status"].sel(workload=workload, compiler=compiler, batch_size=size).item()
        for workload in "ab"
        for compiler in (BASELINE, "openvino")
        for size in (1, 4)
    }
    measured = [("b", BASELINE, 1), ("b", "openvino", 1)]
    assert {"ok"} == {statuses.pop(each) for each in measured}
    assert ["ok", "pending"] == sorted(statuses.pop(("a", BASELINE, size)) for size in (1, 4))
    assert {""} == {*statuses.values()}
    xr.testing.assert_identical(merged, merge(merged, stopped))


def test_a_trial_that_two_have_measured_is_an_error():
    """The error of a trial that two runs measured has its name and a remedy."""
    first, second = (run(sweep(network("c", depth=(1, 2)), batch_sizes=[1, 2, 4]), seed=seed) for seed in (1, 2))

    with pytest.raises(UsageError) as raised:
        merge(first, second.sel(compiler=["openvino"]))

    message = str(raised.value)
    assert message.startswith("6 of 18 trials were measured more than once")
    assert "c depth=1 batch 1 openvino on cpu, " in message
    assert "and 3 more. Exclude them from one dataset by .sel(…) or .drop_sel(…)" in message
    merged = merge(first.drop_sel(compiler="openvino"), second.sel(compiler="openvino"))
    xr.testing.assert_equal(second["latency"].sel(compiler="openvino"), merged["latency"].sel(compiler="openvino"))
    assert 2 == merge(first, second.assign_coords(device=["cpu-2"])).sizes["device"]


def test_a_failure_is_a_result_and_no_less_than_a_measurement():
    """A failure replaces a pending trial and conflicts with a measurement."""
    grid = sweep(compilers=[BASELINE], batch_sizes=[1])
    failure = Failure(trial_id=grid.trials()[0].id, status="crashed", stage="measure", error="signal 11")
    failed, pending = datasets.assemble(grid, [failure]), datasets.assemble(grid, [])

    assert "crashed" == merge(pending, failed)["status"].item()
    with pytest.raises(UsageError, match=r"1 of 1 trials were measured more than once.*net batch 1 identity on cpu"):
        merge(failed, datasets.assemble(grid, records(grid)))


@pytest.mark.parametrize(
    ("name", "value"), [("latency", 1.0), ("contended", 1), ("peak_memory", np.nan), ("facts", "{}"), ("round", None)]
)
def test_the_same_but_for_one_value_is_not_the_same(name, value):
    """A difference in any variable, or its absence, shows that a trial was measured twice."""
    dataset = run(sweep())
    changed = dataset.drop_vars(name) if value is None else dataset.copy(deep=True)
    if value is not None:
        changed[name].values[0, 0, 1, 1] = value

    for order in ([dataset, changed], [changed, dataset]):
        with pytest.raises(UsageError, match="of 6 trials were measured more than once"):
            merge(order)


def test_a_variable_that_only_one_has_is_missing_in_the_other():
    """A variable that a user dropped from one dataset is empty there after a merge."""
    old = run(sweep(devices=["old"])).drop_vars(["contended", "looks", "error", "anchor_latency", "anchor_round"])

    merged = merge(old, run(sweep(devices=["new"])))

    assert {0} == {*merged["contended"].sel(device="old").values.ravel().tolist()}
    assert {""} == {*merged["error"].sel(device="old").values.ravel().tolist()}
    assert bool(merged["looks"].sel(device="old").isnull().all())
    assert bool(merged["anchor_latency"].sel(device="old").isnull().all())
    assert bool(merged["anchor_latency"].sel(device="new", batch_size=4).notnull().all())


def test_an_anchor_is_of_the_run_that_measured_the_baseline():
    """If two runs share a group, the anchor of the run without the baseline is dropped."""
    first, second = run(sweep(), seed=1), run(sweep(), seed=2)
    parts = [first.drop_sel(compiler=BASELINE), second.sel(compiler=[BASELINE])]

    for order in (parts, parts[::-1]):
        merged = merge(order)
        xr.testing.assert_equal(second[["anchor_latency", "anchor_round"]], merged[["anchor_latency", "anchor_round"]])


def test_of_two_anchors_without_a_baseline_none_stays():
    """A single anchor is kept: it is from the rounds of its group."""
    first, second = (run(sweep(), seed=seed) for seed in (1, 2))
    parts = [first.sel(compiler=["openvino"]), second.sel(compiler=["onnxruntime"])]

    assert bool(merge(parts)["anchor_latency"].isnull().all())
    xr.testing.assert_equal(first["anchor_latency"], merge(parts[0])["anchor_latency"])


@pytest.mark.parametrize("dim", ["device", "workload", "compiler", "batch_size", "depth"])
def test_a_selection_of_one_label_still_has_it(dim):
    """A scalar left by `.sel` becomes a label again, with its facts and anchors."""
    depths = {datasets.facts_key("c", {"depth": depth}): {"parameters": 10 * depth} for depth in (1, 2)}
    dataset = run(
        sweep(network("c", depth=(1, 2)), devices=["cpu", "orin"], compilers=[BASELINE, "openvino"]), facts=depths
    )
    labels = dataset[dim].values.tolist()

    merged = merge(*(dataset.sel({dim: label}) for label in labels))

    xr.testing.assert_identical(dataset, reorder_like(merged, dataset))
    assert load_attribute(dataset, "sweep") == load_attribute(merged, "sweep")


def test_what_is_no_dataset_of_a_run_is_refused():
    """The message reports the argument and a remedy."""
    dataset = run(sweep())

    with pytest.raises(UsageError, match=r"got a str; expected datasets and trees\..*ngbkit.load\(path\)"):
        merge("laptop.nc")
    with pytest.raises(UsageError, match="nothing to merge"):
        merge()
    with pytest.raises(UsageError, match=r"got a dataset without status; .* Merge first"):
        merge(dataset, dataset.drop_vars("status"))
    with pytest.raises(
        UsageError, match=r"invalid labels of device: got .*'cpu', 'cpu'.*expected distinct texts or numbers"
    ):
        merge(xr.concat([dataset, dataset], "device"))
    with pytest.raises(UsageError, match=r"cannot merge gain: it is along device.*drop_vars\(\"gain\"\)"):
        merge(dataset.assign(gain=("device", [1.0])))
    with pytest.raises(UsageError, match=r"cannot merge latency: it has samples in one.*drop_vars\(\"latency\"\)"):
        merge(dataset, dataset.assign_coords(device=["b"]).assign(latency=lambda data: data["latency"].mean("repeat")))


def test_compilers_of_one_group_from_different_runs_are_told_not_to_have_taken_turns():
    """A warning reports compilers of one group from different runs."""
    first, second = (run(sweep(), seed=seed).assign_attrs(run_id=f"run-{seed}") for seed in (1, 2))

    with pytest.warns(UserWarning, match="compilers of different runs, which were not interleaved"):
        merge(first.drop_sel(compiler="openvino"), second.sel(compiler=["openvino"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        merge(first, second.assign_coords(device=["other"]))


@pytest.mark.parametrize("name", ["sweep", "environments", "facts"])
def test_a_damaged_attribute_is_named(name):
    """The error is a sentence, whichever of the datasets is damaged."""
    damaged = run(sweep(network("a"))).assign_attrs({name: "{"})

    for pair in ((run(sweep(network("b"))), damaged), ([damaged, run(sweep(network("b")))],)):
        with pytest.raises(UsageError, match=f"not as that of a run: {name} is no JSON object"):
            merge(*pair)
