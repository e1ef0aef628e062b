"""Compares reported speed-ups under planted interference with the quiet ones of the same processes.

    python tests/bench/truth.py measure results/truth --minutes 40     # goes on where it was; on a quiet machine
    python tests/bench/truth.py report results/truth

Each group of compilers stays loaded while every kind of interference is planted. Seconds with the plant, in which the
speed-ups to be judged are measured, alternate with quiet seconds, in which their truth is. A reported speed-up is wrong
if it differs from the truth beyond the 95 % intervals of both, their half widths added in quadrature; the row "nothing"
says how often chance alone makes one wrong. "rounds alone" is of as many rounds as planned, contended or not, with
intervals over rounds; "wrong" is as ngbkit reports it on this machine. On a virtual machine its intervals allow for
what the host does within hours, which cancels here, where the truth is seconds away: "wrong, without the host" leaves
this allowance out. The time is relative to the row "nothing", over the rounds with the plant. Needs root for some
plants. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import json_lines
import pandas as pd
from loaded import load_workers
from plants import PLANTS

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.dataset.assembly import assemble
from ngbkit.device.groups.interleaving import Interleaving
from ngbkit.device.groups.turn_log import TurnPiece
from ngbkit.device.groups.worker import Worker
from ngbkit.device.timing.intervals import compute_median_interval
from ngbkit.device.timing.patience import Patience
from ngbkit.hardware.environment import is_virtual_machine
from ngbkit.metrics.statistics import estimate_share
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.records import Contract, Measurement
from ngbkit.workloads import blocks, timm

COMPILERS = ("identity", "onnxruntime", "openvino", "torchscript")
REPEATS = 50
#: Seconds with the plant, and about as many without.
SEGMENT_S = 4.0
#: Rounds of the quiet truth over those that are judged.
TRUTH_ROUNDS = 2.0
#: Room for the rounds of a plant and those of its truth.
STRIDE = 1_000_000


NETWORKS = {
    "resnet18": timm.model("resnet18"),
    "deit_tiny": timm.model("deit_tiny_patch16_224"),
    "block": blocks.conv(64, 4, size=(56, 56)),
}


def measure(folder: Path, minutes: float, names: Sequence[str], repetitions: int) -> None:
    """Measure each network beside each plant in turn, what is missing."""
    deadline = time.monotonic() + 60 * minutes
    for repetition, network in itertools.product(range(repetitions), NETWORKS):
        file = folder / f"{network}-{repetition}.jsonl"
        finished = [row["plant"] for row in json_lines.read(file)]
        missing = [name for name in names if name not in finished]
        random.Random(repetition).shuffle(missing)
        if not missing or time.monotonic() > deadline:
            continue
        sweep = Sweep(NETWORKS[network], COMPILERS, repeats=REPEATS, seed=repetition)
        with load_workers(sweep, folder / "state") as workers:
            for number, name in enumerate(missing):
                if time.monotonic() > deadline:
                    return
                row = measure_beside(sweep, workers, name, 2 * number * STRIDE)
                json_lines.append(
                    file, {"network": network, "repetition": repetition, "plant": name, **row}, prints=False
                )
                print(network, repetition, name, f"{row['planted_s']:.0f} s", flush=True)


def measure_beside(sweep: Sweep, workers: Sequence[Worker], name: str, first_round: int) -> dict[str, Any]:
    """Measure a group beside a plant, and in between without it."""
    starts = [len(worker._pieces) for worker in workers]
    fails: list[Any] = []
    interleaving = Interleaving(
        sweep=sweep,
        first_round=first_round,
        record_failure=fails.append,
        finish=lambda _: None,
        report=lambda *_: None,
        look=lambda _: None,
    )
    rounds = interleaving.advance(workers)
    quiet_patience = Patience(factor=2.0, planned_s=60.0)
    order = random.Random(first_round)
    truth_rounds, planted_rounds, planted_s, ended = 0, 0, 0.0, False
    with ExitStack() as stack:
        switch = PLANTS[name].start(stack, [worker.child.pid for worker in workers])
        while not ended:
            switch(True)
            began = time.monotonic()
            while not ended and time.monotonic() - began < SEGMENT_S:
                ended = next(rounds, "ended") == "ended"
                planted_rounds += not ended
            planted_s += time.monotonic() - began
            switch(False)
            time.sleep(0.1)
            began = time.monotonic()
            while time.monotonic() - began < SEGMENT_S and (truth_rounds < TRUTH_ROUNDS * planted_rounds):
                for worker in order.sample(list(workers), len(workers)):
                    worker.time_turn(first_round + STRIDE + truth_rounds, 4, quiet_patience)
                truth_rounds += 1
    return {
        "planted_s": planted_s,
        "failures": len(fails),
        "planned_s": sum(worker.estimate_turn_s(50) for worker in workers),
        "workers": {
            worker.trial.compiler: list_samples(worker._pieces[start:])
            for worker, start in zip(workers, starts, strict=True)
        },
        "first_round": first_round,
        "plan": interleaving.planned,
    }


def list_samples(pieces: Sequence[TurnPiece]) -> dict[str, list[float]]:
    """List the latency, the round and the mark of each sample."""
    rows = [(latency_s, piece.round, piece.contended) for piece in pieces for latency_s in piece.latency_s]
    columns = zip(*rows, strict=True) if rows else ((), (), ())
    return {
        name: [round(float(value), 7) for value in values]
        for name, values in zip(("latency_s", "rounds", "contended"), columns, strict=True)
    }


def summarize(folder: Path) -> list[dict[str, Any]]:
    """Summarize what was measured, one row for each plant."""
    rows = [row for file in sorted(folder.glob("*.jsonl")) for row in json_lines.read(file)]
    times = {name: [row["planted_s"] / row["planned_s"] for row in rows if row["plant"] == name] for name in PLANTS}
    usual = statistics.median(times["nothing 0%"] or [math.nan])
    summaries = []
    for name, plant in PLANTS.items():
        cells = [cell for row in rows if row["plant"] == name for cell in judge(row)]
        conclusive = [cell["after"] for cell in cells if cell["after"].conclusive]
        summaries.append(
            {
                "interference": plant.kind,
                "strength": plant.strength,
                "speed-ups": len(cells),
                "wrong, rounds alone": sum(cell["before"].wrong for cell in cells),
                "error, rounds alone": compute_error([cell["before"] for cell in cells]),
                "wrong, without the host": sum(cell["alone"].wrong and cell["alone"].conclusive for cell in cells),
                "wrong": sum(judged.wrong for judged in conclusive),
                "inconclusive": len(cells) - len(conclusive),
                "error": compute_error(conclusive),
                "time": statistics.median(times[name] or [math.nan]) / usual,
            }
        )
    return [summary for summary in summaries if summary["speed-ups"]]


def report(folder: Path, as_json: bool) -> None:
    """Print a table, or JSON."""
    rows = summarize(folder)
    if as_json:
        print(json.dumps(to_json_value(rows), indent=1))
        return
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False, float_format="%.3f"))
    count, total = int(frame["wrong"].sum()), int(frame["speed-ups"].sum() - frame["inconclusive"].sum())
    share, low, high = estimate_share(count, total)
    print(f"wrong and not marked: {count} of {total}, {share:.1%} ({low:.1%} to {high:.1%})")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A reported speed-up beside its truth: the logarithm of their ratio, and whether that is beyond the intervals."""

    error: float
    wrong: bool
    conclusive: bool


