"""Break-even, by hand."""

import numpy as np
import pytest

from ngbkit import metrics
from ngbkit.errors import MetricError, UsageError

COMPILERS = ["identity", "faster", "slower", "slower-but-sooner", "sooner", "same"]
# A call of identity takes 3 s and its compilation 1 s.
CALL_S = [3.0, 1.0, 4.0, 4.0, 2.0, 3.0]
COLD_S = [1.0, 21.0, 5.0, 0.5, 1.0, 2.0]


@pytest.fixture
def compiled(measured):
    dataset = measured({"compiler": COMPILERS, "batch_size": [2]}, [[[call]] for call in CALL_S])
    dataset["compile_time"] = (("compiler", "batch_size"), np.array(COLD_S)[:, None])
    return dataset


def test_break_even(compiled):
    """20 s more to compile, 2 s less a call: 10 calls; never where a call is no faster, at once if nothing is lost.

    Identity over itself loses nothing either.
    """
    calls = metrics.break_even(compiled)

    assert [0, 10, np.inf, np.inf, 0, np.inf] == calls.sel(batch_size=2).values.tolist()
    assert ("break_even", "1") == (calls.name, calls.attrs["units"])


def test_a_warm_cache_pays_sooner(compiled):
    """Warm times are used where present; a compiler without a cache has one compile time for both."""
    compiled["compile_time_warm"] = compiled["compile_time"] * np.nan
    compiled["compile_time_warm"].loc[{"compiler": "faster"}] = 3.0

    calls = compiled.ngb.break_even(cache="warm")

    assert [0, 1, np.inf, np.inf, 0, np.inf] == calls.sel(batch_size=2).values.tolist()


def test_a_failed_trial_has_no_break_even(compiled):
    """The break-even of a trial without a latency or a compile time is NaN."""
    compiled["latency"].loc[{"compiler": "faster"}] = np.nan
    compiled["compile_time"].loc[{"compiler": "same"}] = np.nan

    assert [False, True, False, False, False, True] == metrics.break_even(compiled).isnull().values.ravel().tolist()


def test_break_even_says_what_it_lacks(compiled):
    """Missing compile times, a missing identity and an invalid cache each have an error."""
    with pytest.raises(MetricError, match="needs the variable 'compile_time_warm'"):
        metrics.break_even(compiled, cache="warm")
    with pytest.raises(MetricError, match="needs the variable 'compile_time'"):
        metrics.break_even(compiled.drop_vars("compile_time"))
    with pytest.raises(MetricError, match="relative to the compiler 'identity'"):
        metrics.break_even(compiled.sel(compiler=["faster"]))
    with pytest.raises(UsageError, match='invalid cache: got \'hot\'; expected "cold" or "warm"'):
        metrics.break_even(compiled, cache="hot")


def test_an_interval_may_reach_to_never(measured):
    """If a call may be no faster, the high end is inf."""
    generator = np.random.default_rng(0)
    latency = np.exp(generator.normal(0, 0.1, (2, 1, 20))) * np.array([1.01, 1.0])[:, None, None]
    data = measured(
        {"compiler": ["identity", "a"], "batch_size": [1]}, latency, np.broadcast_to(np.arange(20), (2, 1, 20))
    )
    data["compile_time"] = (("compiler", "batch_size"), np.array([[0.0], [5.0]]))

    calls = metrics.break_even(data, ci=0.95).sel(compiler="a", batch_size=1)

    assert np.isinf(calls["ci_high"])
    assert 0 < calls["ci_low"] < np.inf
