"""Our median latency over that of each vendor's own tool, in turns, so that drift hits all alike."""

from __future__ import annotations

import math
import os
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ngbkit import options, runs
from ngbkit.device.settings import child_settings
from ngbkit.device.timing import intervals
from ngbkit.hardware import environment
from ngbkit.runs.selfcheck import vendors
from ngbkit.runs.selfcheck.prepared import prepare
from ngbkit.runs.selfcheck.record import LEVEL, Bias
from ngbkit.sweep import validation
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads import blocks, timm
from ngbkit.workloads.base import Workload

REPEATS = 50
# How long a tool times its calls.
SECONDS = 4.0
Tell = Callable[[str], None]


def networks() -> tuple[Workload, ...]:
    """What the bias is measured on: a whole network, and a block whose call is short."""
    return timm.model("resnet18"), blocks.conv(64, 2, size=(56, 56))


@dataclass(slots=True)
class _Side:
    """One network with its tools: what each measured in each round, and why it did not."""

    workload: Workload
    spec: Mapping[str, Any]
    ours: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    theirs: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: dict[str, str] = field(default_factory=dict)


def measure(
    *,
    rounds: int,
    threads: int | None = None,
    workloads: Sequence[Workload] | None = None,
    repeats: int = REPEATS,
    seconds: float = SECONDS,
    tell: Tell | None = None,
) -> tuple[Bias, ...]:
    """Measure with ngbkit and with the vendors' tools, on this machine, in turns.

    In each round, in shuffled order: one small sweep of ngbkit, and each tool once, in a process of its own with the
    environment that ngbkit gives its children.

    Parameters
    ----------
    rounds
        Rounds; an interval takes 6.
    threads
        Of every runtime. Default: one a core.
    workloads
        What to measure. Default: `networks`.
    repeats
        Samples a trial of ours.
    seconds
        How long each tool times its calls.
    tell
        Takes a line of text whenever something begins.

    Returns
    -------
    tuple of Bias
        One for each network and tool; one that gave nothing says why.
    """
    count = validation.count("rounds", rounds)
    used = threads or environment.cores_usable()
    say = tell or (lambda _line: None)
    missing = {compiler: tool.missing() for compiler, tool in vendors.TOOLS.items()}
    there = [compiler for compiler, why in missing.items() if not why]
    sides = []
    for workload in workloads or networks():
        say(f"bias: preparing {workload.name}")
        spec = prepare(workload, there, used) if there else {}
        sides.append(_Side(workload, {**spec, "seconds": seconds}))
    order = random.Random(options.get_options()["seed"])
    for number in range(count if there else 0):
        for side in order.sample(sides, len(sides)):
            turns = ["", *there]
            for turn in order.sample(turns, len(turns)):
                name = vendors.TOOLS[turn].name if turn else "ngbkit"
                say(f"bias, round {number + 1} of {count}: {side.workload.name}, {name}")
                if turn:
                    _take_theirs(side, turn, used)
                else:
                    _take_ours(side, there, used, repeats)
    return tuple(_compare(side, compiler, missing[compiler]) for side in sides for compiler in vendors.TOOLS)


def _take_ours(side: _Side, compilers: Sequence[str], threads: int, repeats: int) -> None:
    """One sweep of ours; the median latency of each compiler, NaN where it gave none."""
    run = runs.start(Sweep(side.workload, compilers=compilers, repeats=repeats, threads=threads))
    latency: Any = run.result()["latency"]
    for compiler in compilers:
        samples = latency.sel(compiler=compiler).values.ravel()
        samples = samples[np.isfinite(samples)]
        side.ours[compiler].append(float(np.median(samples)) if len(samples) else math.nan)
    for failure in run.failures():
        side.problems.setdefault(run.trial(failure.trial_id).compiler, f"ngbkit: {failure.error}")


def _take_theirs(side: _Side, compiler: str, threads: int) -> None:
    """One process of a vendor's tool; its median latency, NaN where it gave none."""
    try:
        latency_s = vendors.run(compiler, side.spec, {**os.environ, **child_settings(threads)})
    except vendors.VendorError as error:
        side.problems.setdefault(compiler, str(error))
        latency_s = math.nan
    side.theirs[compiler].append(latency_s)


def _compare(side: _Side, compiler: str, missing: str) -> Bias:
    what = Bias(network=side.workload.name, compiler=compiler, tool=vendors.TOOLS[compiler].name)
    ours, theirs = np.array(side.ours[compiler], float), np.array(side.theirs[compiler], float)
    there = np.isfinite(ours) & np.isfinite(theirs) if len(ours) == len(theirs) else np.zeros(0, bool)
    if not there.any():
        return replace(what, problem=missing or side.problems.get(compiler, "nothing was measured"))
    logs = np.log(ours[there] / theirs[there])
    low, high = intervals.median_interval(logs, LEVEL)
    return replace(
        what,
        ratio=float(np.exp(np.median(logs))),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        ours_s=float(np.median(ours[there])),
        theirs_s=float(np.median(theirs[there])),
        rounds=int(there.sum()),
    )
