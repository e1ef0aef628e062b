"""The configuration that serves most under a deadline, on data of known truth."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import xarray as xr
from drawn import crashing, measured, network, sweep, unlike

import ngbkit
from ngbkit.errors import MetricError, UsageError
from ngbkit.metrics.contracts import UnlikeContractsError

Seconds = Mapping[tuple[str, int], float]
MACHINE = {"selfcheck": {"process_sd": 0.0}}


def build(
    seconds: Seconds,
    samples: int = 600,
    *,
    noise: float = 0.01,
    devices: tuple[str, ...] = ("cpu",),
    workload: str = "net",
) -> xr.Dataset:
    """Latencies by compiler and batch size, ten samples a round; a second device is twice as fast."""
    generator = np.random.default_rng(0)
    compilers, sizes = (list(dict.fromkeys(key[place] for key in seconds)) for place in (0, 1))
    latency = np.full((len(devices), 1, len(compilers), len(sizes), samples), np.nan)
    for (compiler, size), value in seconds.items():
        for number in range(len(devices)):
            latencies = value / 2**number * np.exp(generator.normal(0, noise, samples))
            latency[number, 0, compilers.index(compiler), sizes.index(size)] = latencies
    dims = ("device", "workload", "compiler", "batch_size", "repeat")
    coords = {"device": list(devices), "workload": [workload], "compiler": compilers, "batch_size": sizes}
    rounds = np.where(np.isnan(latency), -1, np.arange(samples) // 10).astype(np.int32)
    data = xr.Dataset({"latency": (dims, latency), "round": (dims, rounds)}, coords)
    data["status"] = xr.where(data["latency"].notnull().any("repeat"), "ok", "").astype(object)
    data["error"] = xr.full_like(data["status"], "", dtype=object)
    environments = dict.fromkeys(devices, MACHINE)
    return data.assign_attrs(environments=json.dumps(environments))


LATENCIES = {("fast", 1): 0.010, ("fast", 8): 0.040, ("slow", 1): 0.020, ("slow", 8): 0.070}


def describe(table: Any) -> list[tuple[Any, ...]]:
    return [(row.device, row.compiler, row.batch_size, row.keeps) for row in table.itertuples()]


def test_the_highest_throughput_that_keeps_the_deadline_is_chosen() -> None:
    """The choice is the highest throughput that keeps the deadline."""
    data = build(LATENCIES)

    assert [("cpu", "fast", 8, True)] == describe(data.ngb.choose("50ms").table)
    choices = data.ngb.choose(0.030)
    assert [("cpu", "fast", 1, True)] == describe(choices.table)
    (row,) = choices.table.to_dict("records")
    assert 100 == pytest.approx(row["throughput"], rel=0.01)
    assert 0.010 * math.exp(0.01 * 2.326) == pytest.approx(row["latency"], rel=0.01)
    assert row["latency_low"] < row["latency"] < row["latency_high"]
    assert row["probability"] > 0.95
    assert "slow at batch 1 on cpu" == row["second"]
    assert 50 == pytest.approx(row["second_throughput"], rel=0.01)


@pytest.mark.parametrize(
    ("deadline", "low", "high"),
    [(0.0102, 0.0, 0.02), (0.010 * math.exp(0.01 * 2.3263), 0.05, 0.95), (0.012, 0.95, 1.0)],
)
def test_the_probability_says_how_near_the_deadline_is(deadline: float, low: float, high: float) -> None:
    """Far below the true quantile about 0, at it neither sure nor excluded, far above it about 1."""
    choices = build({("fast", 1): 0.010}).ngb.choose(deadline)

    assert low <= choices.trials["probability"].item() <= high


def test_differences_between_processes_are_allowed_for() -> None:
    """A process of the device differs from the next by 10 %: a deadline 3 % above is not sure."""
    data = build({("fast", 1): 0.010})
    spread = data.assign_attrs(environments=json.dumps({"cpu": {"selfcheck": {"process_sd": 0.1}}}))

    assert data.ngb.choose(0.0106).trials["probability"].item() > 0.95
    assert 0.4 < spread.ngb.choose(0.0106).trials["probability"].item() < 0.8


def test_few_samples_are_never_sure() -> None:
    """A choice of few samples is never sure, and a note has the number of samples needed."""
    choices = build({("fast", 1): 0.010}, samples=100).ngb.choose("1s")

    (row,) = choices.table.to_dict("records")
    assert row["keeps"]
    assert row["probability"] < 0.7
    assert math.isinf(row["latency_high"])
    assert row["samples_needed"] >= 368
    assert "100 samples say little of the slowest 1 % of calls" in str(choices)
    assert f"-r {math.ceil(row['samples_needed'] / 10) * 10}" in str(choices)
    assert "no configuration surely keeps it" in str(choices)


def test_a_sure_one_is_named_beside_a_fast_one() -> None:
    """The verdict has a sure configuration if the fastest is not sure; a probability selects it."""
    data = build({("fast", 1): 0.010, ("fast", 8): 0.040})
    deadline = 0.040 * math.exp(0.01 * 2.4)

    choices = data.ngb.choose(deadline)
    assert [("cpu", "fast", 8, True)] == describe(choices.table)
    assert "surely fast at batch 1 on cpu keeps it, with 100.0" in choices.verdicts[0]
    assert [("cpu", "fast", 1, True)] == describe(data.ngb.choose(deadline, probability=0.95).table)


def test_the_nearest_is_named_where_none_keeps_the_deadline() -> None:
    """The verdict names the nearest configuration if none keeps the deadline."""
    choices = build(LATENCIES).ngb.choose("5ms")

    assert [("cpu", "fast", 1, False)] == describe(choices.table)
    assert choices.verdicts[0].startswith(
        "net: nothing keeps 5 ms for 99 % of calls; nearest is fast at batch 1 on cpu, "
    )
    assert choices.verdicts[0].endswith("(p < 0.01)")


def test_the_verdict_has_the_numbers_with_their_uncertainty() -> None:
    """The verdict has throughput, share of calls, latency, deadline and probability."""
    (verdict,) = build(LATENCIES).ngb.choose("50ms", 0.95).verdicts

    assert verdict.startswith("net in fast at batch 8 on cpu: 200.")
    assert " samples/s, 95 % of calls within 40.63 ± 0." in verdict
    assert "ms (deadline 50 ms, p > 0.99); next is fast at batch 1 on cpu with 100." in verdict


def test_equally_fast_ones_have_a_stable_order() -> None:
    """The one that keeps the deadline more probably is first."""
    data = build({("a", 1): 0.010, ("b", 1): 0.010})
    same = data["latency"].copy()
    same.loc[{"compiler": "b"}] = same.sel(compiler="a").values
    same.loc[{"compiler": "a"}][..., :60] = 0.5

    (row,) = data.assign(latency=same).ngb.choose("20ms", 0.95).table.to_dict("records")
    assert "b" == row["compiler"]


def test_devices_are_chosen_from() -> None:
    """The second one is faster."""
    data = build(LATENCIES, devices=("cpu", "gpu"))

    assert [("gpu", "slow", 8, True)] != describe(data.ngb.choose("50ms").table)
    assert [("gpu", "fast", 8, True)] == describe(data.ngb.choose("25ms").table)
    assert [("gpu", "fast", 1, True)] == describe(data.ngb.choose("15ms").table)
    assert [("cpu", "fast", 1, True)] == describe(data.sel(device=["cpu"]).ngb.choose("15ms").table)
    assert [("cpu", "fast", 1, True)] == describe(data.sel(device="cpu", compiler="fast").ngb.choose("15ms").table)


def test_each_network_has_its_own_choice_in_a_tree_too() -> None:
    """Each network of a tree has its own choice."""
    other = build({("fast", 1): 0.005}, workload="block").expand_dims(depth=[2])
    tree = xr.DataTree.from_dict({"/a": build(LATENCIES), "/b": other})

    choices = tree.ngb.choose("12ms")
    assert [("net", "fast", 1), ("block", "fast", 1)] == [
        (row.workload, row.compiler, row.batch_size) for row in choices.table.itertuples()
    ]
    assert choices.verdicts[1].startswith("block, depth 2 in fast at batch 1 on cpu")


def test_what_is_excluded_says_why() -> None:
    """The notes explain the exclusion of failed trials and of other contracts."""
    failed = crashing(sweep(), "openvino", 4).ngb.choose("1s", 0.5)
    assert ["crashed: signal 11"] == failed.excluded["excluded"].tolist()
    assert "excluded: net in openvino at batch 4 on cpu (crashed: signal 11)" in failed.notes

    data = unlike(sweep(), "openvino")
    masked = data.ngb.choose("1s", 0.5)
    assert {"identity"} == set(masked.trials["compiler"])
    reason = "timed under another contract than identity: precision bf16 instead of f32"
    assert f"excluded: all 2 of openvino ({reason})" in masked.notes
    assert {"identity", "openvino"} == set(data.ngb.choose("1s", 0.5, unlike="allow").trials["compiler"])
    with pytest.raises(UnlikeContractsError, match="choose"):
        data.ngb.choose("1s", unlike="error")


def test_a_network_without_any_result_says_so() -> None:
    """A network without any result has a row that names no configuration."""
    data = build(LATENCIES)
    data["latency"] = data["latency"].where(False)
    data = xr.concat([data.assign_coords(workload=["none"]), build(LATENCIES)], "workload")

    assert "none: no configuration to choose from" == data.ngb.choose("50ms").verdicts[0]
    assert "no samples" in set(data.ngb.choose("50ms").excluded["excluded"])
    assert data.ngb.choose("50ms").to_frame()["runner-up"].tolist()[0] == ""


def block(data: xr.Dataset, calls: int) -> xr.Dataset:
    return data.assign(calls_per_sample=xr.full_like(data["status"], calls, dtype=float))


def test_calls_in_blocks_are_bounded_by_their_block() -> None:
    """No call takes longer than its block: a deadline beyond it is kept, one below it is not known to be."""
    data = block(build({("fast", 1): 0.002}), 3)

    choices = data.ngb.choose("10ms")
    (row,) = choices.table.to_dict("records")
    assert 0.006 == pytest.approx(row["latency"], rel=0.05)
    assert "within at most 6.1" in choices.verdicts[0]
    assert "p ≥ 0.9" in choices.verdicts[0]
    assert "timed in blocks of calls" in choices.notes[0]
    assert "no configuration to choose from" in data.ngb.choose("4ms").verdicts[0]
    assert "hide whether a single call keeps" in data.ngb.choose("4ms").excluded["excluded"].item()
    assert "nothing keeps 1 ms" in data.ngb.choose("1ms").verdicts[0]


def test_contended_samples_are_left_out() -> None:
    """A choice omits contended samples, unless the dataset does not tell which these are."""
    data = build({("fast", 1): 0.010})
    slow = xr.zeros_like(data["latency"], dtype=bool)
    slow[..., ::10] = True
    data = data.assign(latency=data["latency"].where(~slow, 0.1), contended=slow.astype(np.int8))

    quiet, busy = data.ngb.choose("20ms"), data.drop_vars("contended").ngb.choose("20ms")
    assert quiet.table["keeps"].item()
    assert 60 == quiet.table["left_out"].item()
    assert "60 of 600 samples were left out" in str(quiet)
    assert not busy.table["keeps"].item()
    assert 0 == busy.table["left_out"].item()


def test_it_is_plain_json_and_a_table() -> None:
    """A choice is plain JSON for programs and a table for a notebook."""
    choices = build(LATENCIES, samples=60).ngb.choose("50ms")

    answer = json.loads(json.dumps(choices.to_json(), allow_nan=False))
    assert "fast" == answer["choices"][0]["compiler"]
    assert 4 == len(answer["trials"])
    html = choices._repr_html_()
    assert "Highest throughput within 50 ms for 99 % of calls" in html
    assert "surely" in html


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"deadline": "soon"}, "invalid deadline: got 'soon'"),
        ({"deadline": -1}, "invalid deadline: got -1"),
        ({"deadline": 1, "quantile": 99}, "invalid quantile: got 99; expected a share"),
        ({"deadline": 1, "quantile": 0.1}, "invalid quantile: got 0.1"),
        ({"deadline": 1, "probability": 1}, "invalid probability: got 1"),
        ({"deadline": 1, "unlike": "drop"}, "invalid unlike: got 'drop'"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    """The error of an invalid argument has the valid ones."""
    data = measured(network("net")) if "unlike" in arguments else build(LATENCIES)
    with pytest.raises(UsageError, match=message):
        data.ngb.choose(**arguments)


def test_data_without_samples_is_refused() -> None:
    """A table of the paper has none."""
    with pytest.raises(MetricError, match="needs samples in rounds"):
        ngbkit.reference.table("VI").ngb.choose("50ms")
