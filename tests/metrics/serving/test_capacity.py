"""The capacity of each network and compiler, on labelled datasets."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import xarray as xr
from drawn import crashing, measured, network, sweep

from ngbkit import metrics
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.metrics.serving import queueing
from ngbkit.metrics.serving.load_test import LoadTest


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few requests: what is tested here are labels and words."""
    monkeypatch.setattr(queueing, "_REQUESTS", 600)
    monkeypatch.setattr(queueing, "_MOST_REQUESTS", 600)
    monkeypatch.setattr(queueing, "_REPLICATE_REQUESTS", 400)
    monkeypatch.setattr(queueing, "_QUICK_REQUESTS", 400)


@pytest.fixture(scope="module")
def data() -> xr.Dataset:
    return measured(*map(network, "ab"), batch_sizes=(1, 2, 4))


def test_each_network_and_compiler_has_a_capacity_with_an_interval(data) -> None:
    """It is below the highest throughput, and the table has a column per compiler."""
    capacities = metrics.capacity(data, "100ms", quantile=0.9)
    frame = capacities.frame

    assert ["workload", "device", "compiler", "capacity", "ci_low", "ci_high"] == list(frame)[:6]
    assert [("a", "identity"), ("a", "openvino"), ("b", "identity"), ("b", "openvino")] == list(
        zip(frame["workload"], frame["compiler"], strict=True)
    )
    assert (frame["ci_low"] < frame["capacity"]).all()
    assert (frame["capacity"] < frame["ci_high"]).all()
    assert (frame["capacity"] <= frame["throughput"]).all()
    table = capacities.to_frame()
    assert ["identity", "openvino"] == list(table)
    assert "±" in str(table.loc["a", "openvino"])
    assert "capacity (requests/s), p90 within 100 ms" == table.attrs["title"]
    assert "±" in repr(capacities)
    assert "<table" in capacities._repr_html_()


def test_it_is_seeded(data) -> None:
    """The same call gives the same numbers; another seed others."""
    first, again, other = (
        metrics.capacity(data, 0.1, seed=seed, compiler="openvino", workload="a").frame for seed in (0, 0, 1)
    )

    assert first.equals(again)
    assert not first.equals(other)


def test_a_deadline_that_an_idle_server_misses_has_no_capacity(data) -> None:
    """It is 0, and a note says how long a call takes."""
    capacities = metrics.capacity(data, "1ms", workload="a")

    assert [0.0, 0.0] == capacities.frame["capacity"].tolist()
    assert any("a openvino: p99 on an idle server is" in note and "at batch 1" in note for note in capacities.notes)
    assert 0.0 == capacities.to_frame().loc["a", "openvino"]


def test_a_delay_is_part_of_the_latency(data) -> None:
    """Even of an idle server."""
    (row,) = metrics.capacity(
        data, "100ms", max_delay="99ms", workload="a", compiler="identity", batch_sizes=[1, 2]
    ).frame.to_dict("records")

    assert 0 == row["capacity"]
    assert "99 ms of them the wait for a batch" in row["reason"]


def test_batch_sizes_are_those_asked_for(data) -> None:
    """All of them, and no others."""
    (row,) = metrics.capacity(data, "100ms", batch_sizes=[1, 4], workload="a", compiler="openvino").frame.to_dict(
        "records"
    )

    assert "1,4" == row["batch_sizes"]
    with pytest.raises(UnknownNameError, match="batch size"):
        metrics.capacity(data, "100ms", batch_sizes=3)


def test_few_samples_and_short_calls_are_named(data) -> None:
    """A p99 of ten samples is not one, and the mean of a block hides a slow call."""
    blocks = data.assign(calls_per_sample=xr.full_like(data["throughput"], 7.0))
    capacities = metrics.capacity(blocks, "100ms", workload="a")

    assert any("p99 of 10 samples is hardly known" in note and "-r 100" in note for note in capacities.notes)
    assert any("in blocks of up to 7" in note for note in capacities.notes)
    assert not any("hardly" in note for note in metrics.capacity(data, "100ms", quantile=0.9, workload="a").notes)


