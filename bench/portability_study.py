"""Studies whether cost models are portable: the choices of each are run on every runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xarray as xr
from opposite_rules import ALL_RULES
from studies.portability import MEASURED

from ngbkit import options
from ngbkit.optimizer import proof, variants
from ngbkit.optimizer.editing import load_model, open_model
from ngbkit.optimizer.optimise import TOP, choose
from ngbkit.optimizer.rules import Rule
from ngbkit.optimizer.rules.rule_selection import select
from ngbkit.optimizer.saving import save_model
from ngbkit.optimizer.search import USUAL, Beam, Candidate, Cost, format_steps, search, select_cheaper
from ngbkit.optimizer.simplifiers import Simplifier, resolve
from ngbkit.optimizer.simplifiers.proved import Simplification, simplify_all
from ngbkit.optimizer.variants import Outcome
from ngbkit.sweep.variables import NO_ROUND
from ngbkit.workloads.base import Workload


def study(
    networks: Iterable[Any],
    costs: Mapping[str, Cost],
    compilers: Sequence[str],
    *,
    batch_size: int = 1,
    device: str | None = None,
    rules: Iterable[Any] = tuple(ALL_RULES.values()),
    beam: Beam = USUAL,
    top: int = TOP,
    simplifiers: Iterable[str] = (),
    report: Callable[[str], None] | None = None,
    **sweep_settings: Any,
) -> xr.Dataset:
    """Optimise every network by every cost model, and measure the results on every runtime.

    The cheapest candidates of all cost models, the models of other tools and the original are interleaved in one run.
    The guard chooses by every other round, and all speed-ups are from the remaining rounds: otherwise the luckiest of
    many candidates would seem faster than it is.

    Parameters
    ----------
    networks
        Each as for `ngbkit.optimizer.optimize`.
    costs
        Cost models by name.
    compilers
        Runtimes that read ONNX.
    batch_size, device, rules, beam, top, simplifiers, **sweep_settings
        As for `ngbkit.optimizer.optimize`.
    report
        Called with a message on progress.

    Returns
    -------
    xarray.Dataset
        Dims ``network, cost, compiler``. For a cost model's first choice: ``speedup`` over the original, with ``low``
        and ``high``, the ends of its 95 % interval (1 for the original, NaN without a result), and ``steps``, its
        rules. For the guarded choice, the best of its first `top` candidates by measurement on that runtime, or the
        original unless one is significantly faster: ``guarded``, ``guarded_low`` and ``guarded_high``. One more cost
        model per runtime is measurement itself, for which both choices are the same. Each of the `simplifiers` has a
        label too: ``speedup`` is its model's, ``guarded`` is its model's where it is significantly faster and else the
        original's, and ``problem`` is the reason why it has no model. Along ``network`` are the means of
        ``contended`` and ``steal_percent`` of its trials, as in the dataset of a run.

    Raises
    ------
    UsageError, UnsupportedError
        As for `ngbkit.optimizer.optimize`.
    """
    workloads = [variants.parse_network(network, compilers) for network in networks]
    device, tools, selected = device or options.get_device(), resolve(simplifiers), select(rules)
    names = [*costs, *(MEASURED.format(compiler) for compiler in compilers), *(tool.name for tool in tools)]
    numbers = {name: np.full((len(workloads), len(names), len(compilers)), np.nan) for name in (*_FIRST, *_GUARDED)}
    steps, problems = (np.full((len(workloads), len(names)), "", dtype=object) for _ in range(2))
    conditions = {name: np.full(len(workloads), np.nan) for name in _CONDITIONS}
    for row, workload in enumerate(workloads):
        if report is not None:
            report(f"{workload.name}, {row + 1} of {len(workloads)}")
        study_ = _study_network(
            workload, costs, compilers, batch_size, device, selected, beam, top, tools, sweep_settings
        )
        for name, value in study_.conditions.items():
            conditions[name][row] = value
        results = study_.results
        pool = list(chain.from_iterable(study_.candidates.values()))
        for column, name in enumerate(names):
            for runtime, compiler in enumerate(compilers):
                if name in study_.simplified:
                    first: str | None = name
                    guarded = results[compiler].find_fastest([name])
                elif name in study_.candidates:
                    preferred = _list_digests(study_.candidates[name])
                    first, guarded = (preferred[0] if preferred else None), results[compiler].find_fastest(preferred)
                else:
                    target = compilers[column - len(costs)]
                    first = guarded = results[target].find_fastest(_list_digests(pool))
                _store(numbers, _FIRST, (row, column, runtime), results[compiler].judge(first))
                _store(numbers, _GUARDED, (row, column, runtime), results[compiler].judge(guarded))
            steps[row, column] = study_.steps.get(first or "", "")
            problems[row, column] = study_.simplified[name].problem if name in study_.simplified else ""
    dims = ("network", "cost", "compiler")
    labels = {"network": [workload.name for workload in workloads], "cost": names, "compiler": list(compilers)}
    variables = {name: (dims, values) for name, values in numbers.items()}
    disturbances = {name: (dims[:1], values) for name, values in conditions.items()}
    texts = {"steps": (dims[:2], steps), "problem": (dims[:2], problems)}
    return xr.Dataset({**variables, **texts, **disturbances}, labels, {"batch_size": batch_size, "device": device})


_FIRST = {"speedup": "speedup", "low": "low", "high": "high"}
_GUARDED = {"guarded": "speedup", "guarded_low": "low", "guarded_high": "high"}
_CONDITIONS = ("contended", "steal_percent")
_SAME = Outcome(speedup=1.0, low=1.0, high=1.0)
_WRONG = Outcome(problem="wrong result")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Results:
    """The outcomes of models on a runtime, by the digests of their graphs or the names of the tools that made them, in
    the rounds to choose by and in the others.
    """

    chosen_by: Mapping[str, Outcome]
    judged_by: Mapping[str, Outcome]

    def find_fastest(self, keys: Sequence[str]) -> str | None:
        """Return the fastest of the significantly faster models; None if the original is kept."""
        measured = [key for key in keys if key in self.chosen_by]
        index = choose([self.chosen_by[key] for key in measured], guard=True)
        return None if index is None else measured[index]

    def judge(self, key: str | None) -> Outcome:
        """Return the outcome in the remaining rounds; None is the original."""
        return _SAME if key is None else self.judged_by.get(key, _WRONG)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Study:
    """The candidates of each cost model, the models of other tools by name, the results on each runtime, and what
    contended these.
    """

    candidates: Mapping[str, Sequence[Candidate]]
    simplified: Mapping[str, Simplification]
    results: Mapping[str, _Results]
    conditions: Mapping[str, float]

    @property
    def steps(self) -> dict[str, str]:
        """The rules of each candidate, by its digest."""
        return {
            candidate.graph.digest: format_steps(candidate.steps, "+")
            for candidate in chain.from_iterable(self.candidates.values())
        }


def _study_network(
    workload: Workload,
    costs: Mapping[str, Cost],
    compilers: Sequence[str],
    batch_size: int,
    device: str,
    rules: Sequence[Rule],
    beam: Beam,
    top: int,
    tools: Sequence[Simplifier],
    sweep_settings: Mapping[str, Any],
) -> _Study:
    """Optimise a network by each cost model and each tool, and measure all results on each runtime."""
    with TemporaryDirectory(prefix="ngbkit-portability-") as scratch:
        folder = Path(scratch)
        start = variants.export(workload, batch_size, folder)
        model = open_model(load_model(start))
        candidates = {name: select_cheaper(search(model, cost, rules, beam), top)[1] for name, cost in costs.items()}
        simplified = {other.name: other for other in simplify_all(tools, start, folder)}
        files = _save_proved(chain.from_iterable(candidates.values()), start, folder)
        files |= {name: other.file for name, other in simplified.items() if other.file is not None}
        if not files:
            empty = dict.fromkeys(compilers, _Results(chosen_by={}, judged_by={}))
            return _Study(candidates=candidates, simplified=simplified, results=empty, conditions={})
        paths = list(files.values())
        data = variants.measure(
            workload.name, start, paths, compilers, batch_size=batch_size, device=device, settings=sweep_settings
        )
        halves = split_rounds(data)
        tables = {
            compiler: [
                dict(zip(files, variants.compute_outcomes(half, compiler, paths), strict=True)) for half in halves
            ]
            for compiler in compilers
        }
    results = {
        compiler: _Results(chosen_by=choice, judged_by=judgement) for compiler, (choice, judgement) in tables.items()
    }
    conditions = compute_conditions(data)
    return _Study(candidates=candidates, simplified=simplified, results=results, conditions=conditions)


def compute_conditions(data: xr.Dataset) -> dict[str, float]:
    """Return what disturbed the trials of a dataset, in the mean; nothing where the device reports nothing."""
    means = {name: float(data[name].mean()) for name in _CONDITIONS if name in data}
    return {name: value for name, value in means.items() if np.isfinite(value)}


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


def _store(
    numbers: Mapping[str, np.ndarray], names: Mapping[str, str], index: tuple[int, ...], outcome: Outcome
) -> None:
    for name, field in names.items():
        numbers[name][index] = getattr(outcome, field)
