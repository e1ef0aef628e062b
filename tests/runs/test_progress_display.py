"""The description of a run, its display, and the wait for its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from ngbkit.runs import Progress, progress_display, time_left
from ngbkit.sweep.records import Failure


@dataclass
class Steps:
    """A run that takes one step at each wait for a change."""

    steps: list[Callable[[], Any]]
    state: str = "running"
    ended: bool = False
    stopped: int = 0
    done: int = 0
    share: float = 0.0
    remaining_s: float | None = None
    other_work: str = ""
    statuses: dict[str, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def progress(self) -> Progress:
        return Progress(
            done=self.done,
            total=4,
            statuses=self.statuses,
            share=self.share,
            text="measuring",
            remaining_s=self.remaining_s,
            other_work=self.other_work,
        )

    def wait_for_change(self, timeout_s: float) -> None:
        self.steps.pop(0)()

    def wait(self, timeout_s: float | None = None) -> bool:
        return self.ended

    def stop(self) -> None:
        self.stopped += 1

    def end(self, state: str = "finished") -> None:
        self.state, self.ended = state, True

    def failures(self) -> list[Failure]:
        return [
            Failure(trial_id=str(number), status="failed", stage="build", error=text)
            for number, text in enumerate(self.errors)
        ]


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (80, "1 min 20 s"), (7500, "2 h 5 min")]
)
def test_a_duration_is_in_its_two_largest_units(seconds: float, text: str) -> None:
    """Minutes with seconds, hours with minutes."""
    assert text == time_left.format_duration(seconds)


def test_a_run_is_described_in_a_line() -> None:
    """Recorded trials, failures, the time left, the current step, what disturbs it; at the end trials and failures."""
    run = Steps([], done=3, share=0.8, remaining_s=80, statuses={"ok": 1, "timeout": 2})
    during = progress_display.describe(run)
    run.end()

    assert "3 of 4 trials, 80 % of the work, 2 without a result, about 1 min 20 s left: measuring" == during
    assert "3 of 4 trials, 2 without a result" == progress_display.describe(run)
    assert "0 of 4 trials: measuring" == progress_display.describe(Steps([]))
    busy = Steps([], other_work="46 % of all cores (stress)")
    assert "0 of 4 trials: measuring; other work uses 46 % of all cores (stress)" == progress_display.describe(busy)


def test_watching_shows_every_change_and_the_end() -> None:
    """The display shows the run at the start, after each change and at the end."""
    run = Steps([])
    run.steps = [lambda: setattr(run, "done", 1), run.end]
    updates: list[tuple[int, bool]] = []
    progress_display.watch(run, lambda run: updates.append((run.progress.done, run.ended)))

    assert [(0, False), (1, False), (1, True)] == updates


def test_an_interrupt_stops_the_run_and_waits_for_its_end() -> None:
    """KeyboardInterrupt is raised once all measurements are saved."""
    run = Steps([])
    run.steps = [interrupt, lambda: run.end("stopped")]
    with pytest.raises(KeyboardInterrupt):
        progress_display.watch(run, lambda run: None)

    assert (1, True) == (run.stopped, run.ended)


def test_a_late_interrupt_changes_nothing() -> None:
    """A run that finishes in spite of it is finished."""
    run = Steps([])
    run.steps = [interrupt, run.end]
    progress_display.watch(run, lambda run: None)

    assert "finished" == run.state


def test_a_second_interrupt_does_not_wait() -> None:
    """It returns the prompt at once."""
    run = Steps([interrupt, interrupt])
    with pytest.raises(KeyboardInterrupt):
        progress_display.watch(run, lambda run: None)

    assert not run.ended


@pytest.mark.parametrize(
    ("statuses", "errors", "common"),
    [
        ({"failed": 4}, ["boom"] * 4, "boom"),
        ({"failed": 4}, ["boom", "boom", "boom", "other"], None),
        ({"failed": 3, "ok": 1}, ["boom"] * 3, None),
        ({"failed": 3}, ["boom"] * 3, None),
    ],
)
def test_a_failure_is_common_when_all_trials_share_it(
    statuses: dict[str, int], errors: list[str], common: str | None
) -> None:
    """A trial that succeeded, failed otherwise or is pending makes failures a matter of single trials."""
    run = Steps([], done=sum(statuses.values()), statuses=statuses, errors=errors)
    failure = progress_display.find_common_failure(run)

    assert common == (failure and failure.error)
