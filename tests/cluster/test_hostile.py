"""A hostile engine causes a clear error and nothing else."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import ipyparallel
import pytest
from state import keep_state_dir

from ngbkit import runs
from ngbkit.api import Sweep
from ngbkit.cluster import engines, replies
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.replies import ReplyError
from ngbkit.errors import DeviceError
from ngbkit.sweep import records
from ngbkit.sweep.records import Contract, Failure, Measurement
from ngbkit.workloads.base import Workload

# Runs on the engine.
_EVIL = """
import importlib, json, os
import ngbkit.device.plan as plan
importlib.reload(plan)
honest = {"format": plan.FORMAT, "record_format": plan.record_format.FORMAT, "state_dir": "/tmp", "environment": {}}
class Evil:
    def __reduce__(self):
        return (os.mkdir, (MARK,))
"""
REPLIES = {
    "a pickle that makes a folder": ("Evil()", "got posix.mkdir; expected a text"),
    "a pickle within a list": ("[Evil()]", "got posix.mkdir; expected a text"),
    "a number": ("7", "got a int; expected a text"),
    "nothing": ("None", "got a NoneType; expected a text"),
    "bytes": ("b'{}'", "expected a text"),
    "a function": ("lambda: None", "invalid reply"),
    "100 MB": ("'x' * 100_000_000", r"100,0\d\d,\d\d\d bytes; expected at most"),
    "malformed JSON": ("'{\"format\": 2'", "not JSON"),
    "JSON that nests without end": ("'[' * 100_000", "not JSON"),
    "a list": ("'[]'", "got a list; expected a JSON object"),
    "no fields": ("'{}'", "invalid 'format' in a reply"),
    "a format that is true": ("json.dumps({**honest, 'format': True})", "invalid 'format' in a reply"),
    "another format": ("json.dumps({**honest, 'format': 99})", "has format 99; expected"),
    "a folder that is none": ("json.dumps({**honest, 'state_dir': 3})", "invalid 'state_dir' in a reply"),
    "an endless environment": ("json.dumps({**honest, 'environment': {'x': 'y' * 5_000_000}})", "far too long"),
}


state_dir = pytest.fixture(scope="module")(keep_state_dir)


@pytest.fixture
def engine(state_dir: Path) -> Engine:
    """An engine of this machine."""
    return engines.acquire()


def corrupt(engine: Engine, code: str, mark: Path) -> None:
    """Run hostile code on the engine."""
    source = f"MARK = {str(mark)!r}\n{_EVIL}\n{code}"
    result = engine.view.apply_async(ipyparallel.Reference("exec"), source, ipyparallel.Reference("globals()"))
    result.wait(20)
    error = result._children[0].exception() if result._children[0].done() else None
    assert error is None or "expected a text" in str(error), error


@pytest.mark.parametrize("name", REPLIES)
def test_an_invalid_reply_is_refused(engine: Engine, tmp_path: Path, name: str) -> None:
    """The handshake fails with an error that describes the reply, and none of it runs."""
    expression, expected = REPLIES[name]
    corrupt(engine, f"plan.hello = lambda spec: {expression}", tmp_path / "mark")

    with pytest.raises(DeviceError, match=expected):
        engine.hello()
    assert not (tmp_path / "mark").exists()


def test_a_request_for_another_file_is_refused(engine: Engine, tmp_path: Path) -> None:
    """A device cannot request a file by its path."""
    corrupt(engine, "plan.missing = lambda spec: json.dumps({'missing': ['../../../etc/passwd']})", tmp_path / "mark")

    with pytest.raises(ReplyError, match="requests a file outside of the run"):
        engine.push({"a" * 32: tmp_path / "some"})


def test_an_endless_collection_is_refused(engine: Engine, tmp_path: Path) -> None:
    """A device cannot announce more records for ever."""
    reply = "{'records': [], 'more': True, 'facts': {}, 'environment': {}}"
    corrupt(engine, f"plan.collect = lambda spec: json.dumps({reply})", tmp_path / "mark")

    with pytest.raises(ReplyError, match="announces more records, but sends none"):
        list(engine.collect("run", [], {"trial"}))


def test_a_record_of_another_run_ends_the_run_and_is_not_kept(engine: Engine, mlp: Workload, tmp_path: Path) -> None:
    """A record of another run ends the run, and earlier records stay."""
    record = {
        "trial_id": "../../other",
        "kind": "failure",
        "status": "failed",
        "stage": "call",
        "error": "",
        "started_at": 0,
    }
    code = f"""
