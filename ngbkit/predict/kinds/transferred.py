"""A model of a new device from few labels: a correction of another device, its prices made to fit, or prices anew.

Errors on labels that are left out, one after the other, choose among them: devices that are alike err alike, others
share at most what an operator costs beside another, and some share nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.adapted import Correction, describe, find_corrections
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Arrays, Floats, Model, Progress, ignore_progress
from ngbkit.predict.kinds.catalogue import find_kind
from ngbkit.predict.labels.example_set import Examples
from ngbkit.user_text import clean_line, format_share

if TYPE_CHECKING:
    from typing import Self

# The weight of the price of another device beside a label: one of 0.01 did worse between unlike devices.
_PRIOR = 0.003
# The share of a latency within which a price may differ at least: one that is 0 elsewhere is no reason to be 0 here.
_LEAST_SHARE = 0.002
# Another device has to be better than prices of its own by so many standard errors on labels that were left out: the
# least error of several approaches is smaller by chance, and suggested labels are harder to predict than the rest.
_ERRORS = 2.0
# Rounds of reweighting; errors below the second count quadratically, and no label counts less than the third.
_ITERATIONS, _SMALL, _LEAST_WEIGHT = 6, 0.03, 0.2
_BASE = "base."
OWN, PRICES, CORRECTION = "prices of its own", "prices near those of", "a correction of"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """A way to predict a new runtime: its method, and the index of the runtime that it starts from."""

    method: str
    source: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferChoice:
    """The approach to a new runtime, and the mean errors of the best of each method on labels that were left out."""

    runtime: str
    approach: str
    errors: dict[str, float]

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {format_share(error, '.1f')}" for name, error in self.errors.items())
        return f"{self.runtime}: {self.approach}; errors on labels that were left out are {listed}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Build what `to_json` returned; any exception about something else."""
        errors = {clean_line(name): float(error) for name, error in fields["errors"].items()}
        return cls(runtime=clean_line(fields["runtime"]), approach=clean_line(fields["approach"]), errors=errors)


