"""Measures what memory does to each column: every compiler with each memory, in the same rounds.

    python bench/setups.py measure results/setups --hours 1
    python bench/setups.py table results/setups

`measure` keeps a file for each network and batch size, and goes on where it ended. `table` prints, for each column, the
time of a call with `memory` ``system`` over that with ``kept``, and that with ``kept`` over that with ``huge``, with
their 95 % intervals; the page faults of a call; and which share of a compiler's gain over eager PyTorch with ``system``
is that of memory: the logarithm of the baseline's gain by ``kept`` over that of the whole gain.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.dataset import storage
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
    print("| network | batch | column | time, kept | system / kept | kept / huge | faults | memory's |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for file in sorted(args.folder.glob("*.nc"), key=lambda path: (int(path.stem.rpartition("-")[2]), path.stem)):
        for row in tabulate(storage.load(file)):
            print(f"| {' | '.join(row)} |", flush=True)


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


def tabulate(dataset: xr.Dataset) -> Iterator[list[str]]:
    """Tabulate the columns of one network at one batch size."""
    dataset = dataset.squeeze([name for name in dataset.dims if name not in ("compiler", "repeat")])
    present = {str(label) for label in dataset["compiler"].values}
    median_s = dataset["latency"].median("repeat")
    for compiler in sorted(label for label in present if "{" not in label):
        other, huge = name_column(compiler, SYSTEM), name_column(compiler, HUGE)
        gain = divide(dataset, other, compiler)
        total = divide(dataset, name_column(BASELINE, SYSTEM), compiler)
        of_memory = divide(dataset, name_column(BASELINE, SYSTEM), BASELINE)
        share = "" if compiler == BASELINE else f"{divide_logs(of_memory, total)} of {total}"
        yield [
            str(dataset["workload"].item()),
            str(dataset["batch_size"].item()),
            compiler,
            f"{1e3 * median_s.sel(compiler=compiler).item():.1f} ms",
            str(gain),
            str(divide(dataset, compiler, huge)) if huge in present else "",
            " ".join(f"{dataset['minor_faults'].sel(compiler=label).item():,.0f}" for label in (compiler, other)),
            share,
        ]


def divide_logs(part: Estimate, total: Estimate) -> Estimate:
    """Return the share of a gain that another one is, as logarithms; its interval has all of both, and is too wide."""
    if total.low <= 1:
        return Estimate(math.log(part) / math.log(total), -math.inf, math.inf, part.conclusive)
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
