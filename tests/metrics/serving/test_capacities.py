"""Capacities from the tests of LoadGen that were kept, without a device."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from drawn import build_test, crashing, measured, network, record_tests, sweep

from ngbkit import capacity, options
from ngbkit.errors import JournalError, MetricError, UnknownNameError, UsageError
from ngbkit.metrics.serving.capacities import (
    Capacities,
    CapacitySearch,
    build_capacities,
    list_columns,
    parse_service,
)
from ngbkit.runs.capacity import build_question, build_sweep, find_search


def build(data, tests) -> Capacities:
    service, search = parse_service("100ms"), CapacitySearch(started_at=1.0, tests=tuple(tests))
    return build_capacities(data, service, [(column, search) for column in list_columns(data, service, {})])


def test_a_capacity_is_a_bracket() -> None:
    """A capacity is bounded by the highest valid rate and the lowest invalid one."""
    data = measured(network("net"))
    record_tests(data)
    capacities = capacity(data, "100ms")
    row = capacities.frame.iloc[0]

    assert (40.0, 44.0, True, 4) == (row["capacity"], row["lowest_invalid"], row["conclusive"], row["tests"])
    assert 2.0 == row["requests_per_call"]
    assert "40 to 44" == capacities.to_frame()["openvino"].iloc[0]
    assert "capacity (requests/s), p99 within 100 ms" in " ".join(repr(capacities).split())
    assert any("LoadGen 6.0.17, Server scenario" in note for note in capacities.notes)
    assert any("no result of MLPerf" in note for note in capacities.notes)
    assert {"identity", "openvino"} == {row["compiler"] for row in capacities.to_json()["tests"]}
    assert json.dumps(capacities.to_json())


def test_a_search_without_an_upper_bound_is_not_conclusive() -> None:
    """A capacity of which no higher rate was invalid is a lower bound."""
    data = measured(network("net"), batch_sizes=[1])
    capacities = build(data, [build_test(40.0, True)])

    assert "40 or more ?" == capacities.to_frame()["openvino"].iloc[0]
    assert any("not conclusive" in note for note in capacities.notes)


def test_tests_beside_other_work_are_marked() -> None:
    """A bracket that rests on them is not conclusive."""
    data = measured(network("net"), batch_sizes=[1])
    tests = [build_test(rate, rate < 44) for rate in (40.0, 40.0, 44.0, 44.0)]
    capacities = build(data, [replace(test, contended=True) for test in tests])

    assert "40 to 44 ?" == capacities.to_frame()["openvino"].iloc[0]
    assert "other work slowed 8 of 8 tests" in capacities.notes


def test_a_deadline_that_no_test_kept_has_an_upper_bound() -> None:
    """The capacity is under the lowest rate whose tests were invalid."""
    data = measured(network("net"), batch_sizes=[1], compilers=["identity", "openvino"])
    capacities = build(data, [build_test(rate, False) for rate in (40.0, 0.1, 0.1)])

    assert "under 0.1" == capacities.to_frame()["openvino"].iloc[0]


def test_what_cannot_be_served_has_a_reason() -> None:
    """A call longer than the deadline has the capacity 0, a trial without samples has none; neither is tested."""
    data = crashing(sweep(network("net"), batch_sizes=[1]), "openvino", 1)
    capacities = capacity(data, "1ms")

    assert [0.0] == capacities.frame["capacity"].dropna().tolist()
    assert ["0", "crashed"] == capacities.to_frame().iloc[0].tolist()
    assert any("net identity: a call of batch 1 takes" in note for note in capacities.notes)


def test_batch_sizes_whose_calls_miss_the_deadline_are_left_out() -> None:
    """Batch sizes that miss the deadline are omitted, unless the user names them."""
    data = measured(network("net"), batch_sizes=(1, 4), compilers=["identity"])
    calls = (data["batch_size"] / data["throughput"]).squeeze()
    between = f"{1e3 * float(calls.mean()):.3f}ms"
    automatic, explicit = (list_columns(data, parse_service(between, **more), {}) for more in ({}, {"batch_sizes": 4}))

    assert [(1,), ()] == [automatic[0].batch_sizes, explicit[0].batch_sizes]
    assert explicit[0].is_late


def test_invalid_questions_are_errors() -> None:
    """The message says what is valid."""
    data = measured(network("net"), batch_sizes=[1])

    with pytest.raises(UsageError, match=r"invalid quantile: got 0.93; expected one that LoadGen reports: 0.5, 0.9"):
        capacity(data, "1s", quantile=0.93)
    with pytest.raises(UsageError, match="invalid deadline: got 'soon'"):
        capacity(data, "soon")
    for size in (1.5, [1, 2.5]):
        with pytest.raises(UsageError, match=r"invalid batch size: got [12]\.5; expected an integer >= 1"):
            capacity(data, "1s", batch_sizes=size)
    with pytest.raises(UsageError, match=r"invalid seconds: got 1000000000000\.0; expected a number"):
        capacity(data, "1s", seconds=1e12)
    with pytest.raises(UsageError, match="invalid seconds: got -1"):
        capacity(data, "1s", seconds=-1)
    with pytest.raises(UnknownNameError, match="batch size '3'"):
        capacity(data, "1s", batch_sizes=3)
    with pytest.raises(UnknownNameError, match="compiler 'tvm'"):
        capacity(data, "1s", compiler="tvm")
    with pytest.raises(MetricError, match="Use the dataset of one run"):
        capacity(data.assign_attrs(sweep=""), "1s")
    with pytest.raises(MetricError, match="has no network 'a'"):
        capacity(measured(network("a")).assign_attrs(sweep=data.attrs["sweep"]), "1s")


def test_a_search_of_an_earlier_version_is_read() -> None:
    """A file with a number and the device's environment has tests as any other, until a search replaces them."""
    data = measured(network("net"), batch_sizes=[1])
    record_tests(data, [build_test(40.0, True)], "70ms")
    (column, *_), service = list_columns(data, parse_service("70ms"), {}), parse_service("70ms")
    question = build_question(build_sweep(data, column), service)
    folder = options.get_state_dir() / options.LAYOUT.capacities
    (file,) = [path for path in folder.iterdir() if json.loads(path.read_text())["question"] == question]
    earlier = file.rename(file.with_name(f"{file.stem}-3.json"))
    earlier.write_text(json.dumps({**json.loads(earlier.read_text()), "environment": {}, "number": 3}))

    assert (build_test(40.0, True),) == find_search(question).tests
    record_tests(data, [build_test(50.0, True)], "70ms")
    assert (build_test(50.0, True),) == find_search(question).tests


def test_a_damaged_file_is_named() -> None:
    """The error says what to do with it."""
    data = measured(network("net"), batch_sizes=[1])
    record_tests(data, deadline="60ms")
    for file in (options.get_state_dir() / options.LAYOUT.capacities).iterdir():
        file.write_text("{}")

    with pytest.raises(JournalError, match=r"invalid load tests in .*json: .* Move the file away"):
        capacity(data, "60ms")
