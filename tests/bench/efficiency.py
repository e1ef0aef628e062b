"""Measures the share of a sweep's time that is spent in timed calls, and what `--precision 1%` and `--race` save.

Run it by `make efficiency`. The share is no aim in itself: `machine_time.py` tells what a speed-up costs. Its
denominator is the wall time of a run less compiling and exporting; it includes the start of the engine, forks, building
networks, checks, warm-up, settling calls and the journal.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import xarray as xr

import ngbkit.metrics  # noqa: F401  gives datasets their `ngb`
from ngbkit import Sweep, runs, set_options
from ngbkit.device import peaks
from ngbkit.hardware import environment
from ngbkit.runs import Run
from ngbkit.runs.selfcheck.noise import set_process_sd

COMPILERS = ("identity", "onnxruntime", "openvino")


@dataclass
class TimedRun:
    """A finished run: its dataset, its duration, and the time spent preparing networks."""

    data: xr.Dataset
    wall_s: float
    preparing_s: float

    @property
    def compiling_s(self) -> float:
        return float(np.nansum(self.data["compile_time"]) + np.nansum(self.data["compile_time_warm"]))

    @property
    def rest_s(self) -> float:
        return self.wall_s - self.compiling_s - self.preparing_s

    @property
    def timed_s(self) -> float:
        """Seconds within timed calls, including those of anchors."""
        seconds = (self.data["latency"] * self.data["calls_per_sample"]).sum()
        anchors = self.data.get("anchor_latency", xr.DataArray(0.0))  # a single batch size has none
        return float(seconds) + float(anchors.sum())


def time_run(sweep: Sweep) -> TimedRun:
    """Run a sweep with empty caches, and time its stages."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-") as folder, set_options(state_dir=folder):
        # Peaks are measured once per device and not by each run.
        peaks.load_or_measure(Path(folder), sweep.threads or environment.count_usable_cores())
        return _time_run(sweep)


def _time_run(sweep: Sweep) -> TimedRun:
    began = time.monotonic()
    preparing = 0.0
    preparing_since: float | None = None

    def listen(run: Run) -> None:
        nonlocal preparing, preparing_since
        now = time.monotonic()
        if preparing_since is not None:
            preparing, preparing_since = preparing + now - preparing_since, None
        if run.progress.text.startswith("preparing"):
            preparing_since = now

    run = runs.start(sweep)
    run.subscribe(listen)
    data = run.result()
    assert isinstance(data, xr.Dataset)
    return TimedRun(data, time.monotonic() - began, preparing)


def compute_half_widths(data: xr.Dataset) -> xr.DataArray:
    """Return half the widths of the 95 % intervals of speed-ups, as shares of these."""
    gains, ends = data.ngb.speedup(), data.ngb.speedup(ci=0.95)
    half: xr.DataArray = (ends["ci_high"] - ends["ci_low"]) / 2 / gains
    return half.sel(compiler=list(COMPILERS[1:]))


def _find_fastest(data: xr.Dataset, batch_size: int) -> str:
    return str(data["latency"].median("repeat").sel(batch_size=batch_size).idxmin("compiler").values.ravel()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--precision", default="1%")
    parser.add_argument("-b", "--batch-sizes", default="1,2,4,8")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--max-seconds", type=float, default=60.0)
    args = parser.parse_args()
    sizes = [int(size) for size in args.batch_sizes.split(",")]
    settings = {"compilers": COMPILERS, "batch_sizes": sizes, "threads": args.threads}
    fixed = time_run(Sweep(args.network, repeats=100, **settings))
    print(f"{args.network}, batch sizes {args.batch_sizes}, {', '.join(COMPILERS)}")
    print(
        f"100 repeats        {fixed.wall_s:7.1f} s, of which export {fixed.preparing_s:.1f} s, "
        f"compiling {fixed.compiling_s:.1f} s"
    )
    print(f"  in timed calls   {fixed.timed_s / fixed.rest_s:7.3f} of the rest")
    precise = time_run(Sweep(args.network, precision=args.precision, max_seconds=args.max_seconds, **settings))
    # No round reduces the allowance for processes and for the host, so that it is shown beside.
    half, by_rounds = compute_half_widths(precise.data), compute_half_widths(set_process_sd(precise.data, 0.0))
    print(f"--precision {args.precision:6s} {precise.wall_s:7.1f} s")
    print(f"  time over that   {precise.rest_s / fixed.rest_s:7.3f} of 100 repeats'")
    print(f"  by its rounds    {float(by_rounds.max()):7.2%} at worst, {float(by_rounds.median()):.2%} in the middle")
    print(f"  with allowances  {float(half.max()):7.2%} at worst, {float(half.median()):.2%} in the middle")
    print(f"  samples a trial  {int(precise.data['latency'].notnull().sum('repeat').median()):5d} in the middle")
    race = time_run(Sweep(args.network, repeats=100, race=True, **settings))
    print(f"--race             {race.wall_s:7.1f} s")
    print(f"  time over that   {race.rest_s / fixed.rest_s:7.3f} of 100 repeats'")
    print(f"  samples a trial  {race.data['latency'].notnull().sum('repeat').values.ravel().tolist()}")
    for size in sizes:
        winners = _find_fastest(race.data, size), _find_fastest(fixed.data, size)
        print(f"  at batch {size:2d}      {winners[0]} is the fastest; {winners[1]} of 100 repeats")
    for size in sizes:
        width = compute_half_widths(set_process_sd(fixed.data, 0.0)).sel(batch_size=size).max()
        print(f"  100 repeats give {float(width):7.2%} by their rounds at batch {size}")


if __name__ == "__main__":
    main()
