"""The time left, by a fake clock."""

from __future__ import annotations

import pytest

from ngbkit.api import Sweep
from ngbkit.runs import progress
from ngbkit.runs.progress import TimeLeft


class Clock:
    """A fake clock, and the trials of a sweep by name: ``net identity 1``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)

    def build(self, *networks: str, batch_sizes: tuple[int, ...] = (1, 4)) -> TimeLeft:
        """Nothing is recorded; the ids of the trials are names."""
        sweep = Sweep(list(networks), ["identity", "openvino"], batch_sizes)
        names = {f"{trial.workload} {trial.compiler} {trial.batch_size}": trial for trial in sweep.trials()}
        return TimeLeft(names, finished=())

    def measure(self, left: TimeLeft, network: str, size: int, *, compile_s: float = 2.0, call_s: float = 3.0) -> None:
        """Compile both trials of a group, measure them, `call_s` for the calls of each, and record them."""
        names = [f"{network} {compiler} {size}" for compiler in ("identity", "openvino")]
        for name in names:
            left.compile(name)
            self.now += compile_s
        left.advance(names, 0.0)
        self.now += call_s * len(names)
        left.advance(names, 1.0)
        for name in names:
            left.finish(name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_share_grows_with_each_step_of_a_trial(clock: Clock) -> None:
    """The share of a run grows with each compilation and each round."""
    left = clock.build("resnet18", batch_sizes=(1,))
    shares = [left.share]
    for step in (
        left.prepare,
        lambda: left.compile("resnet18 identity 1"),
        lambda: left.compile("resnet18 openvino 1"),
        lambda: left.advance(["resnet18 identity 1", "resnet18 openvino 1"], 0.0),
        lambda: left.advance(["resnet18 identity 1", "resnet18 openvino 1"], 0.5),
        lambda: left.finish("resnet18 identity 1"),
        lambda: left.finish("resnet18 openvino 1"),
    ):
        step()
        shares.append(left.share)

    assert [0, 0, 0, 0.25, 0.5, 0.75, 0.875, 1] == shares


def test_preparing_a_network_is_not_expected_again(clock: Clock) -> None:
    """50 s before the first record, of which 40 for a network that is prepared once, are no 50 for the rest."""
    left = clock.build("resnet18", batch_sizes=(1, 2))
    left.prepare()
    clock.now += 40.0
    before = left.estimate_s()
    clock.measure(left, "resnet18", 1)
    after = left.estimate_s()

    assert before is None
    assert 2 * 2.0 + 2 * 3.0 * 2**0.5 == pytest.approx(after)


def test_another_network_is_prepared_too(clock: Clock) -> None:
    """A network without measurements is expected to take what the others took."""
    left = clock.build("resnet18", "resnet50", batch_sizes=(1,))
    left.prepare()
    clock.now += 40.0
    clock.measure(left, "resnet18", 1)

    assert 40.0 + 2 * 2.0 + 2 * 3.0 == left.estimate_s()


def test_a_compiler_and_a_batch_size_have_their_own_times(clock: Clock) -> None:
    """The rest takes the median of its compiler and of its batch size; a batch that is new, by the root of its size."""
    left = clock.build("resnet18", "resnet50", batch_sizes=(1, 256))
    estimates = []
    for network, size, call_s in (("resnet18", 1, 1.0), ("resnet50", 1, 5.0), ("resnet18", 256, 12.0)):
        clock.measure(left, network, size, call_s=call_s, compile_s=call_s)
        estimates.append(left.estimate_s())

    assert [6 * 1.0 + 2 * 1.0 + 4 * 16.0, 4 * 3.0 + 4 * 16 * 3.0, 2 * 5.0 + 2 * 12.0] == estimates


def test_a_slow_compiler_is_slow_for_every_network(clock: Clock) -> None:
    """A compiler that searches for a minute does so again, and another does not."""
    left = clock.build("resnet18", "resnet50", batch_sizes=(1,))
    names = ["resnet18 identity 1", "resnet18 openvino 1"]
    for name, compile_s in zip((*names, "resnet50 openvino 1"), (2.0, 60.0, 60.0), strict=True):
        left.compile(name)
        clock.now += compile_s
        if name == names[1]:
            left.advance(names, 0.0)
            clock.now += 6.0
            for finished in names:
                left.finish(finished)
    left.compile("resnet50 identity 1")

    assert 2.0 + 2 * 3.0 == left.estimate_s()


def test_the_time_left_counts_down_between_events(clock: Clock) -> None:
    """The time left decreases between events, down to that without the current step."""
    left = clock.build("resnet18", "resnet50", batch_sizes=(1,))
    clock.measure(left, "resnet18", 1)
    start = left.estimate_s()
    left.compile("resnet50 identity 1")
    clock.now += 1.5
    during = left.estimate_s()
    clock.now += 100.0

    assert (10.0, 8.5, 8.0) == (start, during, left.estimate_s())


def test_rounds_are_work_that_is_done(clock: Clock) -> None:
    """Finished rounds reduce the time left within the first group."""
    left = clock.build("resnet18", batch_sizes=(2,))
    names = ["resnet18 identity 2", "resnet18 openvino 2"]
    for name in names:
        left.compile(name)
        clock.now += 1.0
    left.advance(names, 0.0)
    clock.now += 6.0
    left.advance(names, 0.25)
    quarter = left.estimate_s()
    clock.now += 2.0

    assert (18.0, 16.0) == (quarter, left.estimate_s())


def test_what_fails_leaves_nothing(clock: Clock) -> None:
    """A trial that fails in its compilation has no rounds; one whose network fails has neither."""
    left = clock.build("resnet18", batch_sizes=(1,))
    left.prepare()
    clock.now += 5.0
    left.finish("resnet18 identity 1")
    left.compile("resnet18 openvino 1")
    clock.now += 5.0
    left.finish("resnet18 openvino 1")

    assert (1.0, 0.0) == (left.share, left.estimate_s())


def test_a_group_that_begins_again_is_no_error(clock: Clock) -> None:
    """After a crash of the engine its trials are compiled again, and its rounds count from 0."""
    left = clock.build("resnet18", batch_sizes=(1,))
    names = ["resnet18 identity 1", "resnet18 openvino 1"]
    for _ in range(2):
        for name in names:
            left.compile(name)
            clock.now += 1.0
        left.advance(names, 0.5)
        clock.now += 4.0

    assert left.estimate_s() >= 0
    assert 0 < left.share < 1


def test_an_anchor_belongs_to_the_trial_before_it(clock: Clock) -> None:
    """Every group has one at the end: the time that it takes is expected again."""
    left = clock.build("resnet18", "resnet50", batch_sizes=(1,))
    clock.measure(left, "resnet18", 1)
    for name in ("resnet50 identity 1", "resnet50 openvino 1", "anchor-1"):
        left.compile(name)
        clock.now += 2.0
    left.advance(["resnet50 identity 1", "resnet50 openvino 1"], 0.0)

    assert 0.75 == left.share
    assert 6.0 == left.estimate_s()


def test_the_seconds_of_each_step_are_counted(clock: Clock) -> None:
    """Every second before the last record belongs to a step; networks that take turns share theirs."""
    left = clock.build("resnet18", "resnet50", batch_sizes=(1,))
    clock.now += 1.5
    left.prepare()
    clock.now += 40.0
    clock.measure(left, "resnet18", 1)
    clock.measure(left, "resnet50", 1)
    clock.now += 100.0

    assert {"starting": 1.5, "preparing": 40.0, "compiling": 8.0, "measuring": 12.0} == left.seconds