plan.hello = lambda spec: json.dumps({{**honest, "state_dir": {str(tmp_path)!r}}})
plan.collect = lambda spec: json.dumps({{"records": [], "more": False, "facts": {{}}, "environment": {{}}}})
def run(spec):
    plan._find_publisher()({{"kind": "record", "record": {record!r}}})
    __import__("time").sleep(0.5)  # on a busy machine an event takes a while, and the plan's end must not overtake it
    return json.dumps({{"state": "finished"}})
plan.run = run
"""
    corrupt(engine, code, tmp_path / "mark")
    run = Sweep(mlp, ["identity"], [1], repeats=3, threads=1).start(engines={"cpu": engine})
    run.wait()

    assert "failed" == run.state
    assert "a record of a trial that is not part of this run there" in str(run.error)
    assert {"pending"} == set(runs.load_dataset(run.folder)["status"].values.ravel())


MEASUREMENT = records.to_json(
    Measurement(
        trial_id="trial",
        latency_s=(0.1, 0.2),
        rounds=(0, 1),
        compile_time_s=1.0,
        first_call_time_s=0.1,
        contract=Contract(runtime="torch eager"),
        rmse=1e-7,
        baseline_rmse=1e-7,
        max_abs_error=1e-6,
    )
)
FAILURE = records.to_json(Failure(trial_id="trial", status="failed", stage="compile", error="no"))
NESTED = json.loads('{"a":' * 100 + "1" + "}" * 100)


def parse(event: dict[str, Any]) -> dict[str, Any] | None:
    """Parse an event of a device with one trial."""
    return replies.parse_event("far", json.dumps(event), {"trial"})


def test_texts_of_a_device_are_sanitized() -> None:
    """A text of a device has a limited length and no line break, escape sequence or other label."""
    event = parse({"kind": "stage", "device": "near", "text": "\x1b[2Jgone\n" + "x" * 100_000})

    assert event is not None
    assert ("far", True) == (event["device"], event["text"].isprintable())
    assert 2000 == len(event["text"])


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "record", "record": {"trial_id": "trial"}},
        {"kind": "interim", "records": [{"trial_id": "trial"}]},
        {"kind": "interim", "records": {}},
        {"kind": "record", "record": "trial"},
        {"kind": "record", "record": {"trial_id": ["trial"]}},
        {"kind": "environment", "key": "near", "value": {}},
        {"kind": "environment", "key": "far", "value": []},
        {"kind": "facts", "key": 3, "value": {}},
        {"kind": "round", "text": "x", "done": "3", "total": 5, "trial_ids": []},
        {"kind": "round", "text": "x", "done": True, "total": 5, "trial_ids": []},
        {"kind": "salvaged", "records": None, "journal": "x"},
        {"kind": "salvaged", "records": 10**400, "journal": "x"},
        {"kind": "stage", "text": ["x"]},
        {"kind": "facts", "key": '["net", {}]', "value": {"parameters": "many"}},
        {"kind": "environment", "key": "far", "value": {"conditions": False}},
        {"kind": "environment", "key": "far", "value": {"chip": "x" * 5_000_000}},
        {"kind": "record", "record": {**FAILURE, "error": []}},
        {"kind": "record", "record": {**FAILURE, "facts": "x"}},
        {"kind": "record", "record": {**FAILURE, "status": "splendid"}},
        {"kind": "record", "record": {**FAILURE, "stage": ["compile"]}},
        {"kind": "record", "record": {**FAILURE, "facts": NESTED}},
        {"kind": "record", "record": {**MEASUREMENT, "latency_s": ["1"]}},
        {"kind": "record", "record": {**MEASUREMENT, "latency_s": [], "rounds": []}},
        {"kind": "record", "record": {**MEASUREMENT, "rounds": [0]}},
        {"kind": "record", "record": {**MEASUREMENT, "rounds": [0, 2**31]}},
        {"kind": "record", "record": {**MEASUREMENT, "contended_samples": [2]}},
        {"kind": "record", "record": {**MEASUREMENT, "contract": {"runtime": 3}}},
    ],
    ids=lambda event: str(event)[:60],
)
def test_an_invalid_event_is_refused(event: dict[str, Any]) -> None:
    """The error names the device."""
    with pytest.raises(ReplyError, match="device far"):
        parse(event)


@pytest.mark.parametrize("text", ["", "{", "[]", "NaN", "[" * 100_000, "x" * (replies.MAX_MESSAGE_BYTES + 1)])
def test_an_event_that_is_no_object_of_limited_size_is_refused(text: str) -> None:
    """The error names the device."""
    with pytest.raises(ReplyError, match="invalid message from device far"):
        replies.parse_event("far", text, {"trial"})


def test_a_valid_record_is_taken_as_it_is() -> None:
    """A valid record is accepted unchanged, including numbers that JSON lacks."""
    event = parse({"kind": "record", "record": {**MEASUREMENT, "rmse": math.inf}})

    assert event is not None
    assert records.from_json({**MEASUREMENT, "rmse": math.inf}) == event["record"]


def test_texts_of_a_failure_and_of_an_environment_are_sanitized() -> None:
    """The texts of a failure and of an environment are sanitised for a terminal."""
    failed = parse({"kind": "record", "record": {**FAILURE, "error": "\x1b[2Jgone\n", "detail": "a\nb\x1b[0m\x07"}})
    observed = parse({"kind": "environment", "key": "far", "value": {"conditions": {"warnings": ["\x1b]0;x\x07hot"]}}})

    assert failed is not None
    assert observed is not None
    assert ("gone ", "a\nb ") == (failed["record"].error, failed["record"].detail)
    assert ["hot"] == observed["value"]["conditions"]["warnings"]


def test_the_progress_of_tuning_is_clamped() -> None:
    """Invalid seconds are dropped, and at most all candidates were tried."""
    event = {"kind": "tuning", "text": "tuning\x1b", "trial_id": "one", "done": 9, "total": 4, "best_s": "soon"}

    assert {
        **{"kind": "tuning", "device": "cpu", "text": "tuning ", "trial_id": "one", "done": 4, "total": 4},
        **{"best_s": None, "left_s": None},
    } == replies.parse_event("cpu", json.dumps({**event, "left_s": float("inf")}), {"one"})
    with pytest.raises(replies.ReplyError, match="tuning for a trial that is not part of this run"):
        replies.parse_event("cpu", json.dumps(event), {"other"})


def test_events_of_an_unknown_kind_are_ignored() -> None:
    """A newer device may send more."""
    assert parse({"kind": "temperature", "celsius": 40}) is None
    assert parse({}) is None


def test_the_progress_of_a_round_is_clamped() -> None:
    """Trials of other runs are dropped, and progress stays between nothing and all."""
    event = parse({"kind": "round", "text": "x", "done": -4, "total": 0, "trial_ids": ["trial", "other", 7]})

    assert event is not None
    assert (0, 1, ["trial"]) == (event["done"], event["total"], event["trial_ids"])


def test_a_reply_is_reduced_to_the_requested_fields() -> None:
    """`extract` drops every field of a reply that was not requested."""
    reply = replies.parse("far", json.dumps({"a": 1, "b": "x", "c": []}))

    assert {"a": 1, "b": "x"} == replies.extract("far", reply, {"a": int, "b": str})


def test_invalid_vitals_are_dropped(engine: Engine, tmp_path: Path) -> None:
    """Invalid numbers become None, and the log is sanitized."""
    numbers = "{'load_1min': float('inf'), 'memory_available_bytes': 'much', 'temperature_max_c': -1}"
    log = "'one' + chr(10) + chr(27) + '[2Jtwo'"
    corrupt(engine, f"plan.vitals = lambda spec: json.dumps({{'looked': {numbers}, 'log': {log}}})", tmp_path / "mark")

    vitals = engine.vitals()

    assert (None, None, None) == (vitals.load, vitals.memory_available_bytes, vitals.temperature_c)
    assert "one\ntwo" == vitals.log
