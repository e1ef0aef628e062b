"""Replays stored sweeps to measure how often a tenth of the trials reveals the best compiler of each group.

Nothing is measured: the trials that the guide of a run chooses are taken from the stored sweep, and its predictions are
compared with the others. Two references are the same number of random trials, and the one compiler that is best most
often in the whole sweep, which is unknown beforehand.

The number of trials chosen at once and the factor of the intervals were tuned on blocks.nc, whose figures are better
for it. Nothing was tuned on the sweep of the paper's networks and blocks:

    python tests/bench/budget.py notebooks/data/paper.nc --together
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.api import Sweep
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import factor_dims, facts_key, nodes
from ngbkit.predict.forecast import Guide
from ngbkit.predict.forecast.imputation import Key, build_key
from ngbkit.sweep.records import Contract, Failure, Measurement, Record

DATA = Path(__file__).parents[2] / "notebooks" / "data"
STORED = (DATA / "blocks.nc",)
#: A regret below this is within the noise of a run.
TOLERANCE = 0.02

Group = tuple[Any, ...]
Stored = tuple[Sweep, dict[str, Any], dict[str, Record]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, default=list(STORED), metavar="FILE")
    parser.add_argument("--share", type=float, default=0.1, help="share of the trials that are measured (default: 0.1)")
    parser.add_argument("--seeds", type=int, default=3, help="number of random selections (default: 3)")
    parser.add_argument("--together", action="store_true", help="replay the sweeps of a file as one sweep")
    args = parser.parse_args()
    print("sweep          trials measured chosen by               right within 2 %  regret covered  error")
    for file in args.files:
        sweeps = load_sweeps(file)
        for stored in [merge_sweeps(sweeps)] if args.together else sweeps:
            replay(file.stem, *stored, args.share, args.seeds)


def load_sweeps(file: Path) -> list[Stored]:
    """Load the sweeps of a file, each with the facts of its networks and the record of each trial."""
    data = storage.load(file)
    facts = json.loads(data.attrs["facts"])
    sweeps = []
    for spec in json.loads(data.attrs.get("sweeps") or f"[{data.attrs['sweep']}]"):
        sweep = Sweep.from_json(spec, locate=Path)
        samples_by_key: dict[Any, tuple[np.ndarray, str]] = {}
        for node in nodes(data).values():
            samples_by_key |= read_node(node)
        records = {
            trial.id: build_record(trial.id, *samples_by_key[build_key(trial)])
            for trial in sweep.trials()
            if build_key(trial) in samples_by_key
        }
        sweeps.append((sweep, facts, records))
    return sweeps


def merge_sweeps(sweeps: list[Stored]) -> Stored:
    """Merge sweeps into one; trials without a record do not count, nor do other networks of the same name."""
    sizes = sorted({size for sweep, _, _ in sweeps for size in sweep.batch_sizes})
    compilers = list(dict.fromkeys(compiler for sweep, _, _ in sweeps for compiler in sweep.compilers))
    workloads: dict[str, Any] = {}
    facts: dict[str, Any] = {}
    records: dict[str, Record] = {}
    for sweep, sweep_facts, sweep_records in reversed(sweeps):
        workloads |= {workload.name: workload for workload in sweep.workloads}
        facts |= sweep_facts
        records |= sweep_records
    return Sweep(list(workloads.values()), compilers, sizes), facts, records


def read_node(node: Any) -> dict[Key, tuple[np.ndarray, str]]:
    """Return the samples and the status of each trial of a node."""
    factors, status = factor_dims(node), node["status"]
    latency = node["latency"].transpose(*status.dims, "repeat").values
    samples_by_key = {}
    labels = {dim: status[dim].values.tolist() for dim in status.dims}
    for position in np.ndindex(*status.shape):
        coords = {dim: labels[dim][index] for dim, index in zip(labels, position, strict=True)}
        factor_values = tuple(sorted((name, coords[name]) for name in factors))
        key = (coords["workload"], factor_values, coords["device"], coords["compiler"], coords["batch_size"])
        if status.values[position]:
            samples = latency[position]
            samples_by_key[key] = (samples[np.isfinite(samples)], str(status.values[position]))
    return samples_by_key


def build_record(trial_id: str, samples: np.ndarray, status: str) -> Record:
    """Build the record that a run would have received."""
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
    """Print the scores of each way to choose the trials."""
    medians = {
        trial_id: float(np.median(record.latency_s))
        for trial_id, record in records.items()
        if isinstance(record, Measurement)
    }
    trials = {trial.id: trial for trial in sweep.trials() if trial.id in records}
    members: dict[Group, list[str]] = {}
    for trial_id in filter(medians.__contains__, trials):
        trial = trials[trial_id]
        members.setdefault((trial.workload, trial.factors, trial.device, trial.batch_size), []).append(trial_id)
    groups = [group for group in members.values() if len(group) > 1]
    count = round(share * len(trials))

    def facts_of(trial: Any) -> Any:
        return facts.get(facts_key(trial.workload, dict(trial.factors)), {})

    def compute_regret(group: list[str], estimates: dict[str, float]) -> float:
        """Return how much slower than the best the chosen compiler of a group is; infinity if none is chosen."""
        choice = min(filter(estimates.__contains__, group), key=estimates.__getitem__, default="")
        return medians.get(choice, np.inf) / min(medians[trial_id] for trial_id in group) - 1

    def print_scores(method: str, estimates: dict[str, float], coverage: float = np.nan, error: float = np.nan) -> None:
        regrets = np.array([compute_regret(group, estimates) for group in groups])
        regret = float(np.mean(np.minimum(regrets, 10.0)))
        shares = f"{np.mean(regrets == 0):>6.1%} {np.mean(regrets <= TOLERANCE):>10.1%} {regret:>7.1%}"
        print(
            f"{name:<14} {len(trials):>6} {count:>8} {method:<22} {shares} {coverage:>7.1%} {error:>6.1%}", flush=True
        )

    def estimate_latencies(recorded: dict[str, Record]) -> tuple[dict[str, float], float, float]:
        predicted = guide.predictions(list(recorded.values()))
        rest = {trial_id: build_key(trial) for trial_id, trial in trials.items() if trial_id not in recorded}
        guesses = {trial_id: predicted[key] for trial_id, key in rest.items() if key in predicted}
        estimates = {trial_id: medians[trial_id] for trial_id in recorded if trial_id in medians}
        estimates |= {trial_id: latency for trial_id, (latency, _, _) in guesses.items()}
        judged = [(medians[trial_id], *guess) for trial_id, guess in guesses.items() if trial_id in medians]
        truth, latency, low, high = np.array(judged).reshape(-1, 4).T
        coverage = float(np.mean((low <= truth) & (truth <= high))) if judged else np.nan
        return estimates, coverage, float(np.median(abs(latency / truth - 1))) if judged else np.nan

    guide = Guide(sweep, trials=count, facts_of=facts_of)
    recorded: dict[str, Record] = {}
    while chosen := [trial_id for trial_id in guide.next(list(recorded.values())) if trial_id in records]:
        recorded |= {trial_id: records[trial_id] for trial_id in chosen}
    print_scores("most informative", *estimate_latencies(recorded))
    for seed in range(seeds):
        sampled = np.random.default_rng(seed).permutation(sorted(trials))[:count].tolist()
        recorded = {trial_id: records[trial_id] for trial_id in sampled}
        print_scores(f"random, seed {seed}", *estimate_latencies(recorded))
    winners = [min(group, key=medians.__getitem__) for group in groups]
    favourite = Counter(trials[trial_id].compiler for trial_id in winners).most_common(1)[0][0]
    choice = {trial_id: float(trial.compiler != favourite) for trial_id, trial in trials.items()}
    print_scores(f"always {favourite}", choice)


if __name__ == "__main__":
    main()
