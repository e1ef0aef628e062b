"""How far a run is: counted in all and by device."""

import pytest

from ngbkit.errors import UnknownNameError
from ngbkit.runs.progress import Tally
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload


@pytest.fixture
def trials():
    """Two trials on either of two devices."""
    network = Workload(name="net", source="timm", spec={"name": "net"})
    sweep = Sweep([network], ["identity", "openvino"], [1], devices=["cpu", "orin"], repeats=5)
    return {trial.id: trial for trial in sweep.trials()}


def on(trials, device):
    return [key for key, trial in trials.items() if trial.device == device]


def test_devices_are_counted_apart(trials):
    """What one has done is no progress of the other."""
    tally = Tally(trials, {})

    tally.count(on(trials, "cpu")[0], "ok")
    tally.count(on(trials, "cpu")[1], "crashed")

    assert (2, 4) == (tally.progress().done, tally.progress().total)
    assert {"ok": 1, "crashed": 1} == dict(tally.progress_of("cpu").statuses)
    assert (0, 2) == (tally.progress_of("orin").done, tally.progress_of("orin").total)


def test_what_was_done_before_counts(trials):
    """A run that is resumed begins where it was; records of others, such as anchors, are none of its trials."""
    first = next(iter(trials))
    tally = Tally(trials, {first: "ok", "another": "ok"})

    tally.count("another", "ok")

    assert {first: "ok"} == tally.statuses
    assert 1 == tally.progress().done


def test_each_device_says_what_it_does(trials):
    """The run as a whole says what was said last."""
    tally = Tally(trials, {})
    tally.say("compiling", "cpu")
    tally.say("round 2 of 5", "orin")

    assert "round 2 of 5" == tally.progress().text
    assert ("compiling", "round 2 of 5") == tuple(tally.progress_of(one).text for one in ("cpu", "orin"))

    tally.say("stopped")

    assert "stopped" == tally.progress_of("cpu").text


def test_the_slowest_device_ends_last(trials):
    """They work side by side, so the time left is the longest of theirs; a device that has told nothing has none."""
    tally = Tally(trials, {})
    assert tally.progress().remaining_s is None

    tally.count(on(trials, "cpu")[0], "ok")
    half = tally.progress_of("cpu").remaining_s
    tally.count(on(trials, "cpu")[1], "ok")
    tally.count(on(trials, "orin")[0], "ok")

    assert half is not None
    assert 0 == tally.progress_of("cpu").remaining_s
    assert tally.progress().remaining_s == pytest.approx(tally.progress_of("orin").remaining_s, abs=0.5)


def test_another_device_is_named(trials):
    """The error says which there are."""
    with pytest.raises(UnknownNameError, match="orin"):
        Tally(trials, {}).progress_of("orni")
