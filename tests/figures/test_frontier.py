"""Latency against throughput: the front, the deadline, and what bars cannot say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from drawn import Spec, crashing, measured, network, sweep, unlike

import ngbkit
from ngbkit import figures
from ngbkit.errors import MetricError, UnknownNameError, UsageError

DATA = Path(__file__).parents[2] / "notebooks" / "data"


def select(spec: Spec, kind: str) -> list[dict[str, object]]:
    return [row for row in spec.rows if row.get("kind") == kind]


def test_a_mark_has_the_quantile_and_the_throughput_of_its_trial() -> None:
    """A mark has the quantile and the throughput that `ds.ngb.choose` computes."""
    data = measured(network("net"), batch_sizes=[1, 4, 8])
    spec = Spec(figures.frontier(data, quantile=0.5))

    trials = data.ngb.choose("1h", 0.5).trials
    expected = {(row.compiler, row.batch_size): (1e3 * row.latency, row.throughput) for row in trials.itertuples()}
    assert {key: pytest.approx(numbers, rel=1e-4) for key, numbers in expected.items()} == {
        (row["compiler"], row["batch_size"]): (row["ms"], row["value"]) for row in select(spec, "trial")
    }


def test_nothing_exceeds_the_front() -> None:
    """No trial exceeds the front in throughput at most at its latency."""
    spec = Spec(figures.frontier(measured(network("net"), batch_sizes=[1, 2, 4, 8]), quantile=0.5))

    points = [(row["ms"], row["value"]) for row in select(spec, "trial")]
    front = {(row["ms"], row["value"]) for row in select(spec, "front")}
    expected = {a for a in points if not any(b != a and b[0] <= a[0] and b[1] >= a[1] for b in points)}
    assert expected == front
    assert len(front) < len(points)


def test_the_deadline_is_a_line_in_milliseconds() -> None:
    """The subtitle names it, the quantile and the bars."""
    spec = Spec(figures.frontier(measured(network("net")), deadline="2.5ms", quantile=0.5))

    assert "dashed: the deadline, 2.5 ms" in spec.subtitle
    assert "the latency that 50 % of calls keep" in spec.subtitle
    assert "bars: 95 % intervals" in spec.subtitle
    assert 1 == sum("2.5" in str(layer) for layer in spec.spec["spec"]["layer"])
    assert "deadline, 2.5" not in Spec(figures.frontier(measured(network("net")), quantile=0.5)).subtitle


def test_a_latency_without_an_upper_end_has_no_right_bar() -> None:
    """Ten samples bound no 99th percentile; the subtitle says how many would."""
    data = measured(network("net"))
    spec = Spec(figures.frontier(data))

    assert all(row["ms_high"] == row["ms"] and row["ms_low"] < row["ms"] for row in select(spec, "trial"))
    assert "4 of 4 latencies have no upper end: too few samples for this quantile (-r 368)" in spec.subtitle
    bounded = Spec(figures.frontier(data, quantile=0.5))
    assert all(row["ms_high"] > row["ms"] for row in select(bounded, "trial"))


def test_shapes_distinguish_compilers_and_devices() -> None:
    """Colour is never the only channel."""
    data = measured(network("net"))
    other = data.assign_coords(device=["gpu"])
    both = xr.concat([data, other], "device").assign_attrs(data.attrs)

    assert {"compiler:N"} <= _list_shapes(figures.frontier(data, quantile=0.5))
    assert {"device:N"} <= _list_shapes(figures.frontier(both, quantile=0.5))


def _list_shapes(chart: object) -> set[str]:
    layers = Spec(chart).spec["spec"]["layer"]
    return {f"{layer['encoding']['shape']['field']}:N" for layer in layers if "shape" in layer.get("encoding", {})}


def test_what_is_not_drawn_is_said() -> None:
    """Failures, other contracts, and panels that are selected."""
    assert "no result: openvino crashed 1" in Spec(figures.frontier(crashing(sweep(), "openvino", 4))).subtitle
    spec = Spec(figures.frontier(unlike(sweep(), "openvino")))
    assert "openvino: not compared, precision bf16 instead of f32" in spec.subtitle
    assert {"identity"} == {row["compiler"] for row in select(spec, "trial")}
    chosen = Spec(figures.frontier(measured(*map(network, "ab")), workload=["b"]))
    assert {"b"} == {row["network"] for row in chosen.rows}


def test_blocks_of_calls_are_an_upper_bound() -> None:
    """The latency is that of the block."""
    data = measured(network("net"))
    blocks = data.assign(calls_per_sample=xr.full_like(data["throughput"], 3.0))

    calls, sums = (Spec(figures.frontier(part, quantile=0.5)) for part in (data, blocks))
    assert "4 of 4 latencies are of a block of short calls, and so at most this" in sums.subtitle
    assert 3 * np.array([row["ms"] for row in select(calls, "trial")]) == pytest.approx(
        [row["ms"] for row in select(sums, "trial")], rel=1e-4
    )


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_row_of_panels_fits_on_the_page(count: int) -> None:
    """The panels of a row with their gaps are at most 790 pixels wide."""
    spec = figures.frontier(measured(*map(network, "abcde"[:count])), quantile=0.5).to_dict()

    assert spec["columns"] * (spec["spec"]["width"] + spec["spacing"]["column"]) <= 792


def test_stored_matrices_are_drawn() -> None:
    """The frontier of a stored tree with a GPU's batch sizes is drawn."""
    spec = Spec(figures.frontier(ngbkit.load(DATA / "gpu.nc"), deadline="12ms", quantile=0.9))

    assert 5 == len({row["network"] for row in spec.rows})
    assert "32" in spec.texts()


def test_invalid_arguments_are_refused() -> None:
    """The frontier refuses invalid arguments and data without samples."""
    data = measured(network("net"))
    with pytest.raises(UsageError, match="invalid deadline"):
        figures.frontier(data, deadline="soon")
    with pytest.raises(UsageError, match="invalid quantile"):
        figures.frontier(data, quantile=2)
    with pytest.raises(UnknownNameError, match="compiler"):
        figures.frontier(data, compiler="tvm")
    with pytest.raises(MetricError, match="needs samples in rounds"):
        figures.frontier(ngbkit.reference.table("VI"))
