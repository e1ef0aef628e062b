"""Whether cost models are portable: what one of them makes of networks is run on every runtime, its own and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx_ir as ir
import pandas as pd
import xarray as xr

from ngbkit import options
from ngbkit.optimizer import proof, variants
from ngbkit.optimizer.editing import open_model
from ngbkit.optimizer.optimise import TOP, choose, save
from ngbkit.optimizer.rules import RULES, Rule
from ngbkit.optimizer.search import USUAL, Beam, Candidate, Cost, search
from ngbkit.optimizer.variants import Outcome
from ngbkit.workloads.base import Workload

MEASURED = "measured on {}"
"""What the cost model is called that is measurement itself: of all candidates of all cost models the fastest on a
runtime, or the network as it came."""

NOISE = 0.02
"""A speed-up within this of 1 is neither a gain nor a regression."""


def study(
    networks: Iterable[Any],
    costs: Mapping[str, Cost],
    compilers: Sequence[str],
    *,
    batch_size: int = 1,
    device: str | None = None,
    rules: Iterable[Rule] = tuple(RULES.values()),
    beam: Beam = USUAL,
    top: int = TOP,
    told: Callable[[str], None] | None = None,
    **how: Any,
) -> xr.Dataset:
    """Optimise every network by every cost model, and run what comes out on every runtime.

    The cheapest candidates of all cost models, and the network itself, take turns in one run. What measurement chooses,
    it chooses by every other round, and all speed-ups are of the rounds between these: the luckiest of many would else
    look faster than it is.

    Parameters
    ----------
    networks
        Each as for `ngbkit.optimizer.optimize`.
    costs
        Cost models by name.
    compilers
        Runtimes that read ONNX.
    batch_size, device, rules, beam, top, told, **how
        As for `ngbkit.optimizer.optimize`.

    Returns
    -------
    xarray.Dataset
        Dims ``network, cost, compiler``. Of a cost model's first choice: ``speedup`` over the network as it came, with
        ``low`` and ``high``, the ends of its 95 % interval (1 where the network is left as it is, NaN where nothing
        ran), and ``steps``, the rules that it applies. Of what is kept where its first `top` are measured on that
        runtime, and the original stays unless one of them is surely faster: ``guarded``, ``guarded_low`` and
        ``guarded_high``. Beside the cost models stands one for each runtime that is measurement itself; for it both
        are the same.

    Raises
    ------
    UsageError, UnsupportedError
        As for `ngbkit.optimizer.optimize`.
    """
    asked, where = [variants.single(one, compilers) for one in networks], device or options.device()
    names = [*costs, *(MEASURED.format(one) for one in compilers)]
    numbers = {name: np.full((len(asked), len(names), len(compilers)), np.nan) for name in (*_FIRST, *_GUARDED)}
    steps = np.full((len(asked), len(names)), "", dtype=object)
    for at, workload in enumerate(asked):
        if told is not None:
            told(f"{workload.name}, {at + 1} of {len(asked)}")
        found, ran = _of_one(workload, costs, compilers, batch_size, where, list(rules), beam, top, how)
        pool = [one for several in found.values() for one in several]
        for number, name in enumerate(names):
            for on, compiler in enumerate(compilers):
                if name in found:
                    own = found[name]
                    first, kept = (own[0] if own else None), ran[compiler].fastest(own)
                else:
                    first = kept = ran[compilers[number - len(costs)]].fastest(pool)
                _put(numbers, _FIRST, (at, number, on), ran[compiler].judged(first))
                _put(numbers, _GUARDED, (at, number, on), ran[compiler].judged(kept))
            steps[at, number] = "+".join(name for name, _ in first.steps) if first is not None else ""
    dims = ("network", "cost", "compiler")
    labels = {"network": [one.name for one in asked], "cost": names, "compiler": list(compilers)}
    variables = {name: (dims, values) for name, values in numbers.items()}
    return xr.Dataset({**variables, "steps": (dims[:2], steps)}, labels, {"batch_size": batch_size, "device": where})


def summary(found: xr.Dataset) -> pd.DataFrame:
    """The matrix of a study: how well each cost model does on each runtime, without measuring and with a guard.

    Returns
    -------
    pandas.DataFrame
        A row a cost model and a runtime: ``networks``; ``speedup``, the geometric mean; ``regressions``, the share of
        networks that became slower, surely and by more than `NOISE`; ``worst``; ``regret``, the share by which it
        stays behind the best that was measured on that runtime, in the mean; and ``gain``, its share of the gain of
        that best, in logarithms. Then the same of what is kept where candidates are measured: ``guarded_speedup``,
        ``guarded_regressions``, ``guarded_worst``, ``guarded_regret``, ``guarded_gain``.
    """
    rows = []
    for compiler in found["compiler"].values.tolist():
        best = found["speedup"].sel(compiler=compiler, cost=MEASURED.format(compiler)).values
        for cost in found["cost"].values.tolist():
            own = found.sel(compiler=compiler, cost=cost)
            first = _summed(own["speedup"].values, own["high"].values, best)
            kept = _summed(own["guarded"].values, own["guarded_high"].values, best)
            networks = int(np.isfinite(own["speedup"].values).sum())
            guarded = {f"guarded_{name}": value for name, value in kept.items()}
            rows.append({"cost": cost, "compiler": compiler, "networks": networks, **first, **guarded})
    return pd.DataFrame(rows).set_index(["cost", "compiler"])


def _summed(values: np.ndarray, high: np.ndarray, best: np.ndarray) -> dict[str, float]:
    there = np.isfinite(values)
    if not there.any():
        return dict.fromkeys(("speedup", "regressions", "worst", "regret", "gain"), np.nan)
    values, high, best = values[there], high[there], best[there]
    whole = float(np.log(best).sum())
    return {
        "speedup": float(np.exp(np.log(values).mean())),
        "regressions": float(np.mean((high < 1) & (values < 1 - NOISE))),
        "worst": float(values.min()),
        "regret": float(np.mean(1 - values / best)),
        "gain": float(np.log(values).sum()) / whole if whole > 0 else np.nan,
    }


_FIRST = {"speedup": "speedup", "low": "low", "high": "high"}
_GUARDED = {"guarded": "speedup", "guarded_low": "low", "guarded_high": "high"}
_SAME = Outcome(speedup=1.0, low=1.0, high=1.0)
_WRONG = Outcome(problem="it computes something else")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ran:
    """What candidates took on a runtime, by the digests of their graphs: in rounds to choose by, and in the others."""

    chosen_by: Mapping[str, Outcome]
    judged_by: Mapping[str, Outcome]

    def fastest(self, several: Sequence[Candidate]) -> Candidate | None:
        """The surely fastest; None where that is the network as it came."""
        there = [one for one in several if one.graph.digest in self.chosen_by]
        at = choose([self.chosen_by[one.graph.digest] for one in there], guard=True)
        return None if at is None else there[at]

    def judged(self, one: Candidate | None) -> Outcome:
        """What it really takes; None is the network as it came."""
        return _SAME if one is None else self.judged_by.get(one.graph.digest, _WRONG)


def _of_one(
    workload: Workload,
    costs: Mapping[str, Cost],
    compilers: Sequence[str],
    batch_size: int,
    device: str,
    rules: Sequence[Rule],
    beam: Beam,
    top: int,
    how: Mapping[str, Any],
) -> tuple[dict[str, list[Candidate]], dict[str, _Ran]]:
    """What each cost model prefers to a network as it came, and what all of that takes on each runtime."""
    with TemporaryDirectory(prefix="ngbkit-portability-") as place:
        folder = Path(place)
        start = variants.write(workload, batch_size, folder)
        model = open_model(ir.load(start))
        found = {name: _better(search(model, cost, rules, beam), top) for name, cost in costs.items()}
        files = _sound([one for several in found.values() for one in several], start, folder)
        if not files:
            return found, dict.fromkeys(compilers, _Ran(chosen_by={}, judged_by={}))
        paths = list(files.values())
        data = variants.measure(workload.name, start, paths, compilers, batch_size=batch_size, device=device, how=how)
        halves = variants.halves(data)
        tables = {
            compiler: [dict(zip(files, variants.outcomes(half, compiler, paths), strict=True)) for half in halves]
            for compiler in compilers
        }
    return found, {compiler: _Ran(chosen_by=some, judged_by=rest) for compiler, (some, rest) in tables.items()}


def _better(candidates: Sequence[Candidate], top: int) -> list[Candidate]:
    """The cheapest that are cheaper than the network as it came."""
    original = next(one for one in candidates if not one.steps)
    return [one for one in candidates if one.steps and one.cost < original.cost][:top]


def _sound(chosen: Iterable[Candidate], start: Path, folder: Path) -> dict[str, Path]:
    """By the digest of its graph, the file of each candidate that computes what the network does."""
    found: dict[str, Path] = {}
    for one in chosen:
        if one.graph.digest not in found:
            file = save(one, folder / f"{one.graph.digest}.onnx")
            if proof.error(start, file) <= proof.LIMIT:
                found[one.graph.digest] = file
    return found


def _put(numbers: Mapping[str, np.ndarray], names: Mapping[str, str], at: tuple[int, ...], outcome: Outcome) -> None:
    for name, of in names.items():
        numbers[name][at] = getattr(outcome, of)
