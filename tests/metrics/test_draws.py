"""Metrics with intervals: their coverage, their width, and the errors without data for them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from ngbkit import metrics
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics import draws, ratios
from ngbkit.metrics.rankings.networks import compare_candidates, list_cells

DEPTHS, BATCHES = [1, 2, 4], [1, 2, 8]
SCALED = ("rtr", "ase", "bsr")
EVERY = ("throughput", "speedup", *SCALED, "depth_slope", "retention", "break_even")


def true_latency() -> xr.DataArray:
    """Seconds per call on a machine without noise; the speed-ups differ by depth and by batch size."""
    depth, batch = np.array(DEPTHS)[:, None], np.array(BATCHES)[None, :]
    both = np.stack([0.01 * depth * batch**0.9, 0.01 * depth**0.9 * batch**0.8 / 1.5])
    coords = {"compiler": ["identity", "a"], "depth": DEPTHS, "batch_size": BATCHES}
    return xr.DataArray(both, coords, list(coords))


def noisy(networks: int, *, rounds: int = 20, drift: float = 0.05, seed: int = 0) -> xr.Dataset:
    """Networks of the same true latencies, with two samples per round; `drift` is common to a round."""
    generator = np.random.default_rng(seed)
    quiet = true_latency().expand_dims(workload=[f"net{number}" for number in range(networks)])
    quiet = quiet.transpose("workload", "depth", "compiler", "batch_size")

    def sampled(values: np.ndarray, shared: np.ndarray) -> np.ndarray:
        noise = np.exp(generator.normal(0, 0.03, (*values.shape, rounds)))
        return np.repeat(values[..., None] * shared * noise, 2, axis=-1)

    shared = np.exp(generator.normal(0, drift, (networks, len(DEPTHS), len(BATCHES), rounds)))
    latency = sampled(quiet.values, shared[:, :, None])
    first = quiet.sel(compiler="identity", batch_size=[1] * len(BATCHES)).values
    numbers = np.repeat(np.arange(rounds, dtype=np.int32), 2)
    dims = quiet.dims
    rest = tuple(dim for dim in dims if dim != "compiler")
    dataset = xr.Dataset(
        {
            "latency": ((*dims, "repeat"), latency),
            "round": ((*dims, "repeat"), np.broadcast_to(numbers, latency.shape).copy()),
            "anchor_latency": ((*rest, "repeat"), sampled(first, shared)),
        },
        {dim: quiet[dim] for dim in dims},
    )
    dataset["anchor_round"] = xr.zeros_like(dataset["anchor_latency"], dtype=np.int32) + numbers
    dataset["compile_time"] = xr.zeros_like(quiet) + xr.DataArray([0.0, 2.0], dims="compiler")
    # Two processes of this machine do not differ.
    return dataset.assign_attrs(environments=json.dumps({"": {"selfcheck": {"process_sd": 0.0}}}))


def truth(name: str) -> xr.DataArray:
    """A metric of the true latencies."""
    quiet = true_latency().expand_dims(repeat=1)
    exact = xr.Dataset({"latency": quiet, "compile_time": xr.zeros_like(quiet[0])})
    exact["compile_time"] = exact["compile_time"] + xr.DataArray([0.0, 2.0], dims="compiler")
    return getattr(metrics, name)(exact)


@pytest.fixture(scope="module")
def many() -> xr.Dataset:
    return noisy(150)


@pytest.mark.parametrize("name", EVERY)
def test_intervals_cover_as_often_as_they_say(many, name):
    """Over 150 networks of the same true value, the 95 % interval covers it in 93 % or a little more of them.

    Of ratios of several medians it is wider than need be: each bootstrap of few rounds is, each may take chance for an
    autocorrelation, and they add up.
    """
    intervals = getattr(metrics, name)(many, ci=0.95)

    covered = (intervals["ci_low"] <= truth(name)) & (truth(name) <= intervals["ci_high"])
    relevant = covered.sel(compiler="a")
    if name in SCALED:
        relevant = relevant.sel(batch_size=[2, 8])  # at batch size 1 it is 1
    assert 0.93 <= float(relevant.mean()) <= 0.995


def test_friction_covers_too(many):
    """Friction is computed from two slopes, and so are its replicates."""
    intervals = metrics.friction(many, dim="depth", ci=0.95)
    true = truth("ase")
    falls = [np.polyfit(np.log2(BATCHES), -np.log2(true.sel(compiler="a", depth=depth)), 1)[0] for depth in DEPTHS]
    expected = np.polyfit(np.log2(DEPTHS), falls, 1)[0]

    bounds = intervals.sel(compiler="a")
    assert 0.93 <= float(((bounds["ci_low"] <= expected) & (expected <= bounds["ci_high"])).mean()) <= 1


@pytest.mark.parametrize("name", EVERY)
def test_with_an_interval_a_metric_is_a_dataset(name):
    """A metric with an interval is a dataset with its value and both ends."""
    data = noisy(2)
    point, intervals = getattr(metrics, name)(data), getattr(metrics, name)(data, ci=0.9)

    assert [point.name, "ci_low", "ci_high", "conclusive"] == list(intervals)
    assert {"ci": 0.9} == intervals.attrs
    xr.testing.assert_identical(point, intervals[point.name])
    for end in ("ci_low", "ci_high"):
        assert point.attrs["units"] == intervals[end].attrs["units"]
        assert f"end of the 90 % interval: {point.attrs['long_name']}" in intervals[end].attrs["long_name"]
        assert point.dims == intervals[end].dims
    is_finite = np.isfinite(intervals["ci_high"] - intervals["ci_low"])
    assert is_finite.sel(compiler="a").all()
    assert (intervals["ci_low"] <= point).where(is_finite, True).all()
    assert (point <= intervals["ci_high"]).where(is_finite, True).all()


@pytest.mark.parametrize("name", EVERY)
def test_the_same_data_has_the_same_interval(name):
    """The random generator is seeded."""
    data = noisy(2)

    xr.testing.assert_identical(getattr(metrics, name)(data, ci=0.95), getattr(metrics, name)(data, ci=0.95))


def test_a_column_over_itself_is_1_without_doubt():
    """The width is 0 for identity's speed-up and for batch size 1 in RTR and BSR, and only there."""
    data = noisy(2)

    for name, reference in (
        ("speedup", {"compiler": "identity"}),
        ("rtr", {"batch_size": 1}),
        ("bsr", {"batch_size": 1}),
    ):
        intervals = getattr(metrics, name)(data, ci=0.95)
        width = intervals["ci_high"] - intervals["ci_low"]
        np.testing.assert_array_equal(0, width.sel(reference))
        assert (width.drop_sel({dim: [label] for dim, label in reference.items()}) > 0).any()


