"""Each compiler as ngbkit uses it, over what its vendor documents as its best use, in one interleaved run.

byhand/ngbkit_by_hand.py holds the vendors' ways, as columns of their own. The bar is 1.03: at most 3 % slower.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

from ngbkit.timing import intervals

BY_HAND = Path(__file__).parent / "byhand"
SUFFIX = "-by-hand"
BAR = 1.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["resnet18", "deit3_small_patch16_224"])
    parser.add_argument("-c", "--compilers", help="which of them (default: all but tvm, whose calls take seconds)")
    parser.add_argument("--rounds", type=int, default=30, help="a sample of either side a round")
    asked = parser.parse_args()
    sys.path.insert(0, str(BY_HAND))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BY_HAND), os.environ.get("PYTHONPATH")]))
    from ngbkit import Sweep, registry, set_options

    known = registry.names(registry.COMPILERS)
    ours = [name for name in known if f"{name}{SUFFIX}" in known and name != "tvm"]
    ours = asked.compilers.split(",") if asked.compilers else ours
    print(f"{'':28}{'compiler':14}{'ours ms':>9}{'theirs':>9}{'ratio':>7}  95 % interval")
    for workload in asked.workloads:
        with tempfile.TemporaryDirectory() as folder, set_options(state_dir=folder):
            labels = [label for name in ours for label in (name, f"{name}{SUFFIX}")]
            sweep = Sweep(workload, compilers=labels, repeats=asked.rounds, min_rounds=asked.rounds)
            run = sweep.start()
            data = run.result()
            for failure in run.failures():
                print(f"{workload:28}{run.trial(failure.trial_id).compiler}: {failure.status}, {failure.error}")
            for name in ours:
                _compare(data, workload, name)


def _compare(data: xr.Dataset, workload: str, name: str) -> None:
    latency = [data["latency"].sel(compiler=label).values.ravel() for label in (name, f"{name}{SUFFIX}")]
    if not all(np.isfinite(samples).any() for samples in latency):
        return
    logs = np.log(latency[0]) - np.log(latency[1])
    logs = logs[np.isfinite(logs)]
    low, high = np.exp(intervals.median_interval(logs, 0.95))
    ratio, (mine, theirs) = np.exp(np.median(logs)), (np.nanmedian(samples) * 1e3 for samples in latency)
    verdict = "" if ratio <= BAR else f"  above {BAR}"
    print(f"{workload:28}{name:14}{mine:9.2f}{theirs:9.2f}{ratio:7.3f}  {low:.3f} to {high:.3f}{verdict}", flush=True)


if __name__ == "__main__":
    main()
