"""Measures what memory does to each column: every compiler with each memory, in the same rounds.

    python tests/bench/setups.py measure results/setups --hours 1
    python tests/bench/setups.py table results/setups > notebooks/data/02-memory.json

`measure` keeps a file for each network and batch size, and goes on where it ended. `table` prints a record a column:
the seconds and the page faults of a call with memory ``kept``, and its faults with ``system``; each followed by both
ends of its 95 % interval, ``system`` (the time of a call with it over that with ``kept``), ``huge`` (that over
``kept``), the ``gain`` over eager PyTorch with either, and the ``share`` of memory in the gain that a script sees: the
logarithm of what ``kept`` gains for eager PyTorch over that of the gain of the compiler.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import nodes
from ngbkit.metrics.estimate import Estimate
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.memory import HUGE, KEPT, MEMORY, SYSTEM
from ngbkit.workloads import labels

NETWORKS = (
    *("efficientnet_b3", "deit3_small_patch16_224", "resnet50"),
    *("convnext_tiny", "swin_tiny_patch4_window7_224", "mobilenetv3_small_100"),
)
COMPILERS = (BASELINE, "torchscript", "onnxruntime", "openvino")
BATCH_SIZES = (1, 8, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("-b", "--batches", nargs="+", type=int, default=BATCH_SIZES)
    parser.add_argument("-c", "--compilers", nargs="+", default=COMPILERS)
    parser.add_argument("-r", "--rounds", type=int, default=6, help="the rounds of each group (default: 6)")
    parser.add_argument("--hours", type=float, default=math.inf, help="begin no group later (default: no limit)")
    args = parser.parse_args()
    if args.action == "measure":
        deadline_s = time.monotonic() + 3600 * args.hours
        args.folder.mkdir(parents=True, exist_ok=True)
        for batch, network in itertools.product(args.batches, args.networks):
            file = args.folder / f"{network}-{batch}.nc"
            if not file.exists() and time.monotonic() < deadline_s:
                measure(network, batch, args.compilers, args.rounds, file)
        return
    files = sorted(args.folder.glob("*.nc"), key=lambda path: (int(path.stem.rpartition("-")[2]), path.stem))
    print(json.dumps([row for file in files for node in nodes(storage.load(file)).values() for row in tabulate(node)]))


def measure(network: str, batch: int, compilers: Sequence[str], rounds: int, file: Path) -> None:
    """Measure a network with every column, and save the dataset."""
    columns = [*compilers, *(name_column(compiler, SYSTEM) for compiler in compilers), name_column(BASELINE, HUGE)]
    sweep = Sweep(network, compilers=columns, batch_sizes=[batch], repeats=rounds, patience=1)
    started_s = time.monotonic()
    dataset = sweep.run()
    storage.save(dataset, file)
    print(f"{file.stem}: {time.monotonic() - started_s:.0f} s", flush=True)


def name_column(compiler: str, memory: str) -> str:
    return labels.join(compiler, {MEMORY: memory}) if memory != KEPT else compiler


def tabulate(dataset: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Tabulate the columns of one network at one batch size."""
    dataset = dataset.squeeze([name for name in dataset.dims if name not in ("compiler", "repeat")])
    present = {str(label) for label in dataset["compiler"].values}
    slow, median_s = name_column(BASELINE, SYSTEM), dataset["latency"].median("repeat")
    for compiler in sorted(label for label in present if "{" not in label):
        other, huge = name_column(compiler, SYSTEM), name_column(compiler, HUGE)
        estimates = {"system": divide(dataset, other, compiler)}
        if huge in present:
            estimates["huge"] = divide(dataset, huge, compiler)
        if compiler != BASELINE:
            estimates["gain, kept"] = divide(dataset, BASELINE, compiler)
            estimates["gain, system"] = divide(dataset, slow, other)
            estimates["share"] = divide_logs(divide(dataset, slow, BASELINE), divide(dataset, slow, compiler))
        faults = [round(dataset["minor_faults"].sel(compiler=label).item(), 1) for label in (compiler, other)]
        row = {
            "network": str(dataset["workload"].item()),
            "batch size": int(dataset["batch_size"]),
            "compiler": compiler,
        }
        row |= {"seconds": median_s.sel(compiler=compiler).item()}
        row |= dict(zip(("faults, kept", "faults, system"), faults, strict=True))
        row |= {"conclusive": all(each.conclusive for each in estimates.values())}
        for name, each in estimates.items():
            row |= {name: float(each), f"{name} low": each.low, f"{name} high": each.high}
        yield row


def divide_logs(part: Estimate, total: Estimate) -> Estimate:
    """Return the share of a gain that another one is, as logarithms; its interval has all of both, and is too wide."""
    if total.low <= 1:
        return Estimate(math.nan, math.nan, math.nan, False)
    bounds = [math.log(end) / math.log(other) for end in (part.low, part.high) for other in (total.low, total.high)]
    return Estimate(math.log(part) / math.log(total), min(bounds), max(bounds), part.conclusive and total.conclusive)


def divide(dataset: xr.Dataset, slower: str, faster: str) -> Estimate:
    """Return the time of one column over that of another."""
    if slower == faster:
        return Estimate(1.0, 1.0, 1.0, True)
    pair = dataset.sel(compiler=[slower, faster])
    ratio = metrics.speedup(pair, baseline=slower, ci=0.95, unlike="allow").sel(compiler=faster)
    values = [np.asarray(ratio[name]).item() for name in ("speedup", "ci_low", "ci_high", "conclusive")]
    return Estimate(*values)


if __name__ == "__main__":
    main()