def test_drift_that_pairing_cancels_is_not_in_the_interval():
    """Drift that affects all compilers of a round leaves the interval as narrow as on a quiet machine."""
    quiet, drifting = (metrics.speedup(noisy(20, drift=drift), ci=0.95).sel(compiler="a") for drift in (0, 0.5))

    widths = [float((intervals["ci_high"] - intervals["ci_low"]).mean()) for intervals in (quiet, drifting)]
    assert pytest.approx(widths[0], rel=0.1) == widths[1]


def test_rounds_that_two_do_not_share_are_drawn_by_themselves():
    """Columns without common rounds are compared by medians, and drift widens the interval."""
    shared = noisy(20, drift=0.1)
    unshared = shared.copy()
    unshared["round"] = unshared["round"] + 100 * (unshared["compiler"] == "a")

    paired, single = (metrics.speedup(data, ci=0.95).sel(compiler="a") for data in (shared, unshared))

    ratio = (single["ci_high"] - single["ci_low"]).mean() / (paired["ci_high"] - paired["ci_low"]).mean()
    # Rounds: sqrt(2 * (0.1^2 + 0.03^2)) over sqrt(2) * 0.03 is 3.5; other minutes widen it further.
    assert 3 < float(ratio) < 9


@pytest.mark.parametrize("shift", [0, 100])
def test_a_table_and_a_comparison_have_the_same_interval(shift: int):
    """A speed-up over identity has one interval, whichever function tells it, of shared rounds and of other minutes."""
    data = noisy(6, drift=0.01).expand_dims(device=["cpu"])
    # A virtual machine: 10 % from minute to minute are most of what columns of other minutes differ by.
    data.attrs["environments"] = json.dumps({"cpu": {"conditions": {"virtual_machine": True}}})
    data["round"] = data["round"] + shift * (data["compiler"] == "a")
    table = metrics.speedup(data, ci=0.95).sel(device="cpu", compiler="a")

    for (_, batch_size), columns in list_cells(data, "speedup", None, "error", untuned=False).items():
        baselines = {column.network: column for column in columns if column.compiler == "identity"}
        for column in (column for column in columns if column.compiler == "a"):
            cell = table.sel(workload=column.workload, depth=column.factors["depth"], batch_size=batch_size)
            comparison = compare_candidates(column, baselines[column.network], 0.95)
            np.testing.assert_allclose(float(cell["speedup"]), float(comparison.estimate), rtol=1e-12)
            bounds = comparison.estimate.low, comparison.estimate.high
            np.testing.assert_allclose([cell["ci_low"], cell["ci_high"]], bounds, rtol=0.02 if shift else 1e-12)