def test_a_trial_without_a_result_says_so() -> None:
    """Its batch size is left out; without any there is no capacity."""
    grid = sweep(network("net"), batch_sizes=(1, 4))
    part = metrics.capacity(crashing(grid, "openvino", 4), "100ms", compiler="openvino").frame
    none = metrics.capacity(crashing(sweep(network("net"), batch_sizes=[1]), "openvino", 1), "100ms")

    assert ["1"] == part["batch_sizes"].tolist()
    assert math.isnan(none.frame["capacity"][1])
    assert "crashed" == none.to_frame().loc["net", "openvino"]


def test_one_round_has_no_interval(data) -> None:
    """A single sample has a capacity, marked as without an interval."""
    single = data.isel(repeat=[0])
    capacities = metrics.capacity(single, "100ms", workload="a", compiler="identity")

    assert capacities.frame["capacity"][0] > 0
    assert math.isnan(capacities.frame["ci_low"][0])
    assert any(note.startswith("~ without an interval") for note in capacities.to_frame().attrs["notes"])


def test_padding_is_no_sample(data) -> None:
    """NaN at the end of a trial changes nothing."""
    padded = data.pad(repeat=(0, 5), constant_values={"latency": np.nan, "round": -1})

    arguments = {"workload": "a", "compiler": "openvino"}
    first, second = (metrics.capacity(part, "100ms", **arguments).frame for part in (data, padded))
    assert first["capacity"].tolist() == second["capacity"].tolist()


def test_a_tree_has_the_rows_of_all_its_nodes() -> None:
    """With the factors of each."""
    tree = measured(network("net"), network("block", depth=(1, 2)), batch_sizes=[1])
    frame = metrics.capacity(tree, "100ms", compiler="identity").frame

    assert ["net", "block", "block"] == frame["workload"].tolist()
    assert [1.0, 2.0] == frame["depth"].tolist()[1:]


def test_overlapped_calls_have_no_latency(data) -> None:
    """The samples of several inferences in flight say nothing of one."""
    contract = json.dumps({"overlap": 4})
    overlapped = data.assign(contract=xr.full_like(data["status"], contract, dtype=object))
    capacities = metrics.capacity(overlapped, "100ms", workload="a")

    assert capacities.frame["capacity"].isna().all()
    assert any("a call has 4 inferences in flight" in note for note in capacities.notes)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"deadline": "soon"}, "invalid deadline: got 'soon'"),
        ({"deadline": "1s", "quantile": 1}, "invalid quantile: got 1; expected a share from 0.5 to below 1"),
        ({"deadline": "1s", "max_delay": "-1s"}, "invalid max_delay: got '-1s'"),
        ({"deadline": "1s", "ci": 2}, "invalid ci: got 2"),
        ({"deadline": "1s", "batch_sizes": [0]}, "invalid batch_sizes: got 0"),
        ({"deadline": "1s", "seed": -1}, "invalid seed: got -1"),
    ],
)
def test_invalid_arguments_are_refused(data, arguments, words) -> None:
    """Each by its name, with what is valid."""
    with pytest.raises(UsageError) as caught:
        metrics.capacity(data, **arguments)

    assert words in str(caught.value)


def test_samples_are_needed(data) -> None:
    """Published throughputs have none."""
    with pytest.raises(MetricError, match="draws from samples"):
        metrics.capacity(data.drop_vars(["latency", "round"]), "1s")


def test_a_check_stands_beside_the_simulation(data) -> None:
    """With the difference and its interval, and what was kept and missed."""
    from ngbkit.metrics.serving.capacity import with_tests

    capacities = metrics.capacity(data, "100ms", workload="a")
    row = capacities.list_rows()[1]
    labels, server = capacities.build_server(data, row)
    rate = row["capacity"]
    test = LoadTest(
        labels=labels,
        simulated=rate,
        calibrated=rate,
        rate=0.9 * rate,
        low=0.85 * rate,
        high=0.95 * rate,
        settled=True,
        highest_met=0.8 * rate,
        lowest_missed=1.1 * rate,
        trials=(),
        notes=("a openvino: a note",),
    )
    table = with_tests(capacities, [test]).to_frame()

    assert {"workload": "a", "device": "cpu", "compiler": "openvino"} == labels
    assert row["batch_sizes"] == ",".join(map(str, server.sizes))
    assert "-10 ± 5 %" == table.loc[("a", "openvino"), "difference"]
    assert "–" == table.loc[("a", "identity"), "measured"]
    assert "a openvino: a note" in table.attrs["notes"]
    assert json.dumps(with_tests(capacities, [test]).to_json())