def judge(row: Mapping[str, Any]) -> Iterator[dict[str, Judged]]:
    """Judge the speed-ups of one group beside one plant: by rounds alone, without the host's allowance, as reported."""
    first, plan = row["first_round"], row["plan"]
    before, after, truth = (
        {name: select(samples, kind, first, plan) for name, samples in row["workers"].items()}
        for kind in ("before", "after", "truth")
    )
    hosted = {"conditions": {"virtual_machine": is_virtual_machine()}}
    alone, now, quiet = compute_speedups(after, {}), compute_speedups(after, hosted), compute_speedups(truth, {})
    plain, plain_quiet = compute_plain_speedups(before), compute_plain_speedups(truth)
    for compiler in row["workers"]:
        if compiler != "identity":
            quiet_speedup = quiet.sel(compiler=compiler)
            yield {
                "before": judge_one(plain[compiler], plain_quiet[compiler]),
                "alone": judge_one(alone.sel(compiler=compiler), quiet_speedup),
                "after": judge_one(now.sel(compiler=compiler), quiet_speedup),
            }


def select(samples: Mapping[str, list[float]], kind: str, first: int, plan: Sequence[int]) -> dict[str, Any]:
    """Select the samples of the truth, of the planned rounds alone, or of all rounds beside the plant."""
    indices: list[int] = []
    counts: Counter[int] = Counter()
    for index, number in enumerate(map(int, samples["rounds"])):
        is_truth, position = number >= first + STRIDE, counts[number]
        counts[number] += 1
        is_planned = number < first + len(plan) and position < plan[number - first]
        if is_truth == (kind == "truth") and (kind != "before" or is_planned):
            indices.append(index)
    marked = [place for place, index in enumerate(indices) if samples["contended"][index] and kind != "before"]
    return {
        "latency_s": tuple(samples["latency_s"][index] for index in indices),
        "rounds": tuple(int(samples["rounds"][index]) for index in indices),
        "contended_samples": tuple(marked),
    }


