"""Measures the choices of cost models for networks that no rule was tuned on, on every runtime of this machine.

Run it on a quiet machine, after `labels.py`; it resumes after any interruption, and measures a network again that lacks
a cost model or a tool. Other tools (the extra `simplifiers`) are rows of the same table; one that is not installed is a
row without a number. It writes notebooks/data/portability.nc, and prints its summary.

The cheapest candidates of all cost models, the models of other tools and the original are interleaved in one run. The
guard chooses by every other round, and all speed-ups are from the remaining rounds: otherwise the luckiest of many
candidates would seem faster than it is.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import operator_sum  # a kind of model
import xarray as xr
from opposite_rules import ALL_RULES
from studies.portability import MEASURED, summarise

from ngbkit import options, predict
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import nodes
from ngbkit.errors import NgbkitError
from ngbkit.predict.optimizer import Beam, costs, proof, variants
from ngbkit.predict.optimizer.beam_search import Candidate, format_steps, search, select_cheaper
from ngbkit.predict.optimizer.costs import Cost
from ngbkit.predict.optimizer.editing import load_model, open_model
from ngbkit.predict.optimizer.optimise import TOP, choose, simplify_all
from ngbkit.predict.optimizer.rules.rule_selection import select
from ngbkit.predict.optimizer.saving import save_model
from ngbkit.predict.optimizer.simplifiers import Simplifier, resolve
from ngbkit.predict.optimizer.variants import Outcome
from ngbkit.sweep.variables import NO_ROUND

DATA = Path(__file__).parents[2] / "notebooks" / "data"
#: None is among the labels: these are other families, or larger siblings.
#: How much of a gain the guard keeps is only seen where there is one: the last line has more networks whose authors sum
#: parallel branches into one convolution.
NETWORKS = (
    *("repvgg_a1", "mobileone_s1", 'resnext50_32x4d{"img_size":160}', 'res2net50_26w_4s{"img_size":128}'),
    *("mobilenetv4_conv_small", "ghostnetv2_100", 'densenet121{"img_size":128}', "convnextv2_atto", "visformer_tiny"),
    *("fastvit_t8", "regnety_008", "mobilenetv3_large_100", 'inception_v3{"img_size":160}', "tiny_vit_5m_224"),
    *("mobileone_s2", "repvgg_b0", "repghostnet_100", "repvit_m1"),
)
RUNTIMES = ("onnxruntime", "openvino")
KINDS = {"sum of operators": operator_sum.OperatorSum.kind, "graph network": "gnn"}
#: The number of tries ends a search: a limit of time would be shorter for the cost model that finds its caches cold.
BEAM = Beam(width=6, seconds=120.0, tries=80)
_FIRST = {"speedup": "speedup", "low": "low", "high": "high"}
_GUARDED = {"guarded": "speedup", "guarded_low": "low", "guarded_high": "high"}
_CONDITIONS = ("contended", "steal_percent")
_SAME = Outcome(speedup=1.0, low=1.0, high=1.0)
_WRONG = Outcome(problem="wrong result")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/portability"), help="folder of its progress")
    parser.add_argument("--repeats", type=int, default=40, help="samples per candidate (default: 40)")
    parser.add_argument("--minutes", type=float, default=120.0, help="time budget for new networks (default: 120)")
    parser.add_argument("--networks", nargs="+", help="measure these only (default: all)")
    parser.add_argument("--out", type=Path, default=DATA / "portability.nc", help="file of the combined results")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + 60 * args.minutes
    costs_by_name = load_costs(args.folder)
    tools = resolve(["all"])
    labels = {*costs_by_name, *map(MEASURED.format, RUNTIMES), *(tool.name for tool in tools)}
    for network in args.networks or NETWORKS:
        file = build_path(args.folder, network)
        if not is_complete(file, labels):
            settings = {"repeats": args.repeats, "min_rounds": args.repeats, "max_seconds": 60.0}
            try:
                data = study(network, costs_by_name, tools, settings)
            except NgbkitError as error:
                print(f"{network}: left out, {error}", flush=True)
                continue
            storage.save(data, file, overwrite=True)
        print(f"{network}: {file}", flush=True)
        if time.monotonic() > deadline:
            break
    files = [build_path(args.folder, network) for network in dict.fromkeys((*NETWORKS, *(args.networks or ())))]
    parts = [node for file in files if is_complete(file, labels) for node in nodes(storage.load(file)).values()]
    if not parts:
        print("no network has a result")
        return
    combined = xr.concat(parts, dim="network", combine_attrs="override", join="exact")
    storage.save(combined, args.out, overwrite=True)
    print(summarise(combined).round(3).to_string())


def is_complete(file: Path, labels: set[str]) -> bool:
    """Return whether a file has a result of every cost model and every tool; older files lack tools added later."""
    return file.exists() and labels == set(np.ravel(storage.load(file)["cost"]).tolist())


def build_path(folder: Path, network: str) -> Path:
    """Return the file of the measurements of a network."""
    return folder / f"{network.partition('{')[0]}.nc"


def load_costs(folder: Path) -> dict[str, Cost]:
    """Load the cost models, each fitted once to the labels."""
    costs_by_name: dict[str, Cost] = {"operations": costs.operations}
    for title, kind in KINDS.items():
        file = folder / f"{kind}.safetensors"
        if not file.exists():
            predict.fit(predict.load_examples(DATA / "labels.nc"), kind).save(file)
        fitted = predict.load(file)
        costs_by_name |= {f"{title}, {runtime}": costs.predicted(fitted, runtime) for runtime in RUNTIMES}
    return costs_by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """The outcomes of models on a runtime, by digest or tool, in the rounds to choose by and in the others."""

    chosen_by: Mapping[str, Outcome]
    judged_by: Mapping[str, Outcome]

    def find_fastest(self, keys: Sequence[str]) -> str | None:
        """Return the fastest of the significantly faster models; None if the original is kept."""
        measured = [key for key in keys if key in self.chosen_by]
        index = choose([self.chosen_by[key] for key in measured])
        return None if index is None else measured[index]

    def judge(self, key: str | None) -> Outcome:
        """Return the outcome in the remaining rounds; None is the original."""
        return _SAME if key is None else self.judged_by.get(key, _WRONG)


def study(
    network: str, costs_by_name: Mapping[str, Cost], tools: Sequence[Simplifier], settings: Mapping[str, Any]
) -> xr.Dataset:
    """Optimise a network by every cost model and every tool, and measure the results on every runtime.

    The dims are ``network, cost, compiler``. For a cost model's first choice: ``speedup`` over the original, with
    ``low`` and ``high``, the ends of its 95 % interval (1 for the original, NaN without a result), and ``steps``, its
    rules. For the guarded choice, the best of its first candidates by measurement on that runtime, or the original
    unless one is significantly faster: ``guarded``, ``guarded_low`` and ``guarded_high``. One more cost model per
    runtime is measurement itself, for which both choices are the same. Each tool has a label too: ``speedup`` is its
    model's, ``guarded`` is its model's where it is significantly faster and else the original's, and ``problem`` is the
    reason why it has no model. Along ``network`` are the means of ``contended`` and ``steal_percent`` of its trials.
    """
    workload, device = variants.parse_network(network, RUNTIMES), options.get_device()
    with TemporaryDirectory(prefix="ngbkit-portability-") as scratch:
        folder = Path(scratch)
        start = variants.export(workload, 1, folder)
        model, rules = open_model(load_model(start)), select(ALL_RULES.values())
        candidates = {
            name: select_cheaper(search(model, cost, rules, BEAM), TOP)[1] for name, cost in costs_by_name.items()
        }
        simplified = {other.name: other for other in simplify_all(tools, start, folder)}
        files = _save_proved(chain.from_iterable(candidates.values()), start, folder)
        files |= {name: other.file for name, other in simplified.items() if other.file is not None}
        results = dict.fromkeys(RUNTIMES, Results(chosen_by={}, judged_by={}))
        conditions: dict[str, float] = {}
        if files:
            paths = list(files.values())
            data = variants.measure(
                workload.name, start, paths, RUNTIMES, batch_size=1, device=device, settings=settings
            )
            halves = split_rounds(data)
            for compiler in RUNTIMES:
                chosen_by, judged_by = (
                    dict(zip(files, variants.compute_outcomes(half, compiler, paths), strict=True)) for half in halves
                )
                results[compiler] = Results(chosen_by=chosen_by, judged_by=judged_by)
            conditions = {name: float(data[name].mean()) for name in _CONDITIONS if name in data}
    names = [*candidates, *map(MEASURED.format, RUNTIMES), *(tool.name for tool in tools)]
    numbers = {name: np.full((1, len(names), len(RUNTIMES)), np.nan) for name in (*_FIRST, *_GUARDED)}
    steps, problems = (np.full((1, len(names)), "", dtype=object) for _ in range(2))
    pool = list(chain.from_iterable(candidates.values()))
    steps_by_digest = {candidate.graph.digest: format_steps(candidate.steps, "+") for candidate in pool}
    for column, name in enumerate(names):
        for runtime, compiler in enumerate(RUNTIMES):
            if name in simplified:
                first: str | None = name
                guarded = results[compiler].find_fastest([name])
            elif name in candidates:
                preferred = _list_digests(candidates[name])
                first, guarded = (preferred[0] if preferred else None), results[compiler].find_fastest(preferred)
            else:
                target = RUNTIMES[column - len(candidates)]
                first = guarded = results[target].find_fastest(_list_digests(pool))
            for fields, choice in ((_FIRST, first), (_GUARDED, guarded)):
                outcome = results[compiler].judge(choice)
                for label, field in fields.items():
                    numbers[label][0, column, runtime] = getattr(outcome, field)
        steps[0, column] = steps_by_digest.get(first or "", "")
        problems[0, column] = simplified[name].problem if name in simplified else ""
    dims = ("network", "cost", "compiler")
    variables: dict[str, Any] = {name: (dims, values) for name, values in numbers.items()}
    variables |= {name: (dims[:1], [conditions.get(name, np.nan)]) for name in _CONDITIONS}
    variables |= {"steps": (dims[:2], steps), "problem": (dims[:2], problems)}
    labels = {"network": [workload.name], "cost": names, "compiler": list(RUNTIMES)}
    return xr.Dataset(variables, labels, {"batch_size": 1, "device": device})


def split_rounds(data: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Split the dataset of `measure` into its even and its odd rounds: one to choose by, the other to judge by."""
    even = data["round"] % 2 == 0
    return _select_rounds(data, even), _select_rounds(data, ~even)


def _select_rounds(data: xr.Dataset, rounds: xr.DataArray) -> xr.Dataset:
    """Return the dataset with the samples of these rounds; all others become missing."""
    selected = rounds & (data["round"] >= 0)
    data_ = data.assign(
        latency=data["latency"].where(selected).assign_attrs(data["latency"].attrs),
        round=data["round"].where(selected, NO_ROUND).assign_attrs(data["round"].attrs),
    )
    return data_.drop_vars("throughput", errors="ignore")


def _list_digests(candidates: Iterable[Candidate]) -> list[str]:
    return [candidate.graph.digest for candidate in candidates]


def _save_proved(candidates: Iterable[Candidate], start: Path, folder: Path) -> dict[str, Path]:
    """Save each proved candidate, and return the files by the digests of their graphs."""
    files: dict[str, Path] = {}
    for candidate in candidates:
        if candidate.graph.digest not in files:
            file = save_model(candidate.model, folder / f"{candidate.graph.digest}.onnx")
            if proof.measure_error(start, file) <= proof.LIMIT:
                files[candidate.graph.digest] = file
    return files


if __name__ == "__main__":
    main()
