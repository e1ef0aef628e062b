"""A self-check from its beginning to its end: look at the conditions, measure, estimate, keep."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.runs.selfcheck import store
from ngbkit.runs.selfcheck.record import SelfCheck
from ngbkit.sweep import validation

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run

GROUPS = 12
ROUNDS = 8


def run(
    groups: int = GROUPS,
    *,
    hog: bool = False,
    repeats: int | None = None,
    precision: float | str | None = None,
    threads: int | None = None,
    device: str | None = None,
    full: bool = False,
    rounds: int = ROUNDS,
    run_id: str | None = None,
    wait: Callable[[Run], Data] | None = None,
    tell: Callable[[str], None] | None = None,
) -> SelfCheck:
    """Measure whether a machine is fit to measure on, and keep the outcome for every later run.

    A small block of convolutions is measured against itself, in two processes a group, as any two compilers would be:
    the true speed-up is 1, so that what comes out is noise, and the share of intervals that cover 1 is their coverage.

    Parameters
    ----------
    groups
        How many pairs of processes: 12 for a look, 200 for a coverage.
    hog
        Have a busy process beside every other group, and tell the two kinds apart.
    repeats, precision, threads
        As for `Sweep`: the figures are those of runs that are asked for so.
    device
        Its label. Default: the option `device`.
    full
        Measure the bias against the vendors' own tools too: a few minutes more.
    rounds
        How often ngbkit and each of those tools take their turns.
    run_id
        Report on this run, which `run` has started before, and measure no group.
    wait
        Waits for the end of the run and gives its dataset. Default: `Run.result`.
    tell
        Takes a line of text on how far the bias is.

    Returns
    -------
    SelfCheck
        A table wherever it is shown. It is stored too: see `ngbkit.runs.selfcheck.latest`.

    Raises
    ------
    UsageError, RunNotFoundError
        An argument that does not fit, or a run that is none of a self-check.
    NgbkitError
        The run failed. What it measured is kept: resume it, and report on it by `run_id`.
    KeyboardInterrupt
        Ctrl-C stopped it, with the same way on.

    Examples
    --------
    >>> from ngbkit import selfcheck
    >>> found = selfcheck.run(groups=12)  # doctest: +SKIP
    >>> found.quiet.smallest_speedup  # doctest: +SKIP
    1.0087
    """
    from ngbkit import runs
    from ngbkit.runs.selfcheck import bias, noise

    turns = validation.count("rounds", rounds)
    if run_id is None:
        where = (device or options.get_device(),)
        sweep = noise.plan(groups, hog=hog, repeats=repeats, precision=precision, threads=threads, devices=where)
        looked = _look()
        started = runs.start(sweep)
        data = started.result() if wait is None else wait(started)
        found = _assess(data, started.id, looked)
    else:
        folder = runs.find(run_id)
        found = _assess(runs.load_dataset(folder), folder.name, None)
    store.keep(found)
    if not full:
        return found
    try:
        compared = bias.measure(rounds=turns, threads=threads, tell=tell)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"stopped before the bias was measured. The noise is kept: ngbkit selfcheck --run {found.run}; "
            "with --full that measures the bias."
        ) from None
    found = replace(found, bias=compared)
    store.keep(found)
    return found


def _assess(data: Data, run_id: str, looked: dict[str, Any] | None) -> SelfCheck:
    from ngbkit.hardware import conditions
    from ngbkit.runs.selfcheck import noise

    quiet, disturbed = noise.read(data)
    sweep = json.loads(data.attrs["sweep"])
    (device,) = sweep["devices"]
    about = json.loads(data.attrs["environments"]).get(device, {})
    seen = looked if looked is not None else about.get("conditions")
    threads = sweep["threads"] or about.get("cores_usable", 0)
    return SelfCheck(
        device=device,
        chip=about.get("chip", ""),
        threads=threads,
        repeats=sweep["repeats"],
        precision=sweep.get("precision"),
        run=run_id,
        created=_created(run_id),
        ngbkit_version=data.attrs["ngbkit_version"],
        conditions=tuple(conditions.warnings(seen, threads)) if seen else (),
        quiet=quiet,
        disturbed=disturbed,
    )


def _look() -> dict[str, Any]:
    """The conditions before anything of ours runs."""
    from ngbkit.hardware import conditions

    return conditions.look()


def _created(run_id: str) -> str:
    """When a run was started, in UTC: its id tells it in local time."""
    began = time.mktime(time.strptime(run_id.rpartition("-")[0], "%Y%m%d-%H%M%S"))
    return datetime.fromtimestamp(began, timezone.utc).isoformat(timespec="seconds")