def test_what_two_processes_differ_by_widens_a_ratio():
    """The self-check's deviation of 10 % between processes is far more than rounds of one process can show."""
    data = noisy(5).expand_dims(device=["cpu"])
    aware = data.assign_attrs(environments=json.dumps({"cpu": {"selfcheck": {"process_sd": 0.1}}}))

    for name, selection in (("speedup", {"compiler": ["a"]}), ("bsr", {"compiler": ["a"], "batch_size": [2, 8]})):
        narrow, wide = (getattr(metrics, name)(dataset, ci=0.95).sel(selection) for dataset in (data, aware))
        xr.testing.assert_equal(narrow[name], wide[name])
        spread = np.log(wide["ci_high"] / wide["ci_low"]) / 2
        assert 1.7 * 0.1 < float(spread.mean()) < 3.5 * 0.1
    baseline = metrics.speedup(aware, ci=0.95).sel(compiler="identity")
    np.testing.assert_array_equal(1, baseline["ci_high"])


def test_a_rule_that_stopped_the_measurement_widens_its_interval():
    """A stopping rule widens the intervals of the stopped networks alone."""
    data = noisy(40)
    stopped = data.assign(looks=xr.zeros_like(data["compile_time"]) + (data["workload"] == "net1") * 3)

    fixed, adaptive = (metrics.speedup(dataset, ci=0.95).sel(compiler="a") for dataset in (data, stopped))

    ratio = (adaptive["ci_high"] - adaptive["ci_low"]) / (fixed["ci_high"] - fixed["ci_low"])
    assert (ratio.sel(workload="net1") > 1).all()
    np.testing.assert_array_equal(1, ratio.drop_sel(workload="net1"))


def test_too_few_rounds_have_no_interval():
    """Five rounds yield a speed-up and a 90 % interval, but no 95 % interval."""
    data = noisy(2, rounds=5)

    assert metrics.speedup(data, ci=0.95)["speedup"].notnull().all()
    assert metrics.speedup(data, ci=0.95)["ci_low"].isnull().all()
    assert metrics.speedup(data, ci=0.9)["ci_low"].notnull().all()


