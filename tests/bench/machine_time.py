"""Compares designs of a measurement by the machine time that each takes to an interval that covers.

    python tests/bench/machine_time.py record results/machine-time --minutes 20    # on a quiet machine; goes on
    python tests/bench/machine_time.py report results/machine-time [--json]
    python tests/bench/machine_time.py profile results/machine-time

Compiled networks take turns of many calls, every one of them timed, and in between each is called a hundred times in a
row, as most benchmarks do. From the turns every shorter design is replayed: so many untimed calls at the beginning, so
many samples, so many rounds. The truth is the speed-up of conclusive calls over the whole recording.

The error of a design is that of its estimate; 1.96 times the root mean square is the half width of an interval that
covers. Errors fall with the square root of the time, so the time to a half width of `HALF_WIDTH` follows. A replayed
round is followed by more time than it would be, so rounds resemble each other a little less than in truth.
Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import json_lines
import numpy as np
import pandas as pd
from loaded import load_workers

from ngbkit.api import Sweep
from ngbkit.device.groups.worker import Worker
from ngbkit.device.timing import correlation, intervals, normal, rounds
from ngbkit.device.timing.sampling import choose_block_size
from ngbkit.sweep.grid import MIN_ROUNDS
from ngbkit.sweep.json_values import to_json_value
from ngbkit.workloads import blocks, timm
from ngbkit.workloads.base import Workload

COMPILERS = ("identity", "onnxruntime", "openvino")
#: Calls of a turn: more than any design needs.
TURN = 12
#: Rounds of turns between two sequential measurements, and the repeats of those, as in the paper.
ROUNDS, REPEATS = 16, 100
#: The half width, as a share of the speed-up, to which machine times are compared.
HALF_WIDTH = 0.02
RESAMPLES = 1000


NETWORKS = {
    "resnet18": timm.model("resnet18"),
    "deit_tiny": timm.model("deit_tiny_patch16_224"),
    "mobilenetv3": timm.model("mobilenetv3_small_100"),
    "block": blocks.conv(64, 4, size=(56, 56)),
}


def record(folder: Path, minutes: float, seed: int) -> None:
    """Record every network for as long; a network that was not finished begins again."""
    for network, workload in NETWORKS.items():
        file = folder / f"{network}-{seed}.jsonl"
        if not file.exists():
            partial = file.with_suffix(".part")
            partial.unlink(missing_ok=True)
            for row in record_group(workload, folder / "state", 60 * minutes / len(NETWORKS), seed):
                json_lines.append(partial, row, prints=False)
            partial.rename(file)
            print(network, file, flush=True)


def record_group(workload: Workload, state: Path, seconds: float, seed: int) -> Iterator[dict[str, Any]]:
    """Record turns of all compilers round by round, and sequential repeats in between."""
    sweep = Sweep(workload, COMPILERS, repeats=REPEATS, seed=seed)
    order = random.Random(seed)
    with load_workers(sweep, state) as workers:
        yield {"conclusive": {worker.trial.compiler: worker.steady_call_s for worker in workers}}
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            turns = [order.sample(list(workers), len(workers)) for _ in range(ROUNDS)]
            yield {"turns": [[time_turn(worker, TURN) for worker in turn] for turn in turns]}
            yield {"sequential": [time_turn(worker, REPEATS) for worker in order.sample(list(workers), len(workers))]}


def time_turn(worker: Worker, samples: int) -> dict[str, Any]:
    """Time a turn from its first call on."""
    began = time.monotonic()
    _, contended = worker._time_piece(0, samples, choose_block_size(worker.steady_call_s), 0, begins=False)
    # The worker keeps all that it measured, and a recording is long.
    latency_s = [round(float(value), 8) for value in worker._pieces.pop().latency_s]
    return {
        "compiler": worker.trial.compiler,
        "at": round(began, 4),
        "wall_s": round(time.monotonic() - began, 6),
        "block": choose_block_size(worker.steady_call_s),
        "latency_s": latency_s,
        "contended": bool(contended),
    }


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The recorded samples of one network."""

    network: str
    # Seconds a call: (rounds, compilers, samples of a turn), and (sequential measurements, compilers, repeats).
    turns: np.ndarray
    sequential: np.ndarray
    # Calls of a sample, by compiler; and the duration of a conclusive call.
    block: np.ndarray
    steady_s: np.ndarray
    # Of a turn beyond its calls, the median.
    overhead_s: float
    contended: float

    @property
    def truth(self) -> np.ndarray:
        """The logarithms of the speed-ups of conclusive calls over the whole recording, (compilers - 1)."""
        conclusive = np.median(self.turns[:, :, TURN // 3 :], axis=-1)
        return np.asarray(np.median(np.log(conclusive[:, :1] / conclusive[:, 1:]), axis=0))

    @property
    def settling(self) -> np.ndarray:
        """The samples that ngbkit would not time at the beginning of a turn, (compilers)."""
        calls = np.array([rounds.count_settling_calls(call_s) for call_s in self.steady_s])
        return np.asarray(np.maximum(1, np.round(calls / self.block)), dtype=int)

    def compute_logs(self, settling: np.ndarray, samples: int, span: slice) -> np.ndarray:
        """Compute the logarithm of each compiler's speed-up in each round, (rounds, compilers - 1)."""
        columns = [self.turns[span, index, start : start + samples] for index, start in enumerate(settling)]
        medians = np.stack([np.median(column, axis=-1) for column in columns], axis=1)
        return np.asarray(np.log(medians[:, :1] / medians[:, 1:]))

    def compute_seconds(self, settling: np.ndarray, samples: int, span: slice) -> float:
        """Compute the machine time of rounds of a design."""
        calls = [
            self.turns[span, index, : start + samples].sum() * self.block[index] for index, start in enumerate(settling)
        ]
        return float(sum(calls) + self.overhead_s * len(settling) * len(self.turns[span]))


Replay = tuple[np.ndarray, float]
"""One replayed measurement: its logarithms round by round, (rounds, compilers - 1), and its machine time."""

Design = Callable[[Recording, int], Replay | None]
"""Replays a measurement from that round of a recording on; None where the recording ends before it."""


def repeat_turns(samples: int, settles: bool = True) -> Design:
    """Take as many rounds of turns of that many samples as have `REPEATS`."""

    def replay(recording: Recording, first: int) -> Replay | None:
        starts = recording.settling * settles
        span = slice(first, first + -(-REPEATS // samples))
        if span.stop > len(recording.turns):
            return None
        return recording.compute_logs(starts, samples, span), recording.compute_seconds(starts, samples, span)

    return replay


def adapt_turns(recording: Recording, first: int) -> Replay | None:
    """Take turns as ngbkit does: of as many samples as the noise so far asks for."""
    starts, fastest_s = recording.settling, float(recording.steady_s.min())
    untimed_s = (starts * recording.block * recording.steady_s).sum() + recording.overhead_s * len(starts)
    settling = float(untimed_s / (recording.block * recording.steady_s).sum())
    parts: list[tuple[int, slice]] = []

    def choose() -> int:
        turns = [
            {
                number: recording.turns[number, index, start : start + samples].tolist()
                for samples, span in parts
                for number in range(span.start, span.stop)
            }
            for index, start in enumerate(starts)
        ]
        pairs = [(column, turns[0]) for column in turns[1:]]
        return rounds.choose_samples(pairs, settling, rounds.count_least_samples(fastest_s))

    for planned in rounds.plan_turns(REPEATS, fastest_s, MIN_ROUNDS, choose):
        span = slice(first, first + len(planned))
        if span.stop > len(recording.turns):
            return None
        parts.append((planned[0], span))
        first = span.stop
    logs = np.concatenate([recording.compute_logs(starts, samples, span) for samples, span in parts])
    return logs, sum(recording.compute_seconds(starts, samples, span) for samples, span in parts)


SEQUENTIAL, SINGLE, LATER = "100 repeats of each in a row", "single calls in turns", "best of all, chosen afterwards"
NOW = "ngbkit"
DESIGNS: dict[str, Design] = {
    SINGLE: repeat_turns(1, settles=False),
    NOW: adapt_turns,
    **{f"{samples} a turn": repeat_turns(samples) for samples in (1, 2, 3, 4, 6, 8)},
    **{f"{samples} a turn, inconclusive": repeat_turns(samples, settles=False) for samples in (2, 4, 8, 12)},
}


def load(folder: Path) -> Iterator[Recording]:
    """Load every finished recording of a folder."""
    for file in sorted(folder.glob("*.jsonl")):
        head, *rows = json_lines.read(file)
        places = {name: index for index, name in enumerate(head["conclusive"])}
        turns = [turn for row in rows for turn in row.get("turns", ())]
        passes = [row["sequential"] for row in rows if "sequential" in row]
        for group in (*turns, *passes):
            group.sort(key=lambda turn: places[turn["compiler"]])
        every = [turn for group in turns for turn in group]
        extra = [turn["wall_s"] - turn["block"] * sum(turn["latency_s"]) for turn in every]
        yield Recording(
            network=file.stem.rpartition("-")[0],
            turns=np.array([[turn["latency_s"] for turn in group] for group in turns]),
            sequential=np.array([[turn["latency_s"] for turn in group] for group in passes]),
            block=np.array([turn["block"] for turn in turns[0]]),
            steady_s=np.array(list(head["conclusive"].values())),
            overhead_s=float(np.median(extra)),
            contended=float(np.mean([turn["contended"] for turn in every])),
        )


def judge(recording: Recording, design: Design) -> Judged | None:
    """Judge a design by all its replays, half a measurement apart; None if the recording is too short."""
    replays: list[Replay] = []
    first = 0
    while (replay := design(recording, first)) is not None:
        replays.append(replay)
        first += max(1, len(replay[0]) // 2)
    if not replays:
        return None
    return Judged(
        errors=np.stack([np.median(logs, axis=0) for logs, _ in replays]) - recording.truth,
        covered=np.stack([covers(logs, recording.truth) for logs, _ in replays]),
        seconds=float(np.mean([seconds for _, seconds in replays])),
    )


def judge_sequential(recording: Recording) -> Judged:
    """Judge repeats in a row: they have no rounds, and so no interval."""
    medians = np.median(recording.sequential, axis=-1)
    seconds = (recording.sequential.sum(axis=-1) * recording.block).sum(axis=-1) + recording.overhead_s * len(COMPILERS)
    errors = np.log(medians[:, :1] / medians[:, 1:]) - recording.truth
    return Judged(errors=errors, covered=np.full((len(medians), 0), np.nan), seconds=float(seconds.mean()))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The errors of all replays of a design, and whether their intervals cover, (replays, compilers - 1)."""

    errors: np.ndarray
    covered: np.ndarray
    seconds: float

    @property
    def half_width(self) -> float:
        return 1.96 * math.sqrt(float(np.mean(self.errors**2)))

    @property
    def seconds_to(self) -> float:
        """The machine time to a half width of `HALF_WIDTH`."""
        return self.seconds * (self.half_width / HALF_WIDTH) ** 2

    def resample(self, generator: np.random.Generator) -> Judged:
        return replace(self, errors=self.errors[generator.integers(0, len(self.errors), len(self.errors))])


def covers(logs: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return whether each interval over rounds, computed as by ngbkit without any allowance, covers the truth."""
    low, high = intervals.compute_median_interval(logs.T, normal.LEVEL)
    center, factor = np.median(logs, axis=0), correlation.estimate_inflation(logs.T)
    return np.asarray((center + factor * (low - center) <= truth) & (truth <= center + factor * (high - center)))


def judge_all(recording: Recording) -> dict[str, Judged]:
    judged = {name: judge(recording, design) for name, design in DESIGNS.items()}
    present = {SEQUENTIAL: judge_sequential(recording)} | {name: row for name, row in judged.items() if row is not None}
    return {**present, LATER: min(present.values(), key=lambda row: row.seconds_to)}


def summarize(folder: Path) -> dict[str, Any]:
    """Summarize every design on every network, and over all networks its machine time over that of ngbkit's own."""
    networks = {recording.network: judge_all(recording) for recording in load(folder)}
    rows = [
        {
            "network": network,
            "design": name,
            "replays": len(row.errors),
            "seconds": row.seconds,
            "half_width": row.half_width,
            "bias": float(np.abs(row.errors.mean(axis=0)).max()),
            "seconds_to": row.seconds_to,
            "coverage": float(np.mean(row.covered)) if row.covered.size else math.nan,
        }
        for network, judged in networks.items()
        for name, row in judged.items()
    ]
    names = [name for name in (SEQUENTIAL, *DESIGNS, LATER) if all(name in judged for judged in networks.values())]
    generator = np.random.default_rng(0)
    times = compare(networks, names, None)
    low, high = np.quantile([compare(networks, names, generator) for _ in range(RESAMPLES)], [0.025, 0.975], axis=0)
    coverages = [float(np.mean([row["coverage"] for row in rows if row["design"] == name])) for name in names]
    ratios = pd.DataFrame(
        {"design": names, "time": times, "time_low": low, "time_high": high, "coverage": coverages}
    ).to_dict("records")
    return {"networks": rows, "designs": ratios}


def compare(
    networks: dict[str, dict[str, Judged]], names: Sequence[str], generator: np.random.Generator | None
) -> np.ndarray:
    """Compare the machine time of each design with ngbkit's own: the geometric mean over networks, of a resample."""
    logs = []
    for judged in networks.values():
        rows = {name: judged[name] if generator is None else judged[name].resample(generator) for name in names}
        logs.append([math.log(rows[name].seconds_to / rows[NOW].seconds_to) for name in names])
    return np.asarray(np.exp(np.mean(logs, axis=0)))


def report(folder: Path, as_json: bool) -> None:
    """Print the tables of all designs, or JSON."""
    summary = summarize(folder)
    if as_json:
        print(json.dumps(to_json_value(summary), indent=1))
        return
    for name, title in (
        ("networks", f"machine time to a half width of {HALF_WIDTH:.0%}"),
        ("designs", "the same over ngbkit's, geometric mean of the networks with the 95 % interval of their replays"),
    ):
        print(f"{title}\n{pd.DataFrame(summary[name]).to_string(index=False, float_format='%.3f')}\n")


def profile(folder: Path) -> None:
    """Print how much slower the first samples of a turn are than its last ones, and how alike they are."""
    for recording in load(folder):
        conclusive = np.median(recording.turns[:, :, TURN // 2 :], axis=-1, keepdims=True)
        ratios = np.median(recording.turns / conclusive, axis=0)
        for index, name in enumerate(COMPILERS):
            logs = np.log(recording.turns[:, index, TURN // 4 :])
            logs -= np.median(logs)
            correlations = [np.corrcoef(logs[:, :-lag].ravel(), logs[:, lag:].ravel())[0, 1] for lag in (1, 2, 4, 8)]
            print(
                f"{recording.network:12s} {name:12s} {1e3 * recording.steady_s[index]:6.2f} ms a call, samples of "
                f"{recording.block[index]} over conclusive:",
                *(f"{value:.3f}" for value in ratios[index, : TURN // 2]),
                "| correlation at a distance of 1, 2, 4, 8:",
                *(f"{value:.2f}" for value in correlations),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["record", "report", "profile"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.command == "record":
        record(args.folder, args.minutes, args.seed)
    elif args.command == "profile":
        profile(args.folder)
    else:
        report(args.folder, args.json)


if __name__ == "__main__":
    main()
