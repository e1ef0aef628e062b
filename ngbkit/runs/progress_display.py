"""Displays a live run: as a line of text, as a bar on a terminal, as lines in a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from ngbkit.runs.time_left import format_duration

if TYPE_CHECKING:
    from ngbkit.runs import Run
    from ngbkit.runs.progress import Progress as RunProgress
    from ngbkit.sweep.records import Failure

#: The shortest time between two updates of a display.
PAUSE_S = 0.2
# The time left counts down even while nothing happens.
_REFRESH_S = 1.0
# The time between two lines in a log.
_LOG_EVERY_S = 10.0


def describe(run: Run) -> str:
    """Describe a run in one line: its recorded trials, the work that is done, the time left, the step, other work.

    >>> describe(run)  # doctest: +SKIP
    '3 of 12 trials, 27 % of the work, about 1 min 20 s left: resnet18 batch 4, round 2 of 5'
    """
    return describe_progress(run.progress, run.ended)


def describe_progress(progress: RunProgress, ended: bool) -> str:
    """Describe the progress of a run, or of its part on one device: see `describe`."""
    failed = progress.done - progress.statuses.get("ok", 0)
    line = f"{progress.done} of {progress.total} trials"
    if not ended and progress.share > progress.done / max(progress.total, 1):
        line += f", {100 * progress.share:.0f} % of the work"
    if failed:
        line += f", {failed} without a result"
    if progress.remaining_s is not None and not ended:
        line += f", about {format_duration(progress.remaining_s)} left"
    if ended:
        return line
    beside = f"; other work uses {progress.other_work}" if progress.other_work else ""
    return f"{line}: {progress.text}{beside}"


def watch(run: Run, show: Callable[[Run], None]) -> None:
    """Wait until a run ends, and call `show` with it after each change, at most five times a second.

    Ctrl-C stops the run; KeyboardInterrupt is raised once it has stopped and its measurements are saved.
    """
    interrupt: KeyboardInterrupt | None = None
    while not run.ended:
        try:
            show(run)
            run.wait_for_change(_REFRESH_S)
            run.wait(PAUSE_S)
        except KeyboardInterrupt as error:
            if interrupt is not None:
                raise
            interrupt = error
            run.stop()
    show(run)
    if interrupt is not None and run.state == "stopped":
        raise interrupt


@contextmanager
def open_display(quiet: bool = False) -> Iterator[Callable[[Run], None]]:
    """Open a display on stderr for `watch`: a bar on a terminal, otherwise a line every ten seconds."""
    if quiet:
        yield lambda _run: None
    elif not sys.stderr.isatty():
        yield _build_logger()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        # Drawn after a change, not by a thread that would disturb the measurement.
        with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
            task = bar.add_task("")
            yield lambda run: bar.update(
                task, completed=run.progress.share, total=1.0, description=describe(run), refresh=True
            )


def _build_logger() -> Callable[[Run], None]:
    logged_s = -math.inf

    def log(run: Run) -> None:
        nonlocal logged_s
        if run.ended or time.monotonic() - logged_s >= _LOG_EVERY_S:
            logged_s = time.monotonic()
            with suppress(OSError):  # a full disk behind stderr ends no run
                sys.stderr.write(f"{describe(run)}\n")
                sys.stderr.flush()

    return log


def list_warnings(run: Run) -> list[str]:
    """List the disturbances of the devices of a run, one line each.

    >>> list_warnings(run)  # doctest: +SKIP
    ['cpu: other work uses 46 % of all cores (python): end it, or wait until it has ended']
    """
    return [f"{device}: {line}" for device, lines in sorted(run.warnings.items()) for line in lines]


def find_common_failure(run: Run) -> Failure | None:
    """Return the failure that every trial of a run shares, or None."""
    progress = run.progress
    if not progress.done or progress.done < progress.total or progress.statuses.get("ok"):
        return None
    failures = run.failures()
    return failures[0] if len({failure.error for failure in failures}) == 1 else None
