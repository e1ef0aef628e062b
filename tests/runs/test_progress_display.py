"""The description of a run, its display, and the wait for its end."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from ngbkit.runs import progress_display
from ngbkit.runs.progress import Progress
from ngbkit.sweep.records import Failure
from ngbkit.user_text import format_duration


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
    known_trials: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, list[str]] = field(default_factory=dict)
    sweep: Any = field(default_factory=lambda: SimpleNamespace(workloads=[SimpleNamespace(spec={})]))

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
            Failure(trial_id=str(number), status="failed", stage="build", error=text, detail="details of net.py")
            for number, text in enumerate(self.errors)
        ]


class ClosedTerminal(io.StringIO):
    """A terminal whose window was closed."""

    attempts = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.attempts += 1
        raise OSError(errno.EIO, "Input/output error", text)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (80, "1 min 20 s"), (7500, "2 h 5 min")]
)
def test_a_duration_is_in_its_two_largest_units(seconds: float, text: str) -> None:
    """A duration is formatted in its two largest units."""
    assert text == format_duration(seconds)


def test_a_run_is_described_in_a_line() -> None:
    """One line describes a run with its trials, failures, time left and current step."""
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


@pytest.mark.parametrize(("pause_s", "ended"), [(0.1, True), (2.0, False)], ids=["echo", "later"])
def test_a_later_interrupt_does_not_wait(monkeypatch: pytest.MonkeyPatch, pause_s: float, ended: bool) -> None:
    """A later interrupt returns the prompt at once; three within a second are one."""
    now_s = 0.0
    monkeypatch.setattr(progress_display.time, "monotonic", lambda: now_s)

    def interrupt_again() -> None:
        nonlocal now_s
        now_s += pause_s
        interrupt()

    now_s = 1.0
    run = Steps([interrupt, interrupt_again, interrupt_again])
    run.steps.append(lambda: run.end("stopped"))
    with pytest.raises(KeyboardInterrupt):
        progress_display.watch(run, lambda run: None)

    assert ended == run.ended


def test_a_closed_terminal_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run continues without its bar if the terminal is closed."""
    run = Steps([], warnings={"cpu": ["other work uses 46 % of all cores"]})
    terminal = ClosedTerminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_display.open_display() as show:
        show(run)

    assert terminal.attempts > 0


@pytest.mark.parametrize(
    ("statuses", "errors", "message"),
    [
        ({"failed": 4}, ["boom"] * 4, "no trial gave a result, all are failed: boom"),
        ({"failed": 4}, ["bang", "boom", "boom"], "no trial gave a result, the first of 2 reasons is failed: bang"),
        ({"failed": 3, "ok": 1}, ["boom"] * 3, "None"),
        ({}, [], "None"),
    ],
)
def test_the_first_reason_explains_a_run_without_results(
    statuses: dict[str, int], errors: list[str], message: str
) -> None:
    """Trials that fail for different reasons, as for two widths, leave as little as those with one."""
    run = Steps([], done=4, statuses=statuses, errors=errors)
    early = progress_display.explain_failure(run)
    run.end()

    assert early is None
    assert message == str(progress_display.explain_failure(run))


def test_the_reason_has_the_line_of_the_user() -> None:
    """The reason of a failure has the traceback of the cell, and of no other code."""
    run = Steps([], done=1, statuses={"failed": 1}, errors=["boom"])
    run.end()
    for filename, traceback in (("net.py", "details of net.py"), ("other.py", "")):
        run.sweep.workloads[0].spec["filename"] = filename

        assert traceback == progress_display.explain_failure(run).traceback


def test_a_warning_is_written_once_and_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """The display writes a warning once, as soon as the run has it."""
    run = Steps([])
    for quiet in (True, False):
        run.warnings.clear()
        with progress_display.open_display(quiet) as show:
            show(run)
            run.warnings["cpu"] = ["other work uses 46 % of all cores"]
            show(run)
            show(run)

    assert 1 == capsys.readouterr().err.count("ngbkit: cpu: other work uses 46 % of all cores\n")


def test_a_trial_that_was_not_checked_has_a_result() -> None:
    """An unchecked trial is counted apart from failures, and a run of such trials has not failed."""
    run = Steps([], done=3, statuses={"ok": 1, "not-checked": 1, "failed": 1}, errors=["no"])
    assert "3 of 4 trials, 1 without a result, 1 not checked" in progress_display.describe_progress(run.progress, True)

    run = Steps([], done=2, statuses={"not-checked": 1, "failed": 1}, errors=["no"])
    run.end()
    assert progress_display.explain_failure(run) is None


def test_the_seconds_of_a_run_are_described_by_step() -> None:
    """The longest step comes first, and a step of no second is left out."""
    seconds = {"starting": 0.4, "preparing": 6.2, "compiling": 75.0, "measuring": 12.0}
    progress = Progress(done=4, total=4, statuses={}, share=1.0, text="", remaining_s=None, seconds=seconds)

    assert "1 min 15 s compiling, 12 s measuring, 6 s preparing" == progress_display.describe_seconds(
        SimpleNamespace(progress=progress)
    )
