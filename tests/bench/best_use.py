"""Compares each compiler as ngbkit uses it with the best use that its vendor documents, in one interleaved run.

byhand/ngbkit_by_hand.py implements the vendors' recommendations as columns of their own. The limit is a ratio of 1.03:
at most 3 % slower. Two processes of one program differ by a few per cent however many rounds they run, so each network
is measured in several pairs of processes. The ratio is the mean over pairs, printed beside the lowest and the highest.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np
import xarray as xr
from plugin_path import put_on_path

from ngbkit import Sweep, registry, set_options
from ngbkit.cluster import engines

SUFFIX = "-by-hand"
BAR = 1.03


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", default=["resnet18", "deit3_small_patch16_224"])
    parser.add_argument(
        "-c", "--compilers", help="compilers to compare (default: all but tvm, whose calls take seconds)"
    )
    parser.add_argument("--rounds", type=int, default=30, help="rounds, each with a sample of both sides")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes, both sides compiled anew in each")
    args = parser.parse_args()
    put_on_path(Path(__file__).parent / "byhand")
    names = registry.list_names(registry.COMPILERS)
    compilers = [name for name in names if f"{name}{SUFFIX}" in names and name != "tvm"]
    compilers = args.compilers.split(",") if args.compilers else compilers
    print(f"{'':28}{'compiler':14}{'ours ms':>9}{'theirs':>9}{'ratio':>7}  of {args.pairs} pairs")
    with tempfile.TemporaryDirectory() as folder, set_options(state_dir=folder):
        for workload in args.workloads:
            for name in compilers:
                labels = [name, f"{name}{SUFFIX}"]
                sweep = Sweep(workload, compilers=labels, repeats=args.rounds, min_rounds=args.rounds)
                pairs = [_measure(sweep) for _ in range(args.pairs)]
                _print_ratio(workload, name, [latency for latency in pairs if latency is not None])
        engines.close()


def _measure(sweep: Sweep) -> xr.DataArray | None:
    """Return the latency of both sides, each compiled anew in a process of its own; None if a side failed."""
    run = sweep.start()
    data = run.result()
    for failure in run.failures():
        print(f"{run.trial(failure.trial_id).compiler}: {failure.status}, {failure.error}", flush=True)
    return None if run.failures() else data["latency"].squeeze(["workload", "device", "batch_size"])


def _print_ratio(workload: str, name: str, latencies: list[xr.DataArray]) -> None:
    if not latencies:
        return
    medians = [
        [float(latency.sel(compiler=label).median()) for label in (name, f"{name}{SUFFIX}")] for latency in latencies
    ]
    logs = [_compute_log_ratio(latency, name) for latency in latencies]
    ratio, low, high = np.exp([statistics.fmean(logs), min(logs), max(logs)])
    ngbkit_ms, vendor_ms = (statistics.median(side) * 1e3 for side in zip(*medians, strict=True))
    verdict = "" if ratio <= BAR else f"  above {BAR}"
    print(
        f"{workload:28}{name:14}{ngbkit_ms:9.2f}{vendor_ms:9.2f}{ratio:7.3f}  {low:.3f} to {high:.3f}{verdict}",
        flush=True,
    )


def _compute_log_ratio(latency: xr.DataArray, name: str) -> float:
    """Return the median over rounds of the logarithm of own over vendor latency, for one pair of processes."""
    ngbkit_logs, vendor_logs = (np.log(latency.sel(compiler=label).values) for label in (name, f"{name}{SUFFIX}"))
    return float(np.nanmedian(ngbkit_logs - vendor_logs))


if __name__ == "__main__":
    main()