class Transferred:
    """Prices of each new runtime, or the prediction of another model for another runtime with a correction."""

    kind: ClassVar[str] = "transferred"

    def __init__(self, base: Model, prices: Linear, corrections: Mapping[int, tuple[int, Correction]]) -> None:
        self._base, self._prices, self._corrections = base, prices, dict(corrections)

    @classmethod
    def build(cls, base: Model, prices: Linear, examples: Examples, approaches: Sequence[Approach]) -> Self:
        """Build the model of the runtimes of examples; `prices` are those of the runtimes of `base`."""
        rows, corrections = [], {}
        for column, approach in enumerate(approaches):
            labels = take_runtime(examples, column)
            rows.append(_find_prices(labels, prices.prices[approach.source], approach.method))
            if approach.method == CORRECTION:
                predicted = base.predict(labels.graphs)[:, [approach.source]]
                corrections[column] = approach.source, find_corrections(labels, predicted)[0]
        return cls(base, Linear.restore({}, {"prices": np.stack(rows)}), corrections)

    @property
    def prices(self) -> Linear:
        """The prices of the new runtimes, also of corrected ones."""
        return self._prices

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:  # noqa: ARG002  nothing is random
        """Fit prices of their own to all examples."""
        self._prices.fit(examples, seed=0, report=report)
        self._corrections = {}

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        seconds = self._prices.predict(graphs)
        for column, (source, correction) in self._corrections.items():
            seconds[:, column] = self._base.predict(graphs)[:, source] * np.exp(correction.predict(describe(graphs)))
        return seconds

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return those of the prices, scaled to the correction."""
        contributions = self._prices.compute_contributions(graph)
        return np.asarray(contributions * (self.predict([graph]) / self._prices.predict([graph])))

    def dump_settings(self) -> dict[str, Any]:
        base = {"base": self._base.kind, "settings": self._base.dump_settings()} if self._corrections else {}
        return {**base, "corrected": {str(column): source for column, (source, _) in self._corrections.items()}}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = dict(self._prices.dump_arrays())
        if self._corrections:
            arrays |= {f"{_BASE}{name}": array for name, array in self._base.dump_arrays().items()}
        for column, (_, correction) in self._corrections.items():
            arrays |= correction.dump_arrays(f"{column}.")
        return arrays

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        prices = Linear.restore({}, arrays)
        inner = {name.removeprefix(_BASE): array for name, array in arrays.items() if name.startswith(_BASE)}
        base = find_kind(settings["base"]).restore(settings["settings"], inner) if settings["corrected"] else prices
        corrections = {
            int(column): (int(source), Correction.restore(arrays, f"{column}."))
            for column, source in settings["corrected"].items()
        }
        return cls(base, prices, corrections)


def take_runtime(examples: Examples, column: int) -> Examples:
    """Return the examples with a label of one runtime, and this alone."""
    labelled = examples.take(np.flatnonzero(np.isfinite(examples.seconds[:, column])))
    return replace(
        labelled,
        runtimes=(examples.runtimes[column],),
        seconds=labelled.seconds[:, [column]],
        errors=None if labelled.errors is None else labelled.errors[:, [column]],
        operator_seconds=None,
    )


def choose_approach(
    base: Model, prices: Linear, examples: Examples, names: Sequence[str], report: Progress
) -> tuple[Approach, TransferChoice]:
    """Choose the approach to the only runtime of examples by leaving out each; `names` are those of the runtimes."""
    sources = [source for source in range(len(names)) if np.isfinite(prices.prices[source]).all()]
    approaches = [Approach(method=OWN, source=_find_nearest(prices, examples, sources))]
    approaches += [Approach(method=method, source=source) for method in (PRICES, CORRECTION) for source in sources]
    errors = {}
    for number, approach in enumerate(approaches):
        report(number / len(approaches), f"{approach.method} {names[approach.source]}")
        errors[approach] = _leave_out(base, prices, examples, approach)
    averages = {approach: float(each.mean()) for approach, each in errors.items()}
    fresh, *others = approaches
    other = min(others, key=lambda approach: averages[approach])
    difference = errors[fresh] - errors[other]
    noise = float(difference.std(ddof=1)) / np.sqrt(len(difference))
    best = other if difference.mean() > _ERRORS * noise else fresh
    texts = {each: each.method if each.method == OWN else f"{each.method} {names[each.source]}" for each in approaches}
    least: dict[str, float] = {}
    for method in (OWN, PRICES, CORRECTION):
        leader = min((each for each in approaches if each.method == method), key=lambda each: averages[each])
        least[texts[leader]] = averages[leader]
    runtime = "{1} on {0}".format(*examples.runtimes[0])
    return best, TransferChoice(runtime=runtime, approach=texts[best], errors=least)


def _leave_out(base: Model, prices: Linear, examples: Examples, approach: Approach) -> Floats:
    """Return the relative errors on each network of the only runtime, of models without it."""
    _, network = np.unique(np.array(examples.parents, dtype=str), return_inverse=True)
    errors = np.full(len(examples), np.nan)
    for left_out in range(int(network.max()) + 1):
        train, test = (np.flatnonzero((network == left_out) == is_test) for is_test in (False, True))
        model = Transferred.build(base, prices, examples.take(train), [approach])
        predicted = model.predict([examples.graphs[index] for index in test])[:, 0]
        errors[test] = np.abs(predicted / examples.seconds[test, 0] - 1)
    return errors


def _find_nearest(prices: Linear, examples: Examples, sources: Sequence[int]) -> int:
    """Return the runtime whose prices, times a factor, are nearest to the labels."""
    with np.errstate(divide="ignore"):
        logs = np.log(prices.predict(examples.graphs)[:, sources] / examples.seconds)
    return sources[int(np.argmin(np.abs(logs - np.median(logs, axis=0)).mean(axis=0)))]


def _find_prices(examples: Examples, source: Floats, method: str) -> Floats:
    """Return prices of the only runtime of examples: own ones, or near those of another runtime times a factor.

    An operator that no label has costs what it does there, times that factor.
    """
    amounts, seconds = Linear.build_columns(examples.graphs), examples.seconds[:, 0]
    elsewhere = np.maximum(amounts @ source, 1e-12)
    expected = source * float(np.exp(np.median(np.log(seconds / elsewhere))))
    present = amounts.max(axis=0) > 0
    if method == OWN:
        fresh = Linear()
        fresh.fit(examples, seed=0, report=ignore_progress)
        return np.where(present | (fresh.prices[0] > 0), fresh.prices[0], expected)
    from scipy.optimize import nnls

    share = (amounts / seconds[:, None]).mean(axis=0)[present]
    width = np.maximum(expected[present], _LEAST_SHARE / share)
    relative = np.vstack([(amounts / seconds[:, None])[:, present], _PRIOR * np.diag(1 / width)])
    goals = np.concatenate([np.ones(len(seconds)), _PRIOR * expected[present] / width])
    scale = np.abs(relative).max(axis=0)
    weights = np.ones(len(goals))
    for _ in range(_ITERATIONS):
        root = np.sqrt(weights)
        scaled, _ = nnls(relative / scale * root[:, None], goals * root, maxiter=50 * relative.shape[1])
        errors = np.abs(relative[: len(seconds)] / scale @ scaled - 1)
        weights[: len(seconds)] = np.clip(_SMALL / np.maximum(errors, _SMALL), _LEAST_WEIGHT, 1.0)
    prices = expected.copy()
    prices[present] = scaled / scale
    return prices
