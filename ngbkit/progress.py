"""How far a run is, in a line, and the wait for its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ngbkit.clock import duration

if TYPE_CHECKING:
    from ngbkit.records import Failure
    from ngbkit.runs import Run

#: The least time between two updates of what a person sees.
PAUSE_S = 0.2
# The time left goes on counting down while nothing happens.
_REFRESH_S = 1.0


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
