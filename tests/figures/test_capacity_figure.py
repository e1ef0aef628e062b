"""The figure of capacities."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn import Spec, build_test, measured, network, record_tests

from ngbkit.errors import MetricError


def test_latency_rises_with_the_rate_and_the_deadline_is_a_line():
    """A panel has a network, a line a compiler, and a mark a test, hollow where other work slowed it."""
    data = measured(*map(network, "ab"), batch_sizes=(1, 4))
    record_tests(data, [build_test(40.0, True), replace(build_test(44.0, False), contended=True)])
    spec = Spec(data.ngb.plot.capacity("100ms"))

    for name in "ab":
        for compiler in ("identity", "openvino"):
            rows = [row for row in spec.rows if (row["network"], row["compiler"]) == (name, compiler)]
            assert [(40.0, 80.0, 1.0), (44.0, 88.0, 0.0)] == [
                (row["rate"], row["value"], row["conclusive"]) for row in rows
            ]
    assert {"rule", "line", "point"} <= set(spec.marks())
    assert {"a", "b", "p99 latency (ms)", "requests/s"} <= spec.texts()
    assert "dashed: the deadline of 100 ms" in spec.subtitle
    assert "hollow: other work slowed the test" in spec.subtitle


def test_nothing_measured_is_an_error():
    """The figure measures nothing, and says how to measure."""
    data = measured(network("net"), batch_sizes=[1])

    with pytest.raises(MetricError, match=r"none was measured with these arguments. Measure it with `ngbkit.capacity`"):
        data.ngb.plot.capacity("90ms", seed=7)
