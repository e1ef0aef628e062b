"""Measures what a choice of set-up does to each column: one way and the other, in the same rounds.

    python tests/bench/setups.py measure results/setups --hours 1
    python tests/bench/setups.py measure results/others -b 8 -c identity inductor aotinductor iree executorch tvm
    python tests/bench/setups.py table results/setups results/others > notebooks/data/02-memory.json
    python tests/bench/setups.py measure results/factors --of factors -r 10 -b 1 8
    python tests/bench/setups.py measure results/arenas --of factors -f control arenas -r 10 -b 1 32
    python tests/bench/setups.py measure results/minutes --of minutes -b 1 --networks mobilenetv3_small_100
    python tests/bench/setups.py table results/factors results/arenas results/minutes > notebooks/data/02-factors.json
    python tests/bench/setups.py measure results/host --of host -b 1 --networks mobilenetv3_small_100
    python tests/bench/setups.py table results/host > notebooks/data/02-host.json

`measure` keeps a file for each network and batch size, and goes on where it ended; each has fork servers of its own.
`table` prints a record a column, the first of several. Those of memory have the seconds and the page faults of a call
with memory ``kept``, and its faults with ``system``; each followed by both ends of its 95 % interval, ``system`` (the
time of a call with it over that with ``kept``), ``huge`` (that over ``kept``), the ``gain`` over eager PyTorch with
either, and the ``share`` of memory in the gain that a script sees: the logarithm of what ``kept`` gains for eager
PyTorch over that of the gain of the compiler. Those of ``factors`` have the time of a call with each factor of
`ngbkit_factors` changed over that without, where ``control`` changes nothing; of the ``pairs`` of this compiler and a
later one that have a sure order both with and without it, those that it ``flips``. Those of ``minutes`` have the tenth
minute of a measurement over its first. That of ``host`` has, round by round, the nanoseconds of a cache line's round
trip and the speed-up of OpenVINO, and the states of the host.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from plugin_path import put_on_path

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.cluster import engines
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
LONG = {"minutes": {"repeats": 1_000_000, "max_seconds": 600}, "host": {"repeats": 1_000_000, "max_seconds": 240}}
# The columns whose ratio shows the states of a host.
OF_HOST = (BASELINE, "openvino")
FACTORS = ("control", "pinned", "inputs", "denormals", "fresh", "environment", "arenas")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("measure", "table"))
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--of", choices=("memory", "factors", "minutes", "host"), default="memory")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("-b", "--batches", nargs="+", type=int, default=BATCH_SIZES)
    parser.add_argument("-c", "--compilers", nargs="+", default=COMPILERS)
    parser.add_argument("-f", "--factors", nargs="+", choices=FACTORS, default=FACTORS)
    parser.add_argument("-r", "--rounds", type=int, default=6, help="the rounds of each group (default: 6)")
    parser.add_argument("--hours", type=float, default=math.inf, help="begin no group later (default: no limit)")
    args = parser.parse_args()
    put_on_path(Path(__file__).parent / "factors")
    if args.action == "measure":
        deadline_s = time.monotonic() + 3600 * args.hours
        args.folders[0].mkdir(parents=True, exist_ok=True)
        settings = LONG.get(args.of, {"repeats": args.rounds})
        for batch, network in itertools.product(args.batches, args.networks):
            file = args.folders[0] / f"{network}-{batch}.nc"
            if not file.exists() and time.monotonic() < deadline_s:
                measure(network, batch, list_columns(args.compilers, args.of, args.factors), settings, file)
        return
    paths = [path for folder in args.folders for path in folder.glob("*.nc")]
    files = sorted(paths, key=lambda path: (int(path.stem.rpartition("-")[2]), path.stem))
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for file in files for node in nodes(storage.load(file)).values() for row in tabulate(node)):
        rows.setdefault(tuple(row.get(name) for name in ("network", "batch size", "compiler", "factor")), row)
    print(json.dumps([*rows.values()]))


def list_columns(compilers: Sequence[str], kind: str, factors: Sequence[str]) -> list[str]:
    """List each compiler, and the same with something changed."""
    if kind == "host":
        return [*OF_HOST]
    if kind == "minutes":
        return [*compilers]
    if kind == "factors":
        return [label for each in compilers for label in (each, *(f"{each}-{factor}" for factor in factors))]
    return [*compilers, *(name_column(compiler, SYSTEM) for compiler in compilers), name_column(BASELINE, HUGE)]


def measure(network: str, batch: int, columns: Sequence[str], settings: Mapping[str, Any], file: Path) -> None:
    """Measure a network with every column, and save the dataset."""
    sweep = Sweep(network, compilers=columns, batch_sizes=[batch], patience=1, **settings)
    started_s = time.monotonic()
    dataset = sweep.run()
    engines.close()
    storage.save(dataset, file)
    print(f"{file.stem}: {time.monotonic() - started_s:.0f} s", flush=True)


def name_column(compiler: str, memory: str) -> str:
    return labels.join(compiler, {MEMORY: memory}) if memory != KEPT else compiler


def tabulate(dataset: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Tabulate the columns of one network at one batch size."""
    dataset = dataset.squeeze([name for name in dataset.dims if name not in ("compiler", "repeat")])
    present = {str(label) for label in dataset["compiler"].values}
    if present == {*OF_HOST}:
        yield tabulate_host(dataset)
        return
    if any(label.endswith(FACTORS) for label in present):
        yield from tabulate_factors(dataset, present)
        return
    if not any("{" in label for label in present):
        yield from tabulate_minutes(dataset)
        return
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


