"""The metrics on labelled data: by hand, by property, and their errors without a baseline."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as anything

from ngbkit import metrics
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics.metric import load_frame_metrics

COMPILERS = ["identity", "a", "b"]
BATCHES = [1, 2, 8]
latencies = anything(float, (3, 3, 4), elements=st.floats(1e-4, 1e2))


def values(array: xr.DataArray) -> list:
    return np.round(array.values, 12).tolist()


def grid(latency: np.ndarray, rounds: bool = False) -> xr.Dataset:
    dims = ("compiler", "batch_size", "repeat")
    dataset = xr.Dataset({"latency": (dims, latency)}, {"compiler": COMPILERS, "batch_size": BATCHES})
    if rounds:
        dataset["round"] = (dims, np.broadcast_to([0, 0, 1, 1], latency.shape))
    return dataset


# By hand; `scaling` has throughputs of 2 and 4 (identity), 5 and 8 (fast) at batches 1 and 4.


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (metrics.throughput, [[2.0, 4.0], [5.0, 8.0]]),  # the batch size over the latency
        (metrics.speedup, [[1.0, 1.0], [2.5, 2.0]]),  # the throughput over that of identity
        (metrics.rtr, [[1.0, 2.0], [1.0, 1.6]]),  # the throughput over that at batch size 1
        (metrics.ase, [[1.0, 0.5], [1.0, 0.4]]),  # the RTR over the batch size
        (metrics.bsr, [[1.0, 1.0], [1.0, 0.8]]),  # the ASE over that of identity
    ],
)
def test_metrics_over_batch_sizes_are_as_by_hand(scaling, metric, expected):
    """Throughput, speed-up, RTR, ASE and BSR of two compilers at two batch sizes are as computed by hand."""
    assert expected == values(metric(scaling))


def test_another_baseline(scaling):
    """Over the fast one, identity is 2/5 and 4/8, and its scaling is 0.5/0.4 of the other's."""
    assert [[0.4, 0.5], [1.0, 1.0]] == values(metrics.speedup(scaling, baseline="fast"))
    assert [[1.0, 1.25], [1.0, 1.0]] == values(metrics.bsr(scaling, baseline="fast"))
    assert "speed-up over fast" == metrics.speedup(scaling, baseline="fast").attrs["long_name"]


def test_a_baseline_that_is_not_there_is_named(scaling):
    """The error lists the compilers."""
    with pytest.raises(MetricError, match="relative to the compiler 'slow'; the sweep has identity, fast"):
        metrics.speedup(scaling, baseline="slow")


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0]])
def test_slope_and_retention_are_as_by_hand(deepening, order):
    """Speed-ups 2, 3, 5 at depths 1, 2, 4, in any order, are on a line of slope 1; the deepest has 5, the first 2."""
    data = deepening.isel(depth=order)
    retention = metrics.retention(data)

    assert [[0.0], [1.0]] == values(metrics.depth_slope(data))
    assert [[1.0], [2.5]] == values(retention)
    assert "speed-up at the largest depth over that at the smallest" == retention.attrs["long_name"]


def test_slope_and_retention_over_another_factor(deepening):
    """Any factor is valid; the result is named after it."""
    wide = deepening.rename(depth="width")

    assert [[0.0], [1.0]] == values(metrics.depth_slope(wide, dim="width"))
    assert "width_slope" == metrics.depth_slope(wide, dim="width").name
    assert [[1.0], [2.5]] == values(metrics.retention(wide, dim="width"))


def test_tcr(scaling):
    """Each sample saves 60 bytes; the unit is a million of them."""
    savings = metrics.tcr(scaling, raw_bytes=100, compressed_bytes=40)

    assert [[120.0, 240.0], [300.0, 480.0]] == values(1e6 * savings)


def test_tcr_takes_sizes_along_a_dim(scaling):
    """Sizes that differ between networks are arrays along their dim."""
    dataset = xr.concat([scaling, scaling], xr.Variable("workload", ["x", "y"]))

    savings = metrics.tcr(dataset, raw_bytes=100, compressed_bytes=xr.DataArray([40, 90], {"workload": ["x", "y"]}))

    assert [120.0, 20.0] == values(1e6 * savings.sel(compiler="identity", batch_size=1))


def test_tcr_is_not_negative(scaling):
    """A compressed sample larger than a raw one is rejected: its saving would be negative."""
    with pytest.raises(UsageError, match="larger than a raw one"):
        metrics.tcr(scaling, raw_bytes=10, compressed_bytes=20)
    with pytest.raises(UsageError, match="at least 0"):
        metrics.tcr(scaling, raw_bytes=10, compressed_bytes=-20)


@pytest.fixture
def codec(measured):
    """An encoder and a decoder of one sample a second, with the bytes of their inputs and outputs."""
    data = measured({"workload": ["encoder", "decoder"], "compiler": ["identity"], "batch_size": [1]}, [[[[1.0]]]] * 2)
    return data.assign_coords(input_bytes=("workload", [100, 40]), output_bytes=("workload", [40, 100]))


