"""The progress of a run, in all and by device."""

import sys
import threading
from types import FrameType

import pytest
from synthetic_records import build_network

from ngbkit.api import Sweep
from ngbkit.errors import UnknownNameError
from ngbkit.runs.progress import ProgressTracker


@pytest.fixture
def trials():
    """Two trials on each of two devices."""
    sweep = Sweep([build_network("net")], ["identity", "openvino"], [1], devices=["cpu", "orin"], repeats=5)
    return {trial.id: trial for trial in sweep.trials()}


def list_ids(trials, device):
    return [trial_id for trial_id, trial in trials.items() if trial.device == device]


def test_devices_are_counted_separately(trials):
    """Records of one device are no progress of another."""
    tracker = ProgressTracker(trials, {})

    tracker.record(list_ids(trials, "cpu")[0], "ok")
    tracker.record(list_ids(trials, "cpu")[1], "crashed")

    assert (2, 4) == (tracker.snapshot().done, tracker.snapshot().total)
    assert {"ok": 1, "crashed": 1} == dict(tracker.snapshot("cpu").statuses)
    assert (0, 2) == (tracker.snapshot("orin").done, tracker.snapshot("orin").total)


def test_earlier_records_count(trials):
    """A resumed run starts from its earlier records; records of other trials, such as anchors, do not count."""
    first = next(iter(trials))
    tracker = ProgressTracker(trials, {first: "ok", "another": "ok"})

    tracker.record("another", "ok")

    assert {first: "ok"} == tracker.statuses
    assert 1 == tracker.snapshot().done


def test_other_work_is_reported_until_it_ends(trials):
    """Progress reports the other work of each device until it ends."""
    tracker = ProgressTracker(trials, {})
    tracker.set_other_work("cpu", "46 % of all cores")
    tracker.set_other_work("elsewhere", "99 % of all cores")

    assert ("46 % of all cores", "") == (tracker.snapshot("cpu").other_work, tracker.snapshot("orin").other_work)
    assert "46 % of all cores of cpu" == tracker.snapshot().other_work
    tracker.set_other_work("cpu", "")
    assert "" == tracker.snapshot().other_work


def test_each_device_has_its_text(trials):
    """The run as a whole has the latest text of any device."""
    tracker = ProgressTracker(trials, {})
    tracker.set_text("compiling", "cpu")
    tracker.set_text("round 2 of 5", "orin")

    assert "round 2 of 5" == tracker.snapshot().text
    assert ("compiling", "round 2 of 5") == tuple(tracker.snapshot(device).text for device in ("cpu", "orin"))

    tracker.set_text("stopped")

    assert "stopped" == tracker.snapshot("cpu").text


def test_the_slowest_device_finishes_last(trials, monkeypatch):
    """Devices work in parallel, so the time left is their longest; while one has no estimate, as one that waits for
    its turn, that of the whole is unknown."""
    now = [0.0]
    monkeypatch.setattr("ngbkit.runs.progress.time.monotonic", lambda: now[0])
    tracker = ProgressTracker(trials, {})
    assert tracker.snapshot().remaining_s is None

    for device, seconds in (("cpu", 1.0), ("orin", 5.0)):
        trial_id = list_ids(trials, device)[0]
        tracker.prepare(device)
        tracker.compile(device, trial_id)
        now[0] += seconds
        tracker.advance(device, [trial_id], 0.0)
        now[0] += seconds
        tracker.advance(device, [trial_id], 1.0)
        tracker.record(trial_id, "ok")
        assert (tracker.snapshot().remaining_s is None) == (device == "cpu")

    assert (2.0, 10.0) == tuple(tracker.snapshot(device).remaining_s for device in ("cpu", "orin"))
    assert 10.0 == tracker.snapshot().remaining_s


def test_the_share_is_that_of_all_devices(trials):
    """Compilations and rounds count before the first record."""
    tracker = ProgressTracker(trials, {})
    first, second = list_ids(trials, "cpu")
    tracker.compile("cpu", first)
    tracker.compile("cpu", second)
    tracker.advance("cpu", [first, second], 0.5)

    assert (0.375, 0.75) == (tracker.snapshot().share, tracker.snapshot("cpu").share)
    assert 0 == tracker.snapshot().done


def test_an_unknown_device_is_an_error(trials):
    """The error suggests a device of the run."""
    with pytest.raises(UnknownNameError, match="orin"):
        ProgressTracker(trials, {}).snapshot("orni")


def test_the_work_of_a_display_grows_as_the_number_of_trials() -> None:
    """A snapshot of twice as many batch sizes calls about twice as many functions, and none a recorded trial."""
    counts = [count_calls(sizes, done) for sizes, done in ((200, 100), (400, 200), (400, 399))]

    assert counts[1] < 3 * counts[0]
    assert counts[2] < 100


def count_calls(sizes: int, done: int) -> int:
    """Count the calls of Python functions in a snapshot after so many of the batch sizes are measured."""
    sweep = Sweep([build_network("net")], ["identity"], list(range(1, sizes + 1)))
    trials = {trial.id: trial for trial in sweep.trials()}
    tracker = ProgressTracker(trials, {})
    for trial_id in list(trials)[:done]:
        tracker.compile("cpu", trial_id)
        tracker.advance("cpu", [trial_id], 0.0)
        tracker.advance("cpu", [trial_id], 1.0)
        tracker.record(trial_id, "ok")
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(trace)
    tracker.snapshot()
    sys.setprofile(None)
    return count


def test_a_display_reads_progress_while_the_run_records():
    """A display on another thread reads each record as counted or not."""
    sweep = Sweep([build_network("net")], ["identity", "openvino"], list(range(1, 2001)), repeats=5)
    trials = {trial.id: trial for trial in sweep.trials()}
    tracker = ProgressTracker(trials, {})
    errors = []

    def read():
        try:
            while tracker.snapshot().done < len(trials):
                pass
        except RuntimeError as error:
            errors.append(error)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader = threading.Thread(target=read)
    reader.start()
    for trial_id in trials:
        tracker.record(trial_id, "ok")
    reader.join()
    sys.setswitchinterval(interval_s)

    assert [] == errors
