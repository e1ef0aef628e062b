"""How often a sweep that measures a tenth of its trials knows the best compiler of each group: stored sweeps, replayed.

Nothing is measured: what the guide of a run asks for is taken from the stored sweep, and what it predicts of the rest
is held against it. Beside it: the same number of trials drawn at random, and the one compiler that is the best most
often in the whole sweep, which nobody knows beforehand.

How many trials are chosen at once, and by how much intervals are stretched, was settled on 03-blocks.nc: of that sweep
the figures are the better for it. Nothing was settled on the sweep of the paper's networks and blocks:

    python tests/benchmarks/budget.py notebooks/data/paper.nc --together
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.dataset import storage
from ngbkit.dataset.assembly import factor_dims, facts_key, nodes
from ngbkit.predictor.forecast import Guide
from ngbkit.predictor.forecast.imputation import Key, key_of
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Contract, Failure, Measurement, Record

DATA = Path(__file__).parents[2] / "notebooks" / "data"
STORED = (DATA / "03-blocks.nc",)
#: Who takes a compiler that is this much slower than the best has lost nothing that a run would show.
CLOSE = 0.02

Group = tuple[Any, ...]
Stored = tuple[Sweep, dict[str, Any], dict[str, Record]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=list(STORED), metavar="FILE")
    parser.add_argument("--share", type=float, default=0.1, help="of the trials that are measured (default: 0.1)")
    parser.add_argument("--seeds", type=int, default=3, help="of what is drawn at random (default: 3)")
    parser.add_argument("--together", action="store_true", help="replay the sweeps of a file as one that asked for all")
    asked = parser.parse_args()
    print("sweep          trials measured chosen by               right within 2 %  regret covered")
    for file in asked.files:
        found = stored(file)
        for sweep, facts, records in [together(found)] if asked.together else found:
            replay(file.stem, sweep, facts, records, asked.share, asked.seeds)


def stored(file: Path) -> list[Stored]:
    """By sweep that a file holds: what was asked for, what is known of its networks, and what came of each trial."""
    data = storage.load(file)
    facts = json.loads(data.attrs["facts"])
    found = []
    for asked in json.loads(data.attrs.get("sweeps") or f"[{data.attrs['sweep']}]"):
        sweep = Sweep.from_json(asked, locate=Path)
        known = {}
        for node in nodes(data).values():
            known |= read(node)
        records = {one.id: record(one.id, *known[key_of(one)]) for one in sweep.trials() if key_of(one) in known}
        found.append((sweep, facts, records))
    return found


def together(several: list[Stored]) -> Stored:
    """Sweeps as one; what it would ask for beyond them has no record, and does not count."""
    sizes = sorted({size for sweep, _, _ in several for size in sweep.batch_sizes})
    compilers = list(dict.fromkeys(one for sweep, _, _ in several for one in sweep.compilers))
    workloads = [one for sweep, _, _ in several for one in sweep.workloads]
    facts: dict[str, Any] = {}
    records: dict[str, Record] = {}
    for _, known, own in several:
        facts |= known
        records |= own
    return Sweep(workloads, compilers, sizes), facts, records


def read(node: Any) -> dict[Key, tuple[np.ndarray, str]]:
    """The samples and the status of each trial of a node."""
    factors, status = factor_dims(node), node["status"]
    latency = node["latency"].transpose(*status.dims, "repeat").values
    found = {}
    labels = {dim: status[dim].values.tolist() for dim in status.dims}
    for at in np.ndindex(*status.shape):
        own = {dim: labels[dim][place] for dim, place in zip(labels, at, strict=True)}
        settled = tuple(sorted((name, own[name]) for name in factors))
        key = (own["workload"], settled, own["device"], own["compiler"], own["batch_size"])
        if status.values[at]:
            samples = latency[at]
            found[key] = (samples[np.isfinite(samples)], str(status.values[at]))
    return found


def record(trial_id: str, samples: np.ndarray, status: str) -> Record:
    """What a run would have heard of it."""
    if status != "ok":
        return Failure(trial_id=trial_id, status="unsupported", stage="compile", error=status)
    return Measurement(
        trial_id=trial_id,
        compile_time_s=0.0,
        first_call_time_s=0.0,
        latency_s=tuple(samples.tolist()),
        rounds=tuple(range(len(samples))),
        contract=Contract(runtime="stored", threads=1),
        rmse=0.0,
        baseline_rmse=0.0,
        max_abs_error=0.0,
    )


def replay(
    name: str, sweep: Sweep, facts: dict[str, Any], records: dict[str, Record], share: float, seeds: int
) -> None:
    truth = {one: float(np.median(kept.latency_s)) for one, kept in records.items() if isinstance(kept, Measurement)}
    trials = {one.id: one for one in sweep.trials() if one.id in records}
    groups: dict[Group, list[str]] = {}
    for one, trial in trials.items():
        groups.setdefault((trial.workload, trial.factors, trial.device, trial.batch_size), []).append(one)
    groups = {group: own for group, own in groups.items() if sum(one in truth for one in own) > 1}
    count = round(share * len(trials))
    row = f"{name:<14} {len(trials):>6} {count:>8}"

    def facts_of(trial: Any) -> Any:
        return facts.get(facts_key(trial.workload, dict(trial.factors)), {})

    def lost(own: list[str], guess: dict[str, float]) -> float:
        """How much slower the compiler is that is taken for the best of a group; infinity where none is."""
        pick = min((one for one in own if one in guess), key=guess.__getitem__, default="")
        return truth.get(pick, np.inf) / min(truth[one] for one in own if one in truth) - 1

    def judged(said: str, guess: dict[str, float], covered: float) -> None:
        off = np.array([lost(own, guess) for own in groups.values()])
        regret = float(np.mean(np.minimum(off, 10.0)))
        shares = f"{np.mean(off == 0):>6.1%} {np.mean(off <= CLOSE):>10.1%} {regret:>7.1%} {covered:>7.1%}"
        print(f"{row} {said:<22} {shares}", flush=True)

    def told(guide: Guide, have: dict[str, Record]) -> tuple[dict[str, float], float]:
        predicted = guide.predictions(list(have.values()))
        guess = {one: truth[one] for one in have if one in truth}
        inside = []
        for one, trial in trials.items():
            if one not in have and key_of(trial) in predicted:
                middle, low, high = predicted[key_of(trial)]
                guess[one] = middle
                if one in truth:
                    inside.append(low <= truth[one] <= high)
        return guess, float(np.mean(inside)) if inside else float("nan")

    guide = Guide(sweep, trials=count, facts_of=facts_of)
    have: dict[str, Record] = {}
    while wanted := [one for one in guide.next(list(have.values())) if one in records]:
        have |= {one: records[one] for one in wanted}
    judged("what tells most", *told(guide, have))
    for seed in range(seeds):
        drawn = np.random.default_rng(seed).permutation(sorted(trials))[:count]
        judged(f"chance, seed {seed}", *told(guide, {str(one): records[str(one)] for one in drawn}))
    bests = [min((one for one in own if one in truth), key=truth.__getitem__) for own in groups.values()]
    most = Counter(trials[one].compiler for one in bests).most_common(1)[0][0]
    judged(
        f"always {most}", {one: 0.0 if trial.compiler == most else 1.0 for one, trial in trials.items()}, float("nan")
    )


if __name__ == "__main__":
    main()
