"""Measures each int8 column over a script of its vendor's documentation, interleaved, in several pairs of processes.

    python bench/vendor_int8.py results/vendor_int8.json

Claim: the ratio is from 0.97 to 1.03. The scripts are byhand/ngbkit_int8_by_hand.py. Each pair is written as soon as it
is measured, and a second call measures those that are missing. The ratio is the mean over pairs of the median over
rounds, beside the lowest and the highest pair: two processes of one program differ by a few per cent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import Sweep, set_options
from ngbkit.cluster import engines

BY_HAND = Path(__file__).parent / "byhand"
COLUMNS = {
    "onnxruntime": ("int8", "resnet18"),
    "openvino": ("int8", "resnet18"),
    "inductor": ("int8", "resnet18"),
    "executorch": ("int8", "resnet18"),
    "onnxruntime-dynamic": ("int8-dynamic", "deit_tiny_patch16_224"),
    "identity": ("int8-dynamic", "deit_tiny_patch16_224"),
}
TARGET = (0.97, 1.03)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the JSON file of all pairs")
    parser.add_argument("-c", "--columns", default=",".join(COLUMNS), help="columns to compare")
    parser.add_argument("--rounds", type=int, default=8, help="rounds, each with a sample of both sides")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes, both sides compiled anew in each")
    parser.add_argument("--network", help="the network of all columns")
    args = parser.parse_args()
    sys.path.insert(0, str(BY_HAND))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BY_HAND), os.environ.get("PYTHONPATH")]))
    pairs: list[dict[str, Any]] = json.loads(args.results.read_text()) if args.results.exists() else []
    args.results.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(args.pairs):
        for column in args.columns.split(","):
            network = args.network or COLUMNS[column][1]
            if sum((pair["column"], pair["network"]) == (column, network) for pair in pairs) < args.pairs:
                # A folder of its own: the same sweep in the same folder is the run that has finished.
                with tempfile.TemporaryDirectory() as folder, set_options(state_dir=folder):
                    pairs.append(_measure_pair(column, network, args.rounds))
                    engines.close()
                args.results.write_text(json.dumps(pairs, indent=1))
    for column in args.columns.split(","):
        _print_ratio(column, [pair for pair in pairs if pair["column"] == column])


def _measure_pair(column: str, network: str, rounds: int) -> dict[str, Any]:
    """Measure both sides, each compiled anew; the median over rounds of the logarithm of our latency over theirs."""
    precision, compiler = COLUMNS[column][0], column.removesuffix("-dynamic")
    labels = [json_label(compiler, precision), f"{compiler}-{precision}-by-hand"]
    sweep = Sweep(network, labels, calibrate="random", repeats=rounds, min_rounds=rounds)
    run = sweep.start()
    data = run.result()
    pair: dict[str, Any] = {"column": column, "network": network}
    failures = [f"{run.trial(failure.trial_id).compiler}: {failure.error}" for failure in run.failures()]
    if failures:
        return {**pair, "problem": "; ".join(failures)}
    ours, theirs = (data["latency"].sel(compiler=label).squeeze().values for label in labels)
    contended = [float(data["contended"].sel(compiler=label).mean()) for label in labels] if "contended" in data else []
    return {
        **pair,
        "log_ratio": float(np.nanmedian(np.log(ours) - np.log(theirs))),
        "ours_s": float(np.nanmedian(ours)),
        "theirs_s": float(np.nanmedian(theirs)),
        "contended": contended,
    }


def json_label(compiler: str, precision: str) -> str:
    """Return the label of a column in a precision."""
    return f"{compiler}{json.dumps({'precision': precision}, separators=(',', ':'))}"


def _print_ratio(column: str, pairs: list[dict[str, Any]]) -> None:
    logs = [pair["log_ratio"] for pair in pairs if "log_ratio" in pair]
    for pair in pairs:
        if "problem" in pair:
            print(f"{column:22}{pair['network']:24}{pair['problem'][:160]}")
    if not logs:
        return
    ratio, low, high = np.exp([statistics.fmean(logs), min(logs), max(logs)])
    ours, theirs = (
        1e3 * statistics.median(pair[side] for pair in pairs if side in pair) for side in ("ours_s", "theirs_s")
    )
    verdict = "" if TARGET[0] <= ratio <= TARGET[1] else "  outside 0.97 to 1.03"
    print(
        f"{column:22}{pairs[0]['network']:24}{ours:8.2f} ms {theirs:8.2f} ms  {ratio:.3f}  {low:.3f} to {high:.3f}"
        f" of {len(logs)} pairs{verdict}"
    )


if __name__ == "__main__":
    main()
