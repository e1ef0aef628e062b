"""Measures ngbkit's median latency over that of each vendor's own tool, in turns so that drift cancels.

    python bench/vendor_bias.py --rounds 6 > notebooks/data/02-bias.json

Claim: the ratio is from 0.97 to 1.03. Output: JSON with one ratio a network and tool, with its 95 % interval, or why
there is none.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import vendors
from prepared import prepare

from ngbkit import options, runs, validation
from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.hardware import environment
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.json_values import to_json_value
from ngbkit.workloads import blocks, timm
from ngbkit.workloads.base import Workload

REPEATS = 50
# How long a tool times its calls.
SECONDS = 4.0
# The range in which our median latency over that of a vendor's tool should be.
TARGET = (0.97, 1.03)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bias:
    """Our median latency of one network over that of a vendor's tool.

    Parameters
    ----------
    network, compiler, tool
        The network, our compiler, and the vendor's tool.
    ratio, low, high
        Our latency over theirs in the same round: the median over the rounds and its 95 % interval.
    ours_s, theirs_s
        Median latencies over the rounds, in seconds.
    rounds
        Number of rounds with a ratio.
    problem
        Why there is no ratio and what to do about it; empty where there is one.
    """

    network: str
    compiler: str
    tool: str
    ratio: float = math.nan
    low: float = math.nan
    high: float = math.nan
    ours_s: float = math.nan
    theirs_s: float = math.nan
    rounds: int = 0
    problem: str = ""

    @property
    def within(self) -> bool:
        """True if the ratio is within `TARGET`."""
        return TARGET[0] <= self.ratio <= TARGET[1]


@dataclass(slots=True)
class _Comparison:
    """A network: its latencies by ngbkit and by the tools, one per compiler and round, and why some are missing."""

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
    report: Callable[[str], None] | None = None,
) -> tuple[Bias, ...]:
    """Measure the bias for each network and tool on this machine; a tool that fails gets its problem instead.

    In each round, in shuffled order: one small sweep of ngbkit with `repeats` samples a trial, and each tool once for
    `seconds`, in a process of its own with the environment of ngbkit's children. An interval needs 6 rounds.
    """
    rounds = validation.check("rounds", validation.PositiveCount, rounds)
    threads = threads or environment.count_usable_cores()
    report = report or (lambda _line: None)
    missing = {compiler: tool.missing() for compiler, tool in vendors.TOOLS.items()}
    compilers = [compiler for compiler, reason in missing.items() if not reason]
    comparisons = []
    # A complete network, and a block whose calls are short.
    for workload in workloads or (timm.model("resnet18"), blocks.conv(64, 2, size=(56, 56))):
        report(f"bias: preparing {workload.name}")
        spec = prepare(workload, compilers, threads) if compilers else {}
        comparisons.append(_Comparison(workload, {**spec, "seconds": seconds}))
    order = random.Random(options.get_options()["seed"])
    for number in range(rounds if compilers else 0):
        for comparison in order.sample(comparisons, len(comparisons)):
            for compiler in order.sample(["", *compilers], 1 + len(compilers)):
                name = vendors.TOOLS[compiler].name if compiler else "ngbkit"
                report(f"bias, round {number + 1} of {rounds}: {comparison.workload.name}, {name}")
                if compiler:
                    _run_tool(comparison, compiler, threads)
                else:
                    _run_sweep(comparison, compilers, threads, repeats)
    return tuple(
        _compare(comparison, compiler, missing[compiler]) for comparison in comparisons for compiler in vendors.TOOLS
    )


def _run_sweep(comparison: _Comparison, compilers: Sequence[str], threads: int, repeats: int) -> None:
    """Add the median latency of each compiler in one sweep of ngbkit; NaN where it was not measured."""
    run = runs.start(Grid(comparison.workload, compilers=compilers, repeats=repeats, threads=threads))
    latency: Any = run.result()["latency"]
    for compiler in compilers:
        samples = latency.sel(compiler=compiler).values.ravel()
        samples = samples[np.isfinite(samples)]
        comparison.ours[compiler].append(float(np.median(samples)) if len(samples) else math.nan)
    for failure in run.failures():
        comparison.problems.setdefault(run.trial(failure.trial_id).compiler, f"ngbkit: {failure.error}")


def _run_tool(comparison: _Comparison, compiler: str, threads: int) -> None:
    """Add the median latency of a vendor's tool in one process; NaN where it was not measured."""
    try:
        latency_s = vendors.run(compiler, comparison.spec, {**os.environ, **build_child_settings(threads)})
    except vendors.VendorError as error:
        comparison.problems.setdefault(compiler, str(error))
        latency_s = math.nan
    comparison.theirs[compiler].append(latency_s)


def _compare(comparison: _Comparison, compiler: str, missing: str) -> Bias:
    bias = Bias(network=comparison.workload.name, compiler=compiler, tool=vendors.TOOLS[compiler].name)
    ours, theirs = np.array(comparison.ours[compiler], float), np.array(comparison.theirs[compiler], float)
    paired = np.isfinite(ours) & np.isfinite(theirs) if len(ours) == len(theirs) else np.zeros(0, bool)
    if not paired.any():
        return replace(bias, problem=missing or comparison.problems.get(compiler, "nothing was measured"))
    log_ratios = np.log(ours[paired] / theirs[paired])
    low, high = intervals.compute_median_interval(log_ratios, LEVEL)
    return replace(
        bias,
        ratio=float(np.exp(np.median(log_ratios))),
        low=float(np.exp(low)),
        high=float(np.exp(high)),
        ours_s=float(np.median(ours[paired])),
        theirs_s=float(np.median(theirs[paired])),
        rounds=int(paired.sum()),
    )


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="rounds in which all take turns (default: 8)")
    parser.add_argument("--threads", type=int, help="worker threads (default: one a core)")
    args = parser.parse_args()
    biases = measure(rounds=args.rounds, threads=args.threads, report=lambda line: print(line, file=sys.stderr))
    rows = [{**asdict(bias), "within": bias.within} for bias in biases]
    print(json.dumps({"bias": to_json_value(rows)}, indent=2))


if __name__ == "__main__":
    main()
