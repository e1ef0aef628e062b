"""How much of a sweep's time is spent in timed calls, and what `--precision 1%` saves: `make efficiency`.

Wall time from the start of a run to its end, less what compiling and exporting took, is what is divided by; engine
start, forks, building networks, checks, warm-up, settling calls and the journal are all in it.
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

COMPILERS = ("identity", "onnxruntime", "openvino")


@dataclass
class Watched:
    """A run that is over: its dataset, how long it took, and how long of that it prepared networks."""

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
        """Seconds within timed calls; those of anchors are timed too."""
        own = (self.data["latency"] * self.data["calls_per_sample"]).sum()
        return float(own) + float(self.data["anchor_latency"].sum())


def watch(sweep: Sweep) -> Watched:
    """Run a sweep with empty caches, and look at what it is doing."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-") as folder, set_options(state_dir=folder):
        # Measured once a device, and not by each run.
        peaks.load_or_measure(Path(folder), sweep.threads or environment.cores_usable())
        return _watch(sweep)


def _watch(sweep: Sweep) -> Watched:
    began = time.monotonic()
    preparing = 0.0
    since: float | None = None

    def listen(run: Run) -> None:
        nonlocal preparing, since
        now = time.monotonic()
        if since is not None:
            preparing, since = preparing + now - since, None
        if run.progress.text.startswith("preparing"):
            since = now

    run = runs.start(sweep)
    run.subscribe(listen)
    data = run.result()
    assert isinstance(data, xr.Dataset)
    return Watched(data, time.monotonic() - began, preparing)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="resnet18")
    parser.add_argument("--precision", default="1%")
    parser.add_argument("-b", "--batch-sizes", default="1,2,4,8")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--max-seconds", type=float, default=60.0)
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.batch_sizes.split(",")]
    how = {"compilers": COMPILERS, "batch_sizes": sizes, "threads": asked.threads}
    fixed = watch(Sweep(asked.network, repeats=100, **how))
    print(f"{asked.network}, batch sizes {asked.batch_sizes}, {', '.join(COMPILERS)}")
    print(
        f"100 repeats        {fixed.wall_s:7.1f} s, of which export {fixed.preparing_s:.1f} s, "
        f"compiling {fixed.compiling_s:.1f} s"
    )
    print(f"  in timed calls   {fixed.timed_s / fixed.rest_s:7.3f} of the rest (target 0.75)")
    precise = watch(Sweep(asked.network, precision=asked.precision, max_seconds=asked.max_seconds, **how))
    gains, widths = precise.data.ngb.speedup(), precise.data.ngb.speedup(ci=0.95)
    half = ((widths["ci_high"] - widths["ci_low"]) / 2 / gains).sel(compiler=list(COMPILERS[1:]))
    print(f"--precision {asked.precision:6s} {precise.wall_s:7.1f} s")
    print(f"  time over that   {precise.rest_s / fixed.rest_s:7.3f} of 100 repeats' (target 0.33 for 1%)")
    print(f"  reached          {float(half.max()):7.2%} at worst, {float(half.median()):.2%} in the middle")
    print(f"  samples a trial  {int(precise.data['latency'].notnull().sum('repeat').median()):5d} in the middle")
    for size in sizes:
        spread = np.log(fixed.data.ngb.speedup(ci=0.95)).sel(batch_size=size)
        width = ((spread["ci_high"] - spread["ci_low"]) / 2).sel(compiler=list(COMPILERS[1:])).max()
        print(f"  100 repeats give {float(width):7.2%} at batch {size}")


if __name__ == "__main__":
    main()
