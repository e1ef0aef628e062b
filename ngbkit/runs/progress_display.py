"""Displays a live run: as a line of text, as a bar on a terminal, as lines in a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ngbkit.errors import WorkloadError, strip_controls
from ngbkit.sweep.records import MEASURED, NOT_CHECKED
from ngbkit.user_text import format_duration

if TYPE_CHECKING:
    from ngbkit.runs import Run
    from ngbkit.runs.progress import Progress as RunProgress

#: The shortest time between two updates of a display.
PAUSE_S = 0.2
# The time left counts down even while nothing happens.
_REFRESH_S = 1.0
# A shorter step is rounded to no second.
_LEAST_S = 0.5
# Further interrupts within this time repeat the first one: `timeout` signals a process and its group, a closing
# terminal does so twice, and impatient people press Ctrl-C thrice.
ECHO_S = 1.0
# The time between two lines in a log.
_LOG_EVERY_S = 10.0


def describe(run: Run) -> str:
    """Describe a run in one line: its recorded trials, the work that is done, the time left, the step, other work."""
    return describe_progress(run.progress, run.ended)


def describe_progress(progress: RunProgress, ended: bool) -> str:
    """Describe the progress of a run, or of its part on one device: see `describe`."""
    unchecked = progress.statuses.get(NOT_CHECKED, 0)
    failed = progress.done - progress.statuses.get("ok", 0) - unchecked
    line = f"{progress.done} of {progress.total} trials"
    if not ended and progress.share > progress.done / max(progress.total, 1):
        line += f", {100 * progress.share:.0f} % of the work"
    if failed:
        line += f", {failed} without a result"
    if unchecked:
        line += f", {unchecked} not checked"
    if progress.short:
        line += f", {progress.short} with fewer samples"
    if progress.remaining_s is not None and not ended:
        line += f", about {format_duration(progress.remaining_s)} left"
    if ended:
        return line
    beside = f"; other work uses {progress.other_work}" if progress.other_work else ""
    return f"{line}: {progress.text}{beside}"


def describe_seconds(run: Run) -> str:
    """Describe where the seconds of a run went, the longest step first: ``12 s compiling, 4 s starting``."""
    steps = sorted(run.progress.seconds.items(), key=lambda step: -step[1])
    return ", ".join(f"{format_duration(seconds)} {step}" for step, seconds in steps if seconds >= _LEAST_S)


def describe_interrupt(run: Run, dataset: str | None = None, then: str = "") -> str:
    """Describe a run that Ctrl-C stopped: where its measurements are, how to resume it, and the command to use then."""
    progress = run.progress
    result = f"; `{dataset}` is their dataset" if dataset else "; they are kept" if progress.done else ""
    following = f" and then: `{then.format(run=run.id)}`" if then else ""
    complete, part = progress.done - progress.short, f", and within {progress.short} more" if progress.short else ""
    return (
        f"stopped after {complete} of {progress.total} trials{part}{result}. "
        f"Resume with: `ngbkit runs --resume {run.id}`{following}"
    )


def watch(run: Run, show: Callable[[Run], None]) -> None:
    """Wait until a run ends, and call `show` with it after each change, at most five times a second.

    Ctrl-C stops the run; KeyboardInterrupt is raised once it has stopped and its measurements are saved, or at another
    Ctrl-C a second later.
    """
    interrupt: KeyboardInterrupt | None = None
    interrupted_s = 0.0
    while not run.ended:
        try:
            if interrupt is not None:
                run.stop()
            show(run)
            run.wait_for_change(_REFRESH_S)
            run.wait(PAUSE_S)
        except KeyboardInterrupt as error:
            if interrupt is not None and time.monotonic() - interrupted_s > ECHO_S:
                raise
            interrupt, interrupted_s = error, interrupted_s or time.monotonic()
    show(run)
    if interrupt is not None and run.state == "stopped":
        raise interrupt


@contextmanager
def open_display(quiet: bool = False) -> Iterator[Callable[[Run], None]]:
    """Open a display on stderr for `watch`: a bar on a terminal, else a line every ten seconds; it warns once."""
    if quiet:
        yield lambda _run: None
    elif not sys.stderr.isatty():
        yield _build_logger()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        # Drawn after a change, not by a thread that would disturb the measurement.
        console = Console(stderr=True)
        # The standard output is held until the end anyway.
        bar = Progress(*columns, console=console, auto_refresh=False, redirect_stdout=False)
        task = bar.add_task("")
        warn = _build_warner(
            lambda line: console.print(strip_controls(line), markup=False, highlight=False, soft_wrap=True)
        )

        def show(run: Run) -> None:
            with suppress(OSError):  # a terminal that was closed ends no run
                warn(run)
                bar.update(
                    task,
                    completed=run.progress.share,
                    total=1.0,
                    description=strip_controls(describe(run)),
                    refresh=True,
                )

        with suppress(OSError):
            bar.start()
        try:
            yield show
        finally:
            with suppress(OSError):
                bar.stop()


def _build_warner(write: Callable[[str], object]) -> Callable[[Run], None]:
    """Build a function that writes each warning of a run once."""
    printed: set[str] = set()

    def warn(run: Run) -> None:
        for line in [*list_known(run), *list_warnings(run)]:
            if line not in printed:
                printed.add(line)
                write(f"ngbkit: {line}")

    return warn


def _build_logger() -> Callable[[Run], None]:
    logged_s = -math.inf
    warn = _build_warner(_write)

    def log(run: Run) -> None:
        nonlocal logged_s
        warn(run)
        if run.ended or time.monotonic() - logged_s >= _LOG_EVERY_S:
            logged_s = time.monotonic()
            _write(describe(run))

    return log


def _write(line: str) -> None:
    with suppress(OSError):  # a full disk behind stderr ends no run
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def list_known(run: Run) -> list[str]:
    """List what earlier runs know of a run, a sentence a device, or why they know nothing."""
    return [f"{device}: {text}" for device, text in sorted(run.known_trials.items())]


def list_warnings(run: Run) -> list[str]:
    """List the disturbances of the devices of a run, one line each."""
    return [f"{device}: {line}" for device, lines in sorted(run.warnings.items()) for line in lines]


def explain_failure(run: Run) -> WorkloadError | None:
    """Build the error of a run without a result from its first reason, with the traceback of the user's code."""
    if not run.ended or any(map(run.progress.statuses.get, MEASURED)) or not (failures := run.failures()):
        return None
    first = failures[0]
    count = len({failure.error for failure in failures})
    reasons = f"all are {first.status}" if count == 1 else f"the first of {count} reasons is {first.status}"
    files = [workload.spec.get("filename") for workload in run.sweep.workloads]
    traceback = first.detail if any(file and file in first.detail for file in files) else ""
    return WorkloadError(f"no trial gave a result, {reasons}: {first.error}", traceback)