def tabulate_factors(dataset: xr.Dataset, present: set[str]) -> Iterator[dict[str, Any]]:
    """Tabulate a network's columns with one factor changed."""
    compilers = [str(label) for label in dataset["compiler"].values if not str(label).endswith(FACTORS)]
    for compiler, factor in itertools.product(compilers, FACTORS):
        if (label := f"{compiler}-{factor}") in present:
            pairs = [
                (find_order(dataset, compiler, other), find_order(dataset, label, f"{other}-{factor}"))
                for other in compilers[compilers.index(compiler) + 1 :]
                if f"{other}-{factor}" in present
            ]
            yield build_row(dataset, compiler, factor, divide(dataset, label, compiler), pairs)


def tabulate_minutes(dataset: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Tabulate the last tenth of a long measurement over its first, by ten blocks of either."""
    # Columns have as many samples a round as their noise asks for.
    last_round = dataset["round"].where(dataset["latency"].notnull()).max()
    first, last = (
        dataset.assign(latency=dataset["latency"].where(part))
        for part in (dataset["round"] <= 0.1 * last_round, dataset["round"] >= 0.9 * last_round)
    )
    for compiler in COMPILERS:
        logs = [np.log(part["latency"].sel(compiler=compiler).dropna("repeat").values) for part in (first, last)]
        means = np.array([[block.mean() for block in np.array_split(values, 10)] for values in logs])
        change, half = means[1].mean() - means[0].mean(), 2.1 * np.sqrt((means.var(axis=1, ddof=1) / 10).sum())
        later = COMPILERS[COMPILERS.index(compiler) + 1 :]
        pairs = [(find_order(first, compiler, other), find_order(last, compiler, other)) for other in later]
        ratio, low, high = map(float, np.exp([change, change - half, change + half]))
        yield build_row(dataset, compiler, "tenth minute", Estimate(ratio, low, high, True), pairs)


def tabulate_host(dataset: xr.Dataset) -> dict[str, Any]:
    """Tabulate the round trip of a cache line and a speed-up, round by round, and the states of the host."""
    readings = json.loads(dataset["facts"].sel(compiler=OF_HOST[1]).item())["host"]
    (device,) = json.loads(dataset.attrs["environments"]).values()
    medians = {}
    for compiler in OF_HOST:
        trial = dataset[["latency", "round"]].sel(compiler=compiler).reset_coords(drop=True).dropna("repeat")
        medians[compiler] = trial["latency"].groupby(trial["round"]).median().to_series()
    trips = pd.Series(readings["trip_s"], index=pd.Index(readings["rounds"], name="round"))
    frame = pd.DataFrame({"trip": trips[trips > 0].groupby("round").max()})
    frame["speed-up"] = medians[BASELINE] / medians[OF_HOST[1]]
    rows = [[int(number), round(1e9 * trip), round(ratio, 2)] for number, trip, ratio in frame.dropna().itertuples()]
    return {"network": str(dataset["workload"].item()), "states": device["states"]["trip_s"], "rounds": rows}


def build_row(
    dataset: xr.Dataset, compiler: str, factor: str, ratio: Estimate, pairs: Sequence[tuple[int, int]]
) -> dict[str, Any]:
    return {
        "network": str(dataset["workload"].item()),
        "batch size": int(dataset["batch_size"]),
        "compiler": compiler,
        "factor": factor,
        "ratio": float(ratio),
        "ratio low": ratio.low,
        "ratio high": ratio.high,
        "conclusive": ratio.conclusive,
        "pairs": sum(bool(without and changed) for without, changed in pairs),
        "flips": sum(without * changed < 0 for without, changed in pairs),
    }


def find_order(dataset: xr.Dataset, first: str, second: str) -> int:
    """Find which of two columns is surely faster: 1 for the second, -1 for the first, 0 if it is not settled."""
    ratio = divide(dataset, first, second)
    return ratio.conclusive * (int(ratio.low > 1) - int(ratio.high < 1))


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
