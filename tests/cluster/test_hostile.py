"""An engine that has turned against its client gets a clear error and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ipyparallel
import pytest
from state import keep_state_dir

from ngbkit import runs
from ngbkit.cluster import engines, replies
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.replies import ReplyError
from ngbkit.errors import DeviceError
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload

# Defined on the engine, where nothing holds it back.
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
    "a pickle that makes a folder": ("Evil()", "it holds posix.mkdir, not a text"),
    "a pickle within a list": ("[Evil()]", "it holds posix.mkdir, not a text"),
    "a number": ("7", "it is a int, not a text"),
    "nothing": ("None", "it is a NoneType, not a text"),
    "bytes": ("b'{}'", "not a text"),
    "a function": ("lambda: None", "refused"),
    "100 MB": ("'x' * 100_000_000", r"100,0\d\d,\d\d\d bytes, and at most"),
    "malformed JSON": ("'{\"format\": 2'", "not JSON"),
    "JSON that nests without end": ("'[' * 100_000", "not JSON"),
    "a list": ("'[]'", "a list in the place of a JSON object"),
    "nothing of what was asked": ("'{}'", "without a proper 'format'"),
    "a format that is true": ("json.dumps({**honest, 'format': True})", "without a proper 'format'"),
    "another format": ("json.dumps({**honest, 'format': 99})", "speaks format 99, this ngbkit"),
    "a folder that is none": ("json.dumps({**honest, 'state_dir': 3})", "without a proper 'state_dir'"),
    "an endless environment": ("json.dumps({**honest, 'environment': {'x': 'y' * 5_000_000}})", "far too long"),
}


state_dir = pytest.fixture(scope="module")(keep_state_dir)


@pytest.fixture
def engine(state_dir: Path) -> Engine:
    """An engine of this machine."""
    return engines.engine()


def turn(engine: Engine, code: str, mark: Path) -> None:
    """Have the engine run that code, after it has learnt what evil is."""
    source = f"MARK = {str(mark)!r}\n{_EVIL}\n{code}"
    result = engine.view.apply_async(ipyparallel.Reference("exec"), source, ipyparallel.Reference("globals()"))
    result.wait(20)
    error = result._children[0].exception() if result._children[0].done() else None
    assert error is None or "not a text" in str(error), error


@pytest.mark.parametrize("what", REPLIES)
def test_a_reply_that_is_none(engine: Engine, tmp_path: Path, what: str) -> None:
    """The handshake fails with an error that says what came, and nothing of it is run."""
    expression, expected = REPLIES[what]
    turn(engine, f"plan.hello = lambda spec: {expression}", tmp_path / "mark")

    with pytest.raises(DeviceError, match=expected):
        engine.hello()
    assert not (tmp_path / "mark").exists()


def test_a_file_that_was_not_offered(engine: Engine, tmp_path: Path) -> None:
    """A device cannot ask for a file by its path."""
    turn(engine, "plan.missing = lambda spec: json.dumps({'missing': ['../../../etc/passwd']})", tmp_path / "mark")

    with pytest.raises(ReplyError, match="asks for a file that it was not offered"):
        engine.push({"a" * 32: tmp_path / "some"})


def test_more_records_without_end(engine: Engine, tmp_path: Path) -> None:
    """A device that always has more to say is not listened to for ever."""
    reply = "{'records': [], 'more': True, 'facts': {}, 'environment': {}}"
    turn(engine, f"plan.collect = lambda spec: json.dumps({reply})", tmp_path / "mark")

    with pytest.raises(ReplyError, match="has more records, and sends none"):
        list(engine.collect("run", [], {"trial"}))


def test_a_record_of_another_run_ends_the_run_and_is_not_kept(engine: Engine, mlp: Workload, tmp_path: Path) -> None:
    """What was measured before is kept."""
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
    plan._publisher()({{"kind": "record", "record": {record!r}}})
    __import__("time").sleep(0.5)  # on a busy machine an event takes a while, and the plan's end must not overtake it
    return json.dumps({{"state": "finished"}})
plan.run = run
"""
    turn(engine, code, tmp_path / "mark")
    run = Sweep(mlp, ["identity"], [1], repeats=3, threads=1).start(engines={"cpu": engine})
    run.wait()

    assert "failed" == run.state
    assert "a record of a trial that this run does not have there" in str(run.error)
    assert {"pending"} == set(runs.load_dataset(run.folder)["status"].values.ravel())


