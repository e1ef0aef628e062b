"""Measures the demo again and again, and counts how often two of them differ beyond their intervals.

    python tests/bench/demos.py results/demos --count 20 --minutes 18    # goes on where it ended

For each pair of demos and each speed-up of a compiler: whether they differ by more than both half widths, added in
quadrature. ``moves`` is of all samples but those beside other work, as if no probe had told how the host runs the
cores; ``rounds`` has intervals of rounds alone, with no allowance for what a host does within hours; ``pace`` is of
throughputs. What ``remains`` is the standard deviation of the logarithm between demos that rounds do not explain.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ngbkit import metrics
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import to_frame
from ngbkit.metrics.metric import load_metrics

#: The half width of a 95 % interval, in standard deviations.
NORMAL = 1.96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=18.0, help="from one to the next (default: 18)")
    args = parser.parse_args()
    for number in range(args.count):
        folder = args.folder / f"{number:02}"
        if not (folder / "demo.nc").exists():
            began = time.monotonic()
            command = [sys.executable, "-m", "ngbkit", "demo", "--quiet", "-o", str(folder)]
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL)
            time.sleep(max(0.0, 60 * args.minutes - (time.monotonic() - began)) if number + 1 < args.count else 0.0)
    files = sorted(args.folder.glob("*/demo.nc"))
    for name in ("usual", "moves", "rounds", "pace"):
        frames = [pd.concat(tabulate(file, name), ignore_index=True) for file in files]
        print(json.dumps({"of": name, "demos": len(files), **compare(frames)}))


def tabulate(file: Path, name: str) -> Iterator[pd.DataFrame]:
    """Tabulate the speed-ups of a demo, or its throughputs."""
    for node in nodes(storage.load(file)).values():
        data = include_moves(node) if name == "moves" else node
        if name == "rounds":
            history = json.dumps(add_history(json.loads(data.attrs["environments"])))
            data = data.assign_attrs(environments=history)
        if name == "pace":
            yield to_frame(load_metrics()["throughput"].to_function()(data, ci=0.95)).rename(
                columns={"throughput": "estimate"}
            )
        else:
            frame = to_frame(metrics.speedup(data, ci=0.95)).rename(columns={"speedup": "estimate"})
            yield frame[frame["compiler"] != "identity"]


def include_moves(data: xr.Dataset) -> xr.Dataset:
    """Include the samples that were taken while the host had moved the cores, or shared them."""
    contended = data["contended"].copy(deep=True)
    for place in np.ndindex(data["facts"].shape):
        host = json.loads(str(data["facts"].values[place]) or "{}").get("host")
        if host:
            marks = np.repeat(host["disturbed"], host["samples"])
            contended.values[place][: len(marks)] = marks
    return data.assign(contended=contended)


def add_history(environments: Mapping[str, Any]) -> dict[str, Any]:
    """Give each device a history in which speed-ups repeat exactly, so that no allowance is assumed."""
    columns = dict.fromkeys(("onnxruntime", "openvino"), 0.0)
    return {label: {**device, "history": {"deviations": columns}} for label, device in environments.items()}


def compare(frames: list[pd.DataFrame]) -> dict[str, float]:
    """Count the pairs that differ beyond their intervals, and average half widths and deviations."""
    logs = np.log(np.array([frame["estimate"] for frame in frames]))
    halves = np.log(np.array([frame["ci_high"] / frame["ci_low"] for frame in frames])) / 2
    sure = np.array([frame["conclusive"] for frame in frames], bool)
    pairs = beyond = 0
    for first, second in combinations(range(len(frames)), 2):
        both = sure[first] & sure[second]
        pairs += int(both.sum())
        beyond += int((both & (abs(logs[first] - logs[second]) > np.hypot(halves[first], halves[second]))).sum())
    usable = np.where(sure, logs, np.nan)
    between, within = (
        np.nanvar(usable, axis=0, ddof=1),
        np.nanmean(np.where(sure, halves / NORMAL, np.nan) ** 2, axis=0),
    )
    return {
        "estimates": logs.size,
        "conclusive": int(sure.sum()),
        "pairs": pairs,
        "beyond": beyond,
        "half width": round(float(np.nanmedian(np.expm1(halves))), 4),
        "deviation": round(float(np.sqrt(np.nanmean(between))), 4),
        "remains": round(math.sqrt(max(0.0, float(np.nanmean(between - within)))), 4),
    }


if __name__ == "__main__":
    main()