def test_a_slope_has_no_interval_where_one_of_its_points_has_none():
    """The slope of the other points belongs to another line."""
    data = noisy(2)
    excess = (data["workload"] == "net0") & (data["depth"] == 4) & (data["round"] > 3)
    data["latency"] = data["latency"].where(~excess)

    slopes = metrics.depth_slope(data, ci=0.95).sel(compiler="a")

    assert slopes["depth_slope"].notnull().all()
    assert slopes["ci_low"].sel(workload="net0").isnull().all()
    assert slopes["ci_low"].sel(workload="net1").notnull().all()


def test_a_failed_trial_has_no_interval():
    """The interval of a failed trial is NaN, and the other trials are unchanged."""
    data = noisy(2)
    data["latency"].loc[{"workload": "net0", "compiler": "a", "batch_size": 8}] = np.nan

    intervals = metrics.bsr(data, ci=0.95)

    assert 3 == int(intervals["bsr"].isnull().sum())
    xr.testing.assert_equal(intervals["bsr"].isnull(), intervals["ci_low"].isnull().rename("bsr"))


@pytest.mark.parametrize("ci", [0, 1, 95, -0.5])
def test_a_level_is_a_probability(ci):
    """Percentages are rejected, with a valid example."""
    with pytest.raises(UsageError, match=r"invalid ci: got .*; expected a probability between 0 and 1, such as 0\.95"):
        metrics.bsr(noisy(1), ci=ci)


def test_without_rounds_there_is_nothing_to_bootstrap_over():
    """The error names the missing data; the metric itself is computed."""
    data = noisy(1).drop_vars("round")

    assert metrics.speedup(data).notnull().all()
    with pytest.raises(MetricError, match=r"speedup\(ci=0\.95\) bootstraps over rounds"):
        metrics.speedup(data, ci=0.95)


def test_intervals_of_a_tree():
    """Each node has its own intervals."""
    tree = xr.DataTree.from_dict({"/a": noisy(1), "/b": noisy(2)})

    intervals = tree.ngb.bsr(ci=0.95)

    for name in ("a", "b"):
        xr.testing.assert_identical(metrics.bsr(tree[name].to_dataset(), ci=0.95), intervals[name].to_dataset())
    xr.testing.assert_identical(intervals, metrics.bsr(tree, ci=0.95))


def test_a_dataset_that_nobody_measured_is_named():
    """The error says which variables came, as those of a predictor, and where the dataset of a run is from."""
    with pytest.raises(MetricError, match=r"got the variables seconds; speedup\(\) expects throughput or latency"):
        metrics.speedup(xr.Dataset({"seconds": ("network", [1.0])}))


def test_data_is_worked_on_in_parts(monkeypatch):
    """Each part has few trials, so that its replicates fit into memory, and each trial is in one part."""
    monkeypatch.setattr(draws, "_TRIALS", 40)
    data = ratios.prepare(noisy(7))
    counts = xr.zeros_like(data["throughput"])

    for part in draws.split(data["medians"].sizes, ("device", "compiler", "batch_size", "rounds")):
        assert data["throughput"].isel(part).size <= 40
        counts[part] = counts[part] + 1

    np.testing.assert_array_equal(1, counts)
    assert metrics.bsr(noisy(7), ci=0.95)["ci_low"].notnull().all()


@pytest.mark.parametrize("name", [*EVERY, "friction"])
def test_a_mark_survives_every_metric(name: str):
    """A value is inconclusive exactly where it changes with the trial whose rounds were contended."""
    data, metric = noisy(1), getattr(metrics, name)
    dims = {"dim": "depth"} if name == "friction" else {}
    is_trial = (data["depth"] == 4) & (data["compiler"] == "a") & (data["batch_size"] == 8)
    contended = is_trial.broadcast_like(data["latency"]).transpose(*data["latency"].dims).astype(np.int8)
    slower = data.assign(latency=data["latency"] * xr.where(is_trial, 3.0, 1.0))
    marks = ~metric(data.assign(contended=contended), ci=0.9, **dims)["conclusive"]
    values, changed = metric(data, **dims), metric(slower, **dims)

    np.testing.assert_array_equal(~np.isclose(values, changed, equal_nan=True), marks)
    assert marks.any()
