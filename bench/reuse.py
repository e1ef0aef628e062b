"""The share of speed-ups of a reused and extended sweep that differ from a whole re-measurement beyond both intervals.

Nothing is measured: each sweep is of synthetic rounds with planted drift. A first session measures identity and
onnxruntime; hours later, under another pace of the machine, a second one extends the sweep by openvino, and a third
measures all three anew. The pace changes from session to session, from round to round (a random walk), and each
compiler has a little of its own. The first two are put together by the code of `ngbkit.runs.known`.

    python bench/reuse.py --sweeps 100
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from synthetic_records import build_network, build_record

from ngbkit.api import Sweep
from ngbkit.dataset.assembly import Data, assemble
from ngbkit.metrics.comparison import compare
from ngbkit.metrics.draws import UNCHECKED_SD
from ngbkit.metrics.statistics import estimate_share
from ngbkit.runs import folders
from ngbkit.runs.known import EarlierRuns
from ngbkit.sweep.expansion import list_references
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Record, join
from ngbkit.sweep.trials import facts_key

GAINS = {"identity": 1.0, "onnxruntime": 1.8, "openvino": 2.2}
ROUNDS, SAMPLES = 12, 3


def measure(
    sweep: Sweep, generator: np.random.Generator, args: argparse.Namespace, first: int = 0
) -> dict[str, Record]:
    """Make the records of one session, whose rounds begin at a number."""
    paces = {label: generator.normal(0, args.ratio / 2**0.5) for label in GAINS}
    pace = generator.normal(0, args.session)
    records: dict[str, Record] = {}
    for group in sweep.groups():
        walk = np.repeat(pace + generator.normal(0, args.round, ROUNDS).cumsum(), SAMPLES)
        for trial in (*group.trials, *group.anchors):
            noise = generator.normal(paces[trial.compiler], 0.01, ROUNDS * SAMPLES)
            cost = trial.batch_size**0.8 / GAINS[trial.compiler]
            record = build_record(trial, 0.01 * cost * np.exp(walk + noise), samples=SAMPLES, started_at=time.time())
            numbers = tuple(number + first for number in record.rounds)
            records[trial.id] = replace(record, rounds=numbers)
    return records


def build(compilers: list[str], number: int) -> Sweep:
    return Sweep(build_network(f"net{number}"), compilers, [1, 4], repeats=ROUNDS * SAMPLES)


def extend(
    number: int, generator: np.random.Generator, args: argparse.Namespace, environment: dict[str, object]
) -> Data:
    """Return the dataset of a first session that a second one extends."""
    first, sweep = build(["identity", "onnxruntime"], number), build([*GAINS], number)
    folder = folders.get_runs_dir() / f"run{number}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(folders.build_metadata(folder.name, first)))
    with Journal(folder / "journal.sqlite") as journal:
        journal.finish(measure(first, generator, args).values())
        journal.note("environment", "cpu", environment)
    contents = {facts_key(group.workload.name, group.factors): (group.workload.id, "") for group in sweep.groups()}
    for network, (digest, _) in contents.items():
        EarlierRuns(folder.name, first).add("cpu", network, digest)
    earlier = EarlierRuns("next", sweep).find_known("cpu", environment, contents)
    repeated = list_references(sweep.groups(), earlier.records, earlier.records)
    assert repeated
    later = measure(sweep, generator, args, first=600_000_000)
    records = dict(earlier.records)
    for trial_id, record in later.items():
        if trial_id in repeated:
            records[trial_id] = join(records[trial_id], record)
        elif trial_id not in records:
            records[trial_id] = record
    return assemble(sweep, records.values(), environments={"cpu": environment})


def main() -> None:
    """Print the share of speed-ups and of scalings that differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=100)
    parser.add_argument("--session", type=float, default=0.2, help="pace between sessions, sd of the logarithm")
    parser.add_argument("--round", type=float, default=0.03, help="step of the pace between rounds")
    parser.add_argument("--ratio", type=float, default=UNCHECKED_SD, help="sd of the log ratio of two compilers")
    args = parser.parse_args()
    environment: dict[str, object] = {"chip": "synthetic", "threads": 2}
    with tempfile.TemporaryDirectory() as state:
        os.environ["NGBKIT_STATE_DIR"] = state
        counts = {(metric, kind): [0, 0] for metric in ("speedup", "rtr", "bsr") for kind in ("reused", "whole")}
        for number in range(args.sweeps):
            generator = np.random.default_rng(number)
            reused = extend(number, generator, args, environment)
            sweep = build([*GAINS], number)
            wholes = [
                assemble(sweep, measure(sweep, generator, args).values(), environments={"cpu": environment})
                for _ in range(2)
            ]
            for (metric, kind), count in counts.items():
                judged = compare(reused if kind == "reused" else wholes[1], wholes[0], metric).judged
                count[0] += int((judged["is"] != "same").sum())
                count[1] += len(judged)
    print(f"{args.sweeps} sweeps, pace {args.session:g} a session, {args.round:g} a round, {args.ratio:g} a ratio")
    for (metric, kind), (changed, judged) in counts.items():
        share, low, high = estimate_share(changed, judged)
        interval = f"{share:.1%} ({low:.1%} to {high:.1%})"
        print(f"{metric:8} {kind:6} against whole: {changed:4} of {judged:4} differ, {interval}")


if __name__ == "__main__":
    main()
