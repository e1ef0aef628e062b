"""The arithmetic of the metrics, by hand and by property."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as anything

from ngbkit.metrics import arrays

nan = np.nan
latencies = st.floats(1e-5, 1e3)


def test_a_ratio_over_nothing_is_nan():
    """A zero or missing denominator gives NaN, without a warning."""
    quotient = arrays.ratio([6.0, 1.0, nan, 1.0], [3.0, 0.0, 1.0, nan])

    np.testing.assert_array_equal([2.0, nan, nan, nan], quotient)


def test_the_median_of_no_samples_at_all_is_nan():
    """An axis of length zero yields NaN."""
    np.testing.assert_array_equal([nan, nan], arrays.median(np.empty((2, 0))))


@given(anything(float, (3, 5), elements=st.floats(-1e6, 1e6) | st.just(nan)), st.integers(0, 1))
def test_the_median_is_numpys(samples, axis):
    """The median equals numpy.nanmedian along any axis."""
    medians = arrays.median(samples, axis)

    for column, value in zip(np.moveaxis(samples, axis, -1), medians, strict=True):
        present = column[~np.isnan(column)]
        np.testing.assert_allclose(np.median(present) if len(present) else nan, value)


def test_throughput_is_batch_over_median_latency():
    """Eight samples in a median of 0.25 s are 32 per second."""
    assert 32.0 == arrays.throughput([0.5, 0.25, 0.2], 8)


def test_each_round_has_its_median():
    """Samples are grouped by round, in any order, and a round without a sample is NaN."""
    latency = [[1.0, 3.0, 5.0, 9.0], [7.0, 2.0, 4.0, nan], [nan, nan, nan, nan]]
    rounds = [[0, 0, 1, 1], [2, 0, 0, -1], [-1, -1, -1, -1]]

    medians = arrays.round_medians(latency, rounds)

    # (1 + 3) / 2 and (5 + 9) / 2; (2 + 4) / 2 and 7; nothing
    np.testing.assert_array_equal([[2.0, 7.0, nan], [3.0, nan, 7.0], [nan, nan, nan]], medians)


def test_nothing_measured_has_no_rounds():
    """The round medians of no samples are empty and keep the leading dims."""
    assert (2, 3, 0) == arrays.round_medians(np.full((2, 3, 4), nan), np.full((2, 3, 4), -1)).shape


def test_rounds_of_a_joined_dataset_may_be_floats():
    """NaN means no round too, as xarray inserts it when it joins datasets."""
    np.testing.assert_array_equal([[4.0]], arrays.round_medians([[4.0, nan]], [[0.0, nan]]))


def test_a_paired_speedup_leaves_out_rounds_of_only_one():
    """A round that lacks samples of one of the two is ignored."""
    speedup = arrays.paired_speedup([1.0, nan, 4.0], [3.0, 50.0, 4.0])

    assert 2.0 == speedup  # the median of 3/1 and 4/4


def test_without_a_common_round_the_medians_are_compared():
    """Two trials that share no round are compared by their medians over rounds."""
    assert 3.0 == arrays.paired_speedup([2.0, nan], [nan, 6.0])


@given(anything(float, 6, elements=latencies), st.floats(0.1, 10), anything(float, 6, elements=st.floats(0.1, 10)))
def test_a_constant_gain_is_the_paired_speedup_whatever_the_drift(latency, gain, drift):
    """If the baseline takes `gain` times as long in every round, that is the speed-up, however the rounds drift."""
    speedup = arrays.paired_speedup(latency * drift, latency * gain * drift)

    np.testing.assert_allclose(gain, speedup)


def test_the_slope_leaves_out_what_is_missing():
    """A failed depth is ignored; fewer than two points have no slope."""
    slopes = arrays.slope([[2.0, nan, 5.0], [nan, 3.0, nan], [nan, nan, nan]], [1, 2, 4])

    np.testing.assert_array_equal([1.0, nan, nan], slopes)  # (5 - 2) / (4 - 1)


@given(st.floats(0.1, 10), st.lists(st.integers(1, 100), min_size=2, max_size=6, unique=True))
def test_a_constant_speedup_has_no_slope(speedup, depths):
    """A constant speed-up has the slope 0."""
    np.testing.assert_allclose(0.0, arrays.slope(np.full(len(depths), speedup), depths), atol=1e-12)


@given(anything(float, (2, 5), elements=st.floats(0.01, 100)))
def test_the_slope_is_numpys(speedup):
    """The slope equals the first coefficient of numpy.polyfit."""
    depths = np.array([1.0, 2.0, 3.0, 5.0, 8.0])

    expected = [np.polyfit(depths, line, 1)[0] for line in speedup]

    np.testing.assert_allclose(expected, arrays.slope(speedup, depths), atol=1e-9)


def test_rounds_of_a_second_session_take_no_more_room_than_they_are():
    """The rounds of a second session are packed and never paired with those of the first."""
    medians = arrays.round_medians([[1.0, 2.0, np.nan], [3.0, 4.0, 5.0]], [[0, 1, -1], [0, 1_000_000, 2_000_000]])

    assert (2, 4) == medians.shape
    np.testing.assert_array_equal([[1, 2, np.nan, np.nan], [3, np.nan, 4, 5]], medians)
