"""How far a run is, in a line; what shows it on a terminal or in a log; and the wait for its end."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ngbkit.runs.time_left import duration

if TYPE_CHECKING:
    from ngbkit.runs import Run
    from ngbkit.sweep.records import Failure

#: The least time between two updates of what a person sees.
PAUSE_S = 0.2
# The time left goes on counting down while nothing happens.
_REFRESH_S = 1.0
# A log that is no terminal gets a line this often.
_LOG_EVERY_S = 10.0


def describe(run: Run) -> str:
    """The run in one line: trials done, time left, and what is being done.

    >>> describe(run)  # doctest: +SKIP
    '3 of 12 trials, about 1 min 20 s left: resnet18 batch 4, round 2 of 5'
    """
    now = run.progress
    failed = now.done - now.statuses.get("ok", 0)
    line = f"{now.done} of {now.total} trials"
    if failed:
        line += f", {failed} without a result"
    if now.remaining_s is not None and not run.ended:
        line += f", about {duration(now.remaining_s)} left"
    return line if run.ended else f"{line}: {now.text}"


def watch(run: Run, show: Callable[[Run], None]) -> None:
    """Wait for the end of a run and `show` it whenever something has happened, at most five times a second.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C came, and the run was stopped by it. It has ended cleanly by then; what was measured is kept.
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
def shown(quiet: bool = False) -> Iterator[Callable[[Run], None]]:
    """What shows a run on stderr, for `watch`: a bar that moves in a terminal, now and then a line in a log."""
    if quiet:
        yield lambda _run: None
    elif not sys.stderr.isatty():
        yield _logger()
    else:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(), TextColumn("{task.description}", markup=False))
        # Drawn when something has happened, not by a thread that takes time from what is measured.
        with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as bar:
            task = bar.add_task("")
            yield lambda run: bar.update(
                task, completed=run.progress.done, total=run.progress.total, description=describe(run), refresh=True
            )


def _logger() -> Callable[[Run], None]:
    logged = -math.inf

    def log(run: Run) -> None:
        nonlocal logged
        if run.ended or time.monotonic() - logged >= _LOG_EVERY_S:
            logged = time.monotonic()
            sys.stderr.write(f"{describe(run)}\n")
            sys.stderr.flush()

    return log


def remarks(run: Run) -> list[str]:
    """What disturbs the devices of a run, a line each.

    >>> remarks(run)  # doctest: +SKIP
    ['cpu: other work takes 46 % of all cores (python): end it, or wait until it has ended']
    """
    return [f"{device}: {line}" for device, lines in sorted(run.warnings.items()) for line in lines]


def common_failure(run: Run) -> Failure | None:
    """What every single trial of a run failed with, where it is the same for all; else None."""
    now = run.progress
    if not now.done or now.done < now.total or now.statuses.get("ok"):
        return None
    failures = run.failures()
    return failures[0] if len({failure.error for failure in failures}) == 1 else None
