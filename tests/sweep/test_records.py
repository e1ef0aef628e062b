"""Records: what a trial leaves behind reads back as it was, or says why it cannot."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from ngbkit.errors import JournalError
from ngbkit.sweep import joining, records
from ngbkit.sweep.records import Contract, Failure, Measurement, Record

MEASUREMENT = Measurement(
    trial_id="a",
    latency_s=(0.1, 0.2),
    rounds=(0, 1),
    compile_time_s=1.0,
    first_call_time_s=0.3,
    contract=Contract(runtime="r", threads=2, overlap=3, notes="untuned"),
    rmse=1e-7,
    baseline_rmse=1e-7,
    max_abs_error=1e-6,
    energy_j=1.5,
    compile_time_warm_s=0.5,
    calls_per_sample=4,
    contended_samples=(1,),
    foreign_percent=2.5,
    steal_percent=0.5,
    throttled_percent=1.5,
    unusual_percent=10.0,
    core_trip_s=2e-7,
    core_work_s=1.6e-5,
    interleaved=False,
    bundle=7,
    looks=2,
    facts={"nodes": {"before": 3}},
)
UNCHECKED = replace(MEASUREMENT, trial_id="c", unchecked="it draws its noise anew", rmse=math.nan)
FAILURE = Failure(trial_id="b", status="unsupported", stage="compile", error="no", detail="why", facts={"x": 1})


@pytest.mark.parametrize("record", [MEASUREMENT, FAILURE])
def test_a_record_survives_json(record: Record) -> None:
    """A record is equal after JSON."""
    assert record == records.from_json(json.loads(json.dumps(records.to_json(record))))


@pytest.mark.parametrize(
    ("earlier", "rounds", "stopped", "is_replaced"),
    [
        (MEASUREMENT, (0,), False, True),
        (MEASUREMENT, (0, 1, 2), True, False),
        (replace(MEASUREMENT, stopped=True), (0,), True, False),
        (replace(MEASUREMENT, stopped=True), (0, 1, 2), True, True),
        (FAILURE, (0,), True, True),
    ],
)
def test_a_stopped_attempt_replaces_no_longer_one(
    earlier: Record, rounds: tuple[int, ...], stopped: bool, is_replaced: bool
) -> None:
    """A complete measurement stays, and of two that were stopped the one with more rounds."""
    later = replace(MEASUREMENT, latency_s=(0.1,) * len(rounds), rounds=rounds, contended_samples=(), stopped=stopped)

    assert (later if is_replaced else earlier) == joining.replace_by(earlier, later)


def test_a_joined_measurement_is_stopped_only_if_both_are() -> None:
    """A complete measurement remains complete with the rounds of a session that was stopped."""
    rounds = replace(MEASUREMENT, rounds=(5, 6), stopped=True)

    assert not records.is_stopped(joining.join(MEASUREMENT, rounds))
    assert records.is_stopped(joining.join(replace(MEASUREMENT, stopped=True), rounds))


def test_a_measurement_whose_outputs_were_not_compared_says_so_in_its_status() -> None:
    """The reason is its error, in the record and after a journey through JSON."""
    read = records.from_json(json.loads(json.dumps(records.to_json(UNCHECKED))))

    assert ("ok", "") == (MEASUREMENT.status, MEASUREMENT.error)
    assert ("not-checked", "it draws its noise anew") == (read.status, read.error)
    assert {"ok", "not-checked"} == set(records.MEASURED)
    assert "not-checked" in records.RETRIABLE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"format": 2}, "got format 2; expected at most 1. Install a newer ngbkit"),
        ({"kind": "guess"}, "got kind 'guess'"),
        ({"surprise": 1}, "invalid record of kind"),
    ],
)
def test_what_is_no_record_is_refused(change: dict[str, Any], text: str) -> None:
    """A stranger's JSON does not become a measurement."""
    with pytest.raises(JournalError, match=text):
        records.from_json({**records.to_json(FAILURE), **change})


def test_a_contract_is_checked_after_an_equal_one() -> None:
    """1 equals True, and is still refused where True is expected."""
    row = records.to_json(MEASUREMENT)
    records.from_json(row)

    with pytest.raises(JournalError, match="contract: synchronised: got 1; expected True or False"):
        records.from_json({**row, "contract": {**row["contract"], "synchronised": 1}})
