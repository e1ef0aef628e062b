"""Each compiler as ngbkit uses it, over what its vendor documents as its best use, in one interleaved run.

byhand/ngbkit_by_hand.py holds the vendors' ways, as columns of their own. The bar is 1.03: at most 3 % slower. Two
processes of the same program differ by a few percent however many rounds they take, so each network is measured in
several pairs of processes. The ratio is the mean over pairs; beside it stand the lowest and the highest of them.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

from ngbkit import Sweep, registry, set_options
from ngbkit.cluster import engines

BY_HAND = Path(__file__).parent / "byhand"
SUFFIX = "-by-hand"
BAR = 1.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["resnet18", "deit3_small_patch16_224"])
    parser.add_argument("-c", "--compilers", help="which of them (default: all but tvm, whose calls take seconds)")
    parser.add_argument("--rounds", type=int, default=30, help="a sample of either side a round")
    parser.add_argument("--pairs", type=int, default=3, help="how often both sides are compiled anew")
    asked = parser.parse_args()
    sys.path.insert(0, str(BY_HAND))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BY_HAND), os.environ.get("PYTHONPATH")]))
    known = registry.names(registry.COMPILERS)
    ours = [name for name in known if f"{name}{SUFFIX}" in known and name != "tvm"]
    ours = asked.compilers.split(",") if asked.compilers else ours
    print(f"{'':28}{'compiler':14}{'ours ms':>9}{'theirs':>9}{'ratio':>7}  of {asked.pairs} pairs")
    with tempfile.TemporaryDirectory() as folder, set_options(state_dir=folder):
        for workload in asked.workloads:
            for name in ours:
                labels = [name, f"{name}{SUFFIX}"]
                sweep = Sweep(workload, compilers=labels, repeats=asked.rounds, min_rounds=asked.rounds)
                pairs = [_measure(sweep) for _ in range(asked.pairs)]
                _print(workload, name, [latency for latency in pairs if latency is not None])
        engines.close()


def _measure(sweep: Sweep) -> xr.DataArray | None:
    """The latency of both sides, each compiled anew in a process of its own; None where a side failed."""
    run = sweep.start()
    data = run.result()
    for failure in run.failures():
        print(f"{run.trial(failure.trial_id).compiler}: {failure.status}, {failure.error}", flush=True)
    return None if run.failures() else data["latency"].squeeze(["workload", "device", "batch_size"])


def _print(workload: str, name: str, found: list[xr.DataArray]) -> None:
    if not found:
        return
    medians = [
        [float(latency.sel(compiler=label).median()) for label in (name, f"{name}{SUFFIX}")] for latency in found
    ]
    logs = [_log_ratio(latency, name) for latency in found]
    ratio, low, high = np.exp([statistics.fmean(logs), min(logs), max(logs)])
    mine, theirs = (statistics.median(side) * 1e3 for side in zip(*medians, strict=True))
    verdict = "" if ratio <= BAR else f"  above {BAR}"
    print(f"{workload:28}{name:14}{mine:9.2f}{theirs:9.2f}{ratio:7.3f}  {low:.3f} to {high:.3f}{verdict}", flush=True)


def _log_ratio(latency: xr.DataArray, name: str) -> float:
    """Of one pair of processes: the median over rounds of the logarithm of ours over theirs."""
    ours, theirs = (np.log(latency.sel(compiler=label).values) for label in (name, f"{name}{SUFFIX}"))
    return float(np.nanmedian(ours - theirs))


if __name__ == "__main__":
    main()