def test_tcr_is_of_the_bytes_that_ngbkit_counted(codec):
    """An encoder saves its input less its output; a decoder, which expands, has no number."""
    np.testing.assert_allclose([[[60e-6]], [[np.nan]]], metrics.tcr(codec))
    assert [[[90e-6]]] == values(metrics.tcr(codec.isel(workload=[0]), compressed_bytes=10))
    declared = codec.assign_coords(output_bytes=("workload", [30, 100]))
    np.testing.assert_allclose([[[70e-6]], [[np.nan]]], metrics.tcr(declared))


def test_tcr_needs_a_network_that_compresses(codec, scaling):
    """The errors of a decoder alone, and of a dataset without counts, have the arguments that state the bytes."""
    with pytest.raises(
        MetricError, match=r"tcr\(\) is of networks that compress: .* State the bytes .* by raw_bytes=…"
    ):
        metrics.tcr(codec.isel(workload=[1]))
    with pytest.raises(MetricError, match=r"this dataset lacks output_bytes\. State them by compressed_bytes=…"):
        metrics.tcr(scaling, raw_bytes=100)


def test_failures_are_a_table(measured):
    """Trials that are not ok are listed with labels, status and error, and no cell that nobody requested is."""
    labels = {"device": ["cpu"], "workload": ["net"], "compiler": ["identity", "a"], "batch_size": [1]}
    data = measured(labels, [[[[[1.0]], [[np.nan]]]]])
    table = data.ngb.failures()
    unrequested = data.assign(status=data["status"].where(data["status"] == "ok", "")).ngb.failures()

    assert [("net", "cpu", "a", 1, "failed", "boom")] == list(table.itertuples(index=False, name=None))
    assert ["workload", "device", "compiler", "batch_size", "status", "error"] == list(table.columns)
    assert [] == unrequested["workload"].tolist()


# By property.


@given(latencies, st.booleans())
def test_identities_of_the_definitions(latency, rounds):
    """BSR of identity is 1, RTR(1) is 1, and ASE(b) is RTR(b)/b."""
    dataset = grid(latency, rounds)
    rtr, ase, bsr = metrics.rtr(dataset), metrics.ase(dataset), metrics.bsr(dataset)

    np.testing.assert_allclose(1.0, bsr.sel(compiler="identity"))
    np.testing.assert_allclose(1.0, bsr.sel(batch_size=1))
    np.testing.assert_allclose(1.0, rtr.sel(batch_size=1))
    np.testing.assert_allclose(rtr / rtr["batch_size"], ase)


@pytest.mark.guard
@given(latencies)
def test_both_forms_of_bsr_agree(latency):
    """The ratio of ASE and the ratio of speed-ups give the same BSR if no rounds are paired."""
    dataset = grid(latency)
    ase = metrics.ase(dataset)

    np.testing.assert_allclose(ase / ase.sel(compiler="identity"), metrics.bsr(dataset))


@given(anything(float, (3, 3), elements=st.floats(1e-4, 1e2)))
def test_pairing_changes_nothing_on_clean_data(latency):
    """If all samples of a trial are equal, paired and plain speed-ups agree, and so do both forms of BSR."""
    steady = np.repeat(latency[..., None], 4, axis=-1)
    ase = metrics.ase(grid(steady, rounds=True))

    np.testing.assert_allclose(metrics.speedup(grid(steady)), metrics.speedup(grid(steady, rounds=True)))
    np.testing.assert_allclose(ase / ase.sel(compiler="identity"), metrics.bsr(grid(steady, rounds=True)))


@pytest.mark.guard
@given(latencies, st.floats(0.01, 100), st.booleans())
def test_a_slower_machine_changes_no_ratio(latency, factor, rounds):
    """Scaling all latencies scales throughput inversely and leaves every ratio unchanged."""
    usual, slower = grid(latency, rounds), grid(latency * factor, rounds)

    np.testing.assert_allclose(metrics.throughput(usual) / factor, metrics.throughput(slower))
    for metric in (metrics.speedup, metrics.rtr, metrics.ase, metrics.bsr):
        np.testing.assert_allclose(metric(usual), metric(slower))


@given(latencies, st.permutations(COMPILERS), st.booleans())
def test_the_order_of_compilers_does_not_matter(latency, order, rounds):
    """Each compiler has the same numbers at any position."""
    dataset = grid(latency, rounds)

    for metric in (metrics.speedup, metrics.rtr, metrics.ase, metrics.bsr):
        xr.testing.assert_allclose(metric(dataset).sel(compiler=order), metric(dataset.sel(compiler=order)))


def test_drift_cancels_in_speedup_and_bsr(measured):
    """A group that drifts from round to round keeps its speed-up of 2, unlike with plain medians."""
    drift = np.array([1.0, 1.0, 5.0])
    latency = [[2.0 * drift], [[1.0, np.nan, 5.0]]]  # the second has no sample in round 1

    dataset = measured({"compiler": ["identity", "a"], "batch_size": [1]}, latency, [[[0, 1, 2]], [[0, -1, 2]]])

    assert [[1.0], [2.0]] == values(metrics.speedup(dataset))
    assert [[1.0], [round(2 / 3, 12)]] == values(metrics.speedup(dataset.drop_vars("round")))


