"""Measures how far simulated capacities are from those of a real load: three networks, two compilers, a ratio for each.

Each network is measured as any sweep is, and its capacity is simulated from those samples. A load generator then sends
real requests to it: short trials calibrate the simulation, the others measure the capacity. Resumable: it reuses the
sweeps and the checks that the folder has. Run it alone on the machine; with the defaults it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import ngbkit
from ngbkit import Sweep
from ngbkit.dataset import storage

# A block in the file of a cell, and networks of timm; the deadline is so many times the slowest compiler's call.
BLOCK = """from torch import nn

def model():
    layers = [nn.Sequential(nn.Conv2d(32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()) for _ in range(6)]
    return nn.Sequential(*layers)

input_shape = (32, 56, 56)
"""
CALLS = 4.0
TARGET = 0.10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default="block,mobilenetv3_small_100,resnet18", help="separated by commas")
    parser.add_argument("--compilers", default="identity,onnxruntime", help="separated by commas")
    parser.add_argument("--batch-sizes", default="1,2,4", help="separated by commas")
    parser.add_argument("--repeats", type=int, default=120, help="samples a trial (default: 120)")
    parser.add_argument("--quantile", type=float, default=0.95, help="share of requests (default: 0.95)")
    parser.add_argument("--seconds", type=float, default=56.0, help="seconds of load a check (default: 56)")
    parser.add_argument("--folder", type=Path, default=Path("results/capacity"), help="folder of finished results")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / "block.py").write_text(BLOCK)
    rows = [
        check(args, network, compiler) for network in args.networks.split(",") for compiler in args.compilers.split(",")
    ]
    print(format_table(rows))


def measure(args: argparse.Namespace, network: str) -> Any:
    """The dataset of one network, from the file of an earlier call if there is one."""
    file = args.folder / f"{network}.nc"
    if not file.exists():
        name = str(args.folder / "block.py") if network == "block" else network
        sizes = [int(size) for size in args.batch_sizes.split(",")]
        report(f"measuring {network}")
        storage.save(Sweep(name, args.compilers.split(","), sizes, repeats=args.repeats).run(), file)
    return ngbkit.load(file)


def check(args: argparse.Namespace, network: str, compiler: str) -> dict[str, Any]:
    """The row of one network and compiler, from the file of an earlier call if there is one."""
    file = args.folder / f"{network}-{compiler}-{args.quantile}-{args.seconds:g}.json"
    if not file.exists():
        data = measure(args, network)
        slowest = float(1 / data["throughput"].sel(batch_size=1).min())
        deadline = float(f"{CALLS * slowest:.2g}")
        capacities = ngbkit.capacity(
            data,
            deadline,
            quantile=args.quantile,
            compiler=compiler,
            check=True,
            seconds=args.seconds,
            report=report,
        )
        file.write_text(json.dumps(capacities.to_json()))
    answer = json.loads(file.read_text())
    row, tests = answer["capacities"][0], answer["checks"]
    return {"network": network, "compiler": compiler, "deadline": answer["service"]["deadline"], **row, "tests": tests}


def format_table(rows: list[dict[str, Any]]) -> str:
    """The ratios of measured to simulated rates, calibrated and not, and how many are within the target."""
    lines = [
        f"{'network':24}{'compiler':14}{'deadline':>10}{'batch':>7}{'simulated':>12}{'calibrated':>12}{'measured':>12}"
        f"{'ratios':>14}  interval        kept..missed  disturbed"
    ]
    ratios = []
    for row in rows:
        start = f"{row['network']:24}{row['compiler']:14}{1e3 * row['deadline']:>7.3g} ms"
        if not row["tests"]:
            lines.append(f"{start}  {row['reason']}")
            continue
        (test,) = row["tests"]
        expected = test["calibrated"] or math.nan
        low, high = (math.nan if test[end] is None else test[end] / expected for end in ("low", "high"))
        ratios.append((test["rate"] / test["simulated"], test["rate"] / expected))
        disturbed = sum(trial["disturbed"] for trial in test["trials"])
        bracket = f"{test['highest_met'] or 0:.4g}..{test['lowest_missed'] or math.inf:.4g}"
        lines.append(
            f"{start}{row['batch_sizes'].rpartition(',')[2]:>7}{test['simulated']:>12.4g}{expected:>12.4g}"
            f"{test['rate']:>12.4g}{ratios[-1][0]:>7.3f}{ratios[-1][1]:>7.3f}  {low:.3f} to {high:.3f}  {bracket}  "
            f"{disturbed} of {len(test['trials'])}"
        )
    notes = [note for row in rows for test in row["tests"] for note in test["notes"]]
    return "\n".join([*lines, *map(_count_within, ("simulated", "calibrated"), zip(*ratios, strict=True)), *notes])


def _count_within(kind: str, ratios: tuple[float, ...]) -> str:
    within = sum(abs(math.log(ratio)) <= math.log1p(TARGET) for ratio in ratios)
    return f"{kind}: {within} of {len(ratios)} within {TARGET:.0%}"


def report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
