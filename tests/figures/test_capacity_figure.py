"""The figure of capacities."""

from __future__ import annotations

import pytest
from drawn import Spec, crashing, measured, network, sweep

from ngbkit import figures
from ngbkit.errors import MetricError
from ngbkit.metrics.serving import queueing
from ngbkit.metrics.serving.capacity import with_tests
from ngbkit.metrics.serving.load_test import LoadTest, LoadTrial


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few requests: what is tested here is drawn."""
    for name in ("_CURVE_REQUESTS", "_QUICK_REQUESTS", "_REQUESTS", "_MOST_REQUESTS", "_REPLICATE_REQUESTS"):
        monkeypatch.setattr(queueing, name, 400)


def test_latency_rises_with_the_rate_and_the_deadline_is_a_line():
    """A line with its band per compiler, a panel per network."""
    spec = Spec(figures.capacity(measured(*map(network, "ab"), batch_sizes=(1, 4)), deadline="100ms", quantile=0.9))

    for name in "ab":
        for compiler in ("identity", "openvino"):
            rows = [row for row in spec.rows if (row["network"], row["compiler"]) == (name, compiler)]
            assert len(rows) > 10
            assert rows[-1]["value"] > 3 * rows[0]["value"]
            assert all(row["low"] <= row["value"] <= row["high"] for row in rows)
    assert {"rule", "area", "line"} <= set(spec.marks())
    assert {"a", "b", "p90 latency (ms)", "requests/s"} <= spec.texts()
    assert "dashed: the deadline of 100 ms; bands: 95 % intervals" in spec.subtitle


def test_trials_of_a_check_are_marks():
    """Hollow where other work disturbed them; the arguments are those of the checked capacities."""
    data = measured(network("a"), batch_sizes=[1])
    capacities = data.ngb.capacity("100ms", quantile=0.9, compiler="openvino")
    row = capacities.list_rows()[0]
    labels, _ = capacities.build_server(data, row)
    shared = {"requests": 9, "missed": 0.1, "calls": 9, "busy": 0.5, "lag": 0.0, "generator_cpu": 0.0}
    trials = tuple(LoadTrial(rate=rate, latency=0.09, disturbed=rate > 20, **shared) for rate in (10.0, 30.0))
    test = LoadTest(
        labels=labels,
        simulated=20.0,
        calibrated=20.0,
        rate=20.0,
        low=19.0,
        high=21.0,
        settled=True,
        highest_met=10.0,
        lowest_missed=None,
        trials=trials,
    )
    spec = Spec(data.ngb.plot.capacity(checked=with_tests(capacities, [test])))

    measured_rows = [row for row in spec.rows if row["kind"] == "measured"]
    assert [(10.0, 90.0, 1.0), (30.0, 90.0, 0.0)] == [
        (row["rate"], row["value"], row["settled"]) for row in measured_rows
    ]
    assert {"identity", "openvino"} == {row["compiler"] for row in spec.rows}
    assert "marks: measured by real load, hollow where other work disturbed it" in spec.subtitle
    assert "are not settled" not in spec.subtitle
    assert "p90 latency (ms)" in spec.texts()


def test_nothing_measured_is_an_error():
    """It says to select other trials."""
    data = crashing(sweep(network("net"), batch_sizes=[1]), "openvino", 1)

    with pytest.raises(MetricError, match="no capacity to draw"):
        figures.capacity(data, deadline="1s", compiler="openvino")
