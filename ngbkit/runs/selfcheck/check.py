"""Runs a self-check: observes the conditions, measures, estimates the noise, and stores the result."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.runs.selfcheck import store

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.runs import Run
    from ngbkit.runs.selfcheck.report import SelfCheck

GROUPS = 12
# The compilers that are compared with identity: light ones that run on any CPU.
PARTNERS = ("onnxruntime", "openvino")


def run(
    groups: int = GROUPS,
    *,
    compilers: Sequence[str] | None = None,
    hog: bool = False,
    repeats: int | None = None,
    precision: float | str | None = None,
    threads: int | None = None,
    device: str | None = None,
    run_id: str | None = None,
    wait: Callable[[Run], Data] | None = None,
) -> SelfCheck:
    """Measure whether a machine is fit to measure on, and store the result for every later run.

    A small block of convolutions is measured against itself, in two processes a group, as any two compilers would be.
    The true speed-up is 1, so every deviation is noise, and the share of intervals that cover 1 is their coverage.
    Other compilers are measured beside them, since what disturbs a machine slows two copies of one program alike, and
    two different programs not.

    Parameters
    ----------
    groups
        Number of pairs of processes: 12 for a quick check, 200 for a coverage.
    compilers
        The compilers to compare with identity, beside its copy. Default: onnxruntime and openvino.
    hog
        Run a busy process beside every other group, and report on both kinds separately.
    repeats, precision, threads
        As for `Sweep`: the result applies to runs with the same settings.
    device
        Label of the device. Default: the option `device`.
    run_id
        Report on this earlier run of a self-check, and measure no group.
    wait
        Waits for the end of the run and returns its dataset. Default: `Run.result`.

    Returns
    -------
    SelfCheck
        Displayed as a table. It is also stored: see `ngbkit.runs.selfcheck.latest`.

    Raises
    ------
    UsageError, RunNotFoundError
        An argument is invalid, or `run_id` is not a self-check.
    NgbkitError
        The run failed. Its measurements are kept: resume it, then report on it with `run_id`.
    KeyboardInterrupt
        Ctrl-C stopped it; it can be continued in the same way.

    Examples
    --------
    >>> from ngbkit.runs import selfcheck
    >>> check = selfcheck.run(groups=12)  # doctest: +SKIP
    >>> check.quiet.smallest_speedup  # doctest: +SKIP
    1.0087
    """
    from ngbkit import runs
    from ngbkit.hardware import conditions
    from ngbkit.runs.selfcheck import noise

    if run_id is None:
        devices = (device or options.get_device(),)
        sweep = noise.build_sweep(
            groups,
            hog=hog,
            compilers=PARTNERS if compilers is None else tuple(compilers),
            repeats=repeats,
            precision=precision,
            threads=threads,
            devices=devices,
        )
        observed = conditions.observe()
        started = runs.start(sweep)
        data = started.result() if wait is None else wait(started)
        check = _assess(data, started.folder, observed)
        if started.is_replay:
            return check  # it is of the machine that recorded it
    else:
        folder = runs.find(run_id)
        check = _assess(runs.load_dataset(folder), folder, None)
    store.save(check)
    return check


def _assess(data: Data, folder: Path, observed: Mapping[str, Any] | None) -> SelfCheck:
    """Build the self-check of a run; conditions that were not observed now are those of the run's environment."""
    from ngbkit.hardware import conditions
    from ngbkit.runs.folders import load_metadata
    from ngbkit.runs.selfcheck import noise
    from ngbkit.runs.selfcheck.report import SelfCheck

    quiet, contended = noise.estimate(data)
    sweep = json.loads(data.attrs["sweep"])
    (device,) = sweep["devices"]
    environment = json.loads(data.attrs["environments"]).get(device, {})
    observed = environment.get("conditions") if observed is None else observed
    threads = sweep["threads"] or environment.get("cores_usable", 0)
    return SelfCheck(
        device=device,
        chip=environment.get("chip", ""),
        threads=threads,
        repeats=sweep["repeats"],
        precision=sweep.get("precision"),
        run=folder.name,
        created=datetime.fromtimestamp(load_metadata(folder)["created"], timezone.utc).isoformat(timespec="seconds"),
        ngbkit_version=data.attrs["ngbkit_version"],
        conditions=tuple(conditions.list_warnings(observed, threads)) if observed else (),
        quiet=quiet,
        contended=contended,
        pairs=noise.estimate_pairs(data),
        group_s=_time_groups(folder),
        hours=store.load_history(device).get("deviations") or {},
    )


def _time_groups(folder: Path) -> float:
    """The seconds from one group of a run to the next, the median; NaN of fewer than two."""
    from ngbkit.runs.folders import read_sweep
    from ngbkit.sweep.column import BASELINE
    from ngbkit.sweep.journal import Journal

    baselines = [trial.id for trial in read_sweep(folder).trials() if trial.compiler == BASELINE]
    with Journal(folder / "journal.sqlite", writable=False) as journal:
        starts = sorted(record.started_at for record in journal.records(baselines) if record.started_at)
    return median(later - earlier for earlier, later in pairwise(starts)) if len(starts) > 1 else math.nan
