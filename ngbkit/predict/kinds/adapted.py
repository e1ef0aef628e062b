"""A model corrected by a few networks: of a family that it was not fitted to, or of another device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict import features
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.base import Arrays, Floats, Model, Progress, iterate_columns
from ngbkit.predict.kinds.catalogue import find_kind
from ngbkit.predict.labels.example_set import Examples

if TYPE_CHECKING:
    from typing import Self

# What makes two networks similar: logarithms of the amounts of work in them.
_TOTALS = [features.WHOLE.index(name) for name in ("operators", "longest", "weights", "macs", "bytes")]
# The prior of a correction: deviations of what a family shares, of what similar networks share, and of what none
# shares, and the distance at which networks are similar; all in logarithms.
_OFFSETS, _SIMILAR, _NOISES, _LENGTHS = (
    (0.1, 0.2, 0.4, 0.8),
    (0.0, 0.05, 0.1, 0.2, 0.4),
    (0.02, 0.05, 0.1, 0.2),
    (0.5, 1, 2),
)
_BASE = "base."


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A Gaussian process of the logarithm of measurement over prediction on one runtime.

    `totals` describes the networks that it is fitted to, a row each; `residuals` are their logarithms, and `errors` the
    standard errors of these. Ten networks do not settle the deviations of the process: it is averaged over a grid of
    them, by their likelihood.
    """

    totals: Floats
    residuals: Floats
    errors: Floats

    def predict(self, totals: Floats) -> Floats:
        """Return the expected logarithm for networks of these totals."""
        inner, outer = _compute_distances(self.totals, self.totals), _compute_distances(totals, self.totals)
        means, likelihoods = [], []
        for offset, similar, noise, length in product(_OFFSETS, _SIMILAR, _NOISES, _LENGTHS):
            variance = np.diag(noise**2 + self.errors**2)
            factor = np.linalg.cholesky(_compute_covariance(inner, offset, similar, length) + variance)
            whitened = np.linalg.solve(factor, self.residuals)
            weights = np.linalg.solve(factor.T, whitened)
            likelihoods.append(-0.5 * float(whitened @ whitened) - float(np.log(np.diag(factor)).sum()))
            means.append(_compute_covariance(outer, offset, similar, length) @ weights)
        shares = np.exp(np.array(likelihoods) - max(likelihoods))
        return np.asarray(np.array(means).T @ (shares / shares.sum()))

    def dump_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        return {f"{prefix}{name}": getattr(self, name) for name in Correction.__slots__}

    @classmethod
    def restore(cls, arrays: Arrays, prefix: str) -> Self:
        """Build what `dump_arrays` returned, or raise a ValueError about other shapes."""
        correction = cls(**{name: np.asarray(arrays[f"{prefix}{name}"], np.float64) for name in Correction.__slots__})
        if correction.totals.shape != (*correction.residuals.shape, len(_TOTALS)):
            raise ValueError(
                f"a correction of shape {correction.totals.shape} for {len(correction.residuals)} networks"
            )
        return correction


def _compute_distances(first: Floats, second: Floats) -> Floats:
    return np.asarray(np.sqrt(((first[:, None] - second[None]) ** 2).mean(axis=2)))


def _compute_covariance(distances: Floats, offset: float, similar: float, length: float) -> Floats:
    return np.asarray(offset**2 + similar**2 * np.exp(-0.5 * (distances / length) ** 2))


def find_corrections(examples: Examples, predicted: Floats) -> dict[int, Correction]:
    """Fit the correction of each runtime with a latency to predictions of these examples."""
    totals = describe(examples.graphs)
    errors = np.zeros(examples.seconds.shape) if examples.errors is None else np.nan_to_num(examples.errors)
    with np.errstate(divide="ignore", invalid="ignore"):
        residuals = np.log(examples.seconds / predicted)
    return {
        runtime: Correction(totals=totals[rows], residuals=residuals[rows, runtime], errors=errors[rows, runtime])
        for runtime, rows in iterate_columns(residuals)
    }


class Adapted:
    """Another model, with a correction by runtime; each runtime is that of the model with the index in `sources`."""

    kind: ClassVar[str] = "adapted"

    def __init__(self, base: Model, sources: Sequence[int], corrections: Mapping[int, Correction]) -> None:
        self.base, self.sources, self._corrections = base, list(sources), dict(corrections)

    @classmethod
    def build(cls, model: Model, examples: Examples, sources: Sequence[int] | None = None) -> Self:
        """Correct a model, without earlier corrections, by examples of runtimes with these sources (or its own)."""
        sources = range(len(examples.runtimes)) if sources is None else sources
        if isinstance(model, Adapted):
            return cls.build(model.base, examples, [model.sources[source] for source in sources])
        predicted = model.predict(examples.graphs)[:, list(sources)]
        return cls(model, sources, find_corrections(examples, predicted))

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:
        """Fit the model itself; its corrections stay."""
        self.base.fit(examples, seed=seed, report=report)

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        seconds = np.array(self.base.predict(graphs), np.float64)[:, self.sources]
        if len(graphs):
            totals = describe(graphs)
            for runtime, correction in self._corrections.items():
                seconds[:, runtime] *= np.exp(correction.predict(totals))
        return seconds

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return the model's values, corrected as the whole network is."""
        contributions = self.base.compute_contributions(graph)[:, self.sources]
        return np.asarray(contributions * (self.predict([graph]) / self.base.predict([graph])[:, self.sources]))

    def dump_settings(self) -> dict[str, Any]:
        base = {"base": self.base.kind, "settings": self.base.dump_settings()}
        return {**base, "sources": self.sources, "corrected": sorted(self._corrections)}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        arrays = {f"{_BASE}{name}": array for name, array in self.base.dump_arrays().items()}
        for runtime, correction in self._corrections.items():
            arrays |= correction.dump_arrays(f"{runtime}.")
        return arrays

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        inner = {name.removeprefix(_BASE): array for name, array in arrays.items() if name.startswith(_BASE)}
        base = find_kind(settings["base"]).restore(settings["settings"], inner)
        corrections = {int(runtime): Correction.restore(arrays, f"{runtime}.") for runtime in settings["corrected"]}
        sources = [int(source) for source in settings["sources"]]
        if min(sources) < 0:
            raise ValueError("a runtime of no number")
        return cls(base, sources, corrections)


def describe(graphs: Sequence[Graph]) -> Floats:
    """Return the totals that make two networks similar, a row per graph."""
    return np.stack([features.encode_graph(graph) for graph in graphs])[:, _TOTALS].astype(np.float64)