def compute_speedups(samples: Mapping[str, Mapping[str, Any]], environment: Mapping[str, Any]) -> Any:
    """Compute speed-ups with their intervals, as ngbkit does for any run on a device of that environment."""
    sweep = Sweep(blocks.conv(64, 1), list(samples), repeats=1)
    unknown: dict[str, Any] = {"rmse": 0.0, "baseline_rmse": 0.0, "max_abs_error": 0.0}
    records = [
        Measurement(
            trial_id=trial.id,
            compile_time_s=1.0,
            first_call_time_s=1.0,
            contract=Contract(runtime="any"),
            **unknown,
            **samples[trial.compiler],
        )
        for trial in sweep.trials()
    ]
    return metrics.speedup(assemble(sweep, records, environments={"cpu": environment}), ci=0.95).squeeze()


def compute_plain_speedups(samples: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Compute speed-ups with intervals over rounds alone."""
    medians = {
        name: {
            number: statistics.median(value for value, other in zip(*pair, strict=True) if other == number)
            for number in set(pair[1])
        }
        for name, pair in ((name, (column["latency_s"], column["rounds"])) for name, column in samples.items())
    }
    result = {}
    for name, rounds in medians.items():
        logs = [math.log(medians["identity"][number] / rounds[number]) for number in sorted(rounds)]
        low, high = (math.exp(end) for end in compute_median_interval(logs, 0.95))
        result[name] = {
            "speedup": math.exp(statistics.median(logs)),
            "ci_low": low,
            "ci_high": high,
            "conclusive": True,
        }
    return result


def judge_one(reported: Any, truth: Any) -> Judged:
    error = math.log(float(reported["speedup"]) / float(truth["speedup"]))
    ends = ("ci_low", "ci_high") if error > 0 else ("ci_high", "ci_low")
    sides = [math.log(float(side[name] / side["speedup"])) for side, name in zip((reported, truth), ends, strict=True)]
    # Without an interval nothing is said, and nothing is wrong.
    return Judged(error=error, wrong=abs(error) > math.hypot(*sides), conclusive=bool(reported["conclusive"]))


def compute_error(estimates: Sequence[Judged]) -> float:
    """Compute the median of the absolute relative errors."""
    return statistics.median([abs(math.expm1(estimate.error)) for estimate in estimates]) if estimates else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["measure", "report"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--plants", nargs="*", default=list(PLANTS))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.command == "measure":
        measure(args.folder, args.minutes, args.plants, args.repetitions)
    report(args.folder, args.json)


if __name__ == "__main__":
    main()