# Missing trials.


def test_a_failed_trial_stays_nan(scaling):
    """A failed trial is NaN, and so are trials relative to it; the rest is unchanged."""
    scaling["latency"].loc[{"compiler": "fast", "batch_size": 4}] = np.nan

    np.testing.assert_array_equal([[1.0, 1.0], [2.5, np.nan]], metrics.speedup(scaling))
    np.testing.assert_array_equal([[1.0, 1.0], [1.0, np.nan]], metrics.bsr(scaling))


def test_a_failed_baseline_leaves_nothing_to_compare_with(scaling):
    """A speed-up is NaN where its baseline failed, and the RTR of other compilers is not."""
    scaling["latency"].loc[{"compiler": "identity", "batch_size": 4}] = np.nan

    np.testing.assert_array_equal([[1.0, np.nan], [2.5, np.nan]], metrics.speedup(scaling))
    np.testing.assert_allclose([[1.0, np.nan], [1.0, 1.6]], metrics.rtr(scaling))


def test_a_failed_depth_is_left_out_of_the_slope_but_not_of_the_retention(deepening):
    """The slope ignores missing depths; a retention needs the deepest."""
    deepening["latency"].loc[{"compiler": "fast", "depth": 4}] = np.nan

    np.testing.assert_allclose([[0.0], [1.0]], metrics.depth_slope(deepening), atol=1e-12)
    np.testing.assert_array_equal([[1.0], [np.nan]], metrics.retention(deepening))


@pytest.mark.parametrize("name", ["rtr", "ase", "bsr"])
def test_a_missing_batch_size_names_the_trials_to_add(scaling, name):
    """The error of a missing batch size 1 has the batch sizes to add in Python and in a shell."""
    with pytest.raises(MetricError) as raised:
        getattr(metrics, name)(scaling.sel(batch_size=[4]))

    expected = f"{name}() is relative to batch size 1; the sweep has 4. Add batch_sizes=[1, …] or -b 1,4."
    assert expected == str(raised.value)


@pytest.mark.parametrize("name", ["speedup", "bsr", "depth_slope", "retention"])
def test_a_missing_identity_names_the_trials_to_add(deepening, name):
    """The error of a missing identity has the compilers to add in Python and in a shell."""
    with pytest.raises(MetricError) as raised:
        getattr(metrics, name)(deepening.sel(compiler=["fast"]))

    expected = (
        f"{name}() is relative to the compiler 'identity'; the sweep has fast. "
        "Add compilers=['identity', …] or -c identity,fast."
    )
    assert expected == str(raised.value)


def test_a_selection_without_its_baseline_says_to_select_later(scaling):
    """The error for an early selection recommends to select after the metric."""
    with pytest.raises(
        MetricError, match=r"only 4\. Compute the metric first, .* ds\.ngb\.bsr\(\)\.sel\(batch_size=4\)"
    ):
        metrics.bsr(scaling.sel(batch_size=4))
    with pytest.raises(MetricError, match=r"ds\.ngb\.speedup\(\)\.sel\(compiler='fast'\)"):
        metrics.speedup(scaling.sel(compiler="fast"))


def test_a_selection_of_the_baseline_itself_is_1(scaling):
    """A selection of identity, or of batch size 1, is its own baseline."""
    assert [1.0, 1.0] == values(metrics.speedup(scaling.sel(compiler="identity")))
    assert [1.0, 1.0] == values(metrics.bsr(scaling.sel(batch_size=1)))


@pytest.mark.parametrize("name", ["depth_slope", "retention"])
def test_one_depth_is_not_enough(deepening, name):
    """The error of fewer than two depths has the factor to sweep."""
    with pytest.raises(MetricError, match=r"the sweep has only depth 2\. Add factors=.* --factor depth=2,…"):
        getattr(metrics, name)(deepening.sel(depth=2))
    with pytest.raises(MetricError, match=r"it varies depth\. Add .* --factor width="):
        getattr(metrics, name)(deepening, dim="width")
    with pytest.raises(MetricError, match=r"the sweep has no factor 'depth'"):
        getattr(metrics, name)(deepening.isel(depth=0, drop=True))


# Labels.


def test_every_metric_has_its_name_and_unit(scaling):
    """Name, units and long_name are set on each."""
    for name, record in load_frame_metrics().items():
        if not record.is_in(scaling):
            continue
        metric = getattr(metrics, name)(scaling)

        assert (name, record.units, record.describe()) == (
            metric.name,
            metric.attrs["units"],
            metric.attrs["long_name"],
        )
        assert ("compiler", "batch_size") == metric.dims


def test_throughput_alone_will_do(scaling):
    """A dataset whose samples were dropped has the same ratios, from its throughput."""
    lean = xr.Dataset({"throughput": metrics.throughput(scaling)})

    xr.testing.assert_identical(metrics.bsr(scaling), metrics.bsr(lean))