def known(event: dict[str, Any]) -> dict[str, Any] | None:
    """What is made of an event of a device with one trial."""
    return replies.event("far", event, {"trial"})


def test_words_of_a_device_stay_words() -> None:
    """No line break, no escape sequence, no label of another device, and not too many of them."""
    event = known({"kind": "stage", "device": "near", "text": "\x1b[2Jgone\n" + "x" * 100_000})

    assert event is not None
    assert ("far", True) == (event["device"], event["text"].isprintable())
    assert 2000 == len(event["text"])


@pytest.mark.parametrize(
    "event",
    [
        {"kind": "record", "record": {"trial_id": "trial"}},
        {"kind": "record", "record": "trial"},
        {"kind": "record", "record": {"trial_id": ["trial"]}},
        {"kind": "environment", "key": "near", "value": {}},
        {"kind": "environment", "key": "far", "value": []},
        {"kind": "facts", "key": 3, "value": {}},
        {"kind": "round", "text": "x", "done": "3", "total": 5, "trial_ids": []},
        {"kind": "round", "text": "x", "done": True, "total": 5, "trial_ids": []},
        {"kind": "salvaged", "records": None, "journal": "x"},
    ],
)
def test_an_event_that_is_none(event: dict[str, Any]) -> None:
    """It is an error that names the device."""
    with pytest.raises(ReplyError, match="device far"):
        known(event)


def test_how_far_tuning_is_is_held_to_sense() -> None:
    """What is not a number of seconds is left out, and more candidates than there are were not tried."""
    came = {"kind": "tuning", "text": "tuning\x1b", "trial_id": "one", "done": 9, "total": 4, "best_s": "soon"}

    assert {
        **{"kind": "tuning", "device": "cpu", "text": "tuning ", "trial_id": "one", "done": 4, "total": 4},
        **{"best_s": None, "left_s": None},
    } == replies.event("cpu", {**came, "left_s": float("inf")}, {"one"})
    with pytest.raises(replies.ReplyError, match="tunes for a trial that this run does not have"):
        replies.event("cpu", came, {"other"})


def test_events_of_an_unknown_kind_are_passed_over() -> None:
    """A newer device may tell more."""
    assert known({"kind": "temperature", "celsius": 40}) is None
    assert known({}) is None


def test_numbers_of_a_round_are_held_to_sense() -> None:
    """Trials of others are left out, and progress stays between nothing and all."""
    event = known({"kind": "round", "text": "x", "done": -4, "total": 0, "trial_ids": ["trial", "other", 7]})

    assert event is not None
    assert (0, 1, ["trial"]) == (event["done"], event["total"], event["trial_ids"])


def test_a_reply_is_json_of_the_fields_that_were_asked_for() -> None:
    """What else it holds is left out."""
    reply = replies.read("far", json.dumps({"a": 1, "b": "x", "c": []}))

    assert {"a": 1, "b": "x"} == replies.take("far", reply, {"a": int, "b": str})


def test_vitals_that_are_none(engine: Engine, tmp_path: Path) -> None:
    """Numbers that are none are not known, and a log obeys no terminal."""
    looked = "{'load_1min': float('inf'), 'memory_available_bytes': 'much', 'temperature_max_c': -1}"
    log = "'one' + chr(10) + chr(27) + '[2Jtwo'"
    turn(engine, f"plan.vitals = lambda spec: json.dumps({{'looked': {looked}, 'log': {log}}})", tmp_path / "mark")

    found = engine.vitals()

    assert (None, None, None) == (found.load, found.memory_available_bytes, found.temperature_c)
    assert "one\n [2Jtwo" == found.log
