"""Predictions beyond the labels: their intervals follow from families, operators and sizes that were left out.

Errors on held-out rows say nothing about a network that is unlike all labels. Additive prices extrapolate best, and are
fitted in no time; so their errors on whole families, operators and sizes that they were not fitted to, by the distance
of these from the rest, widen the interval of any kind of model. Networks of a family err alike; so such a part counts
once, however many networks it has, and the new network is as one more part: a conformal interval of parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Floats, ignore_progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.applicability import (
    NEGLIGIBLE,
    UNSEEN,
    WITHIN,
    Composition,
    Distance,
    Domain,
    read_composition,
)
from ngbkit.predict.scoring.intervals import compute_tail
from ngbkit.predict.scoring.splits import FOLDS, Indices, split_folds

# The share of networks drawn like those of the fit that are within the range, and near to labels of their family.
_WITHIN, _NEAR = 0.95, 0.5
# The least distance of a network beyond the range.
_LEAST = 0.1
# The most families and operators that are left out in turn, and the share of the networks in a range of sizes.
_MOST, _SIZES = 5, 0.2
# The fewest networks that a model is fitted to, and that an operator is left out with.
_FEWEST = 4
# The factor beyond the farthest tested distance, and the least distance, from which no prediction is sensible.
_FARTHEST, _FAR = 3.0, float(np.log(10))
# The factor of an interval from which it says nothing, nor does the prediction inside it.
_SENSELESS = float(np.log(100))
_ARRAYS = ("limits", "near", "distances", "errors", "parts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """The networks beyond the range: their reasons, empty within it, and the refused ones, by network and runtime."""

    reasons: list[list[str]]
    refused: NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Extrapolation:
    """The range of the labels of each runtime, and the errors of prices beyond such ranges.

    `model` has the prices of all labels, `domains` the range of each runtime, None without a label of a network, and
    `limits` the distance from which a network is beyond it; from `near` on, that of a typical network of a family of
    the labels, its interval is wider. `distances` and `errors`, of shape ``(networks,
    runtimes)``, are those of networks that were left out with all that is like them, and `parts` the part of each.
    """

    model: Linear
    domains: tuple[Domain | None, ...]
    limits: Floats
    near: Floats
    distances: Floats
    errors: Floats
    parts: Floats

    @classmethod
    def build(cls, examples: Examples, seed: int = 0, *, shifts: bool = True) -> Extrapolation:
        """Measure the range of examples; with `shifts`, leave out families, operators and sizes of them."""
        contents = [read_composition(graph) for graph in examples.graphs]
        blank = np.empty((0, len(examples.runtimes)))
        distances, errors, parts = [blank], [blank], [np.empty(0)]
        for number, (train, test) in enumerate(split_shifts(examples, contents) if shifts else ()):
            distances.append(_measure_left_out(examples, contents, train, test))
            predicted = _fit(examples.take(train)).predict([examples.graphs[index] for index in test])
            with np.errstate(divide="ignore", invalid="ignore"):
                errors.append(np.abs(np.log(predicted / examples.seconds[test])))
            parts.append(np.full(len(test), float(number)))
        families, networks = np.array(examples.families, dtype=object), np.flatnonzero(~examples.isolated)
        count = len({examples.parents[index] for index in networks})
        folds = list(split_folds(examples, min(FOLDS, count), seed))
        held_out = np.concatenate([_measure_left_out(examples, contents, *fold) for fold in folds])
        limits = np.maximum(_LEAST, np.quantile(held_out, _WITHIN, axis=0, method="higher"))
        is_related = np.concatenate([np.isin(families[test], list(set(families[train]))) for train, test in folds])
        has_families = 1 < len(set(families[networks])) < count and is_related.any()
        return cls(
            model=_fit(examples),
            domains=_build_domains(examples, contents, np.arange(len(examples))),
            limits=limits,
            near=np.minimum(limits, np.quantile(held_out[is_related], _NEAR, axis=0)) if has_families else limits,
            distances=np.concatenate(distances),
            errors=np.concatenate(errors),
            parts=np.concatenate(parts),
        )

    def measure(self, graphs: Sequence[Graph]) -> list[list[Distance]]:
        """Measure how far each graph is beyond the labels of each runtime: not at all where there are none."""
        return _measure(self.domains, [read_composition(graph) for graph in graphs])

    def find_beyond(self, distances: Sequence[Sequence[Distance]]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which ``(networks, runtimes)`` are beyond the range, and which beyond any sensible prediction."""
        values, unseen, unpriced = (self._tabulate(distances, name) for name in ("value", "unseen", "unpriced"))
        farthest = np.maximum(self.limits, self.distances.max(axis=0, initial=0.0))
        refused = (unpriced > 0) | (values > np.maximum(_FARTHEST * farthest, _FAR))
        return refused | (unseen > NEGLIGIBLE) | (values > self.limits), refused

    def widen(self, graphs: Sequence[Graph], seconds: Floats, low: Floats, high: Floats, ci: float) -> Beyond:
        """Widen the intervals of networks beyond the range, in place; a refused network has no prediction.

        Such an interval encloses that of the model, and the errors of prices around either prediction.
        """
        distances = self.measure(graphs)
        beyond, refused = self.find_beyond(distances)
        values = self._tabulate(distances, "value")
        wide = beyond | (values > self.near)
        # What no network of the labels has may cost as many times more or less as its distance says.
        errors = self.compute_errors(values, ci)
        errors = np.maximum(errors, UNSEEN * self._tabulate(distances, "unseen"))
        for center in (seconds, self.model.predict(graphs)):
            low[wide] = np.minimum(low, center / np.exp(errors))[wide]
            high[wide] = np.maximum(high, center * np.exp(errors))[wide]
        refused |= beyond & np.isfinite(errors) & (errors > _SENSELESS)
        seconds[refused] = np.nan
        reasons = [
            ["; ".join(distance.reasons) if flag else "" for distance, flag in zip(row, flags, strict=True)]
            for row, flags in zip(distances, beyond, strict=True)
        ]
        return Beyond(reasons=reasons, refused=refused)

    def extend(self, examples: Examples) -> Extrapolation:
        """Return the same with the range of further examples of its runtimes, in their order."""
        contents = [read_composition(graph) for graph in examples.graphs]
        added = _build_domains(examples, contents, np.arange(len(examples)))
        pairs = zip(self.domains, added, strict=True)
        return replace(self, domains=tuple(old.merge(new) if old and new else old or new for old, new in pairs))

    def move(self, model: Linear, sources: Sequence[int]) -> Extrapolation:
        """Return the same for new runtimes with these prices: each has the range and the errors of one of these."""
        columns = list(sources)
        return replace(
            self,
            model=model,
            domains=tuple(self.domains[column] for column in columns),
            limits=self.limits[columns],
            near=self.near[columns],
            distances=self.distances[:, columns],
            errors=self.errors[:, columns],
        )

    def compute_errors(self, distances: Floats, ci: float) -> Floats:
        """Return the errors of a logarithm that a share `ci` of networks at these distances keep.

        `distances` and the result have the shape ``(networks, runtimes)``; infinity without a test.
        """
        limits = np.full(distances.shape, np.inf)
        for runtime in range(distances.shape[1]):
            tested, errors = self.distances[:, runtime], self.errors[:, runtime]
            finite = np.isfinite(errors)
            rows = [np.flatnonzero(finite & (self.parts == part)) for part in np.unique(self.parts[finite])]
            if not rows:
                continue
            # A network that is nearer than the tested ones is not better known.
            least = float(np.median([np.median(tested[part]) for part in rows]))
            scales = _LEAST + np.maximum(tested, least)
            # The share that each part keeps; that all parts but a few keep it makes the rest of `ci`.
            quantiles = [np.quantile(errors[part] / scales[part], ci**2, method="higher") for part in rows]
            # The conformal quantile of one part more; of few parts, the largest, with the tail of normal errors.
            rank = min(int(np.ceil((len(rows) + 1) * ci - 1e-9)), len(rows))
            limit = np.sort(quantiles)[rank - 1] * max(1.0, compute_tail(len(rows), ci))
            limits[:, runtime] = limit * (_LEAST + np.maximum(distances[:, runtime], least))
        return limits

    def _tabulate(self, distances: Sequence[Sequence[Distance]], name: str) -> Floats:
        """Return a field of distances, of shape ``(networks, runtimes)``."""
        values = [float(getattr(distance, name)) for row in distances for distance in row]
        return np.array(values).reshape(-1, len(self.domains))

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what JSON can hold, and all arrays."""
        domains = [domain and asdict(domain) for domain in self.domains]
        return {"domains": domains}, {name: getattr(self, name) for name in _ARRAYS} | self.model.dump_arrays()

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], runtimes: int) -> Extrapolation:
        """Build what `dump` returned; any exception about something else."""
        domains = tuple(fields and Domain.from_json(fields) for fields in settings["domains"])
        values = {name: np.asarray(arrays[name], np.float64) for name in _ARRAYS}
        tests = len(values["parts"])
        expected = [(runtimes,), (runtimes,), (tests, runtimes), (tests, runtimes), (tests,)]
        if len(domains) != runtimes or [values[name].shape for name in _ARRAYS] != expected:
            raise ValueError(f"a range that is not of {runtimes} runtimes")
        return cls(model=Linear.restore({}, arrays), domains=domains, **values)


def split_shifts(examples: Examples, contents: Sequence[Composition]) -> Iterator[tuple[Indices, Indices]]:
    """Yield the training and the test indices without each large family, some operators, and both ends of the sizes."""
    networks = ~examples.isolated
    indices = np.flatnonzero(networks)
    parents = np.array(examples.parents, dtype=object)
    families = np.array(examples.families, dtype=object)
    names, counts = np.unique(families[indices].astype(str), return_counts=True)
    masks = [families == name for name in names[np.argsort(-counts, kind="stable")][:_MOST]]
    classes = sorted({name for index in indices for name in contents[int(index)].shares})
    members = {name: np.array([name in content.shares for content in contents]) & networks for name in classes}
    balance = {name: abs(int(mask.sum()) - len(indices) / 4) for name, mask in members.items()}
    masks += [members[name] for name in sorted(balance, key=lambda name: (balance[name], name))[:_MOST]]
    sizes = np.array([content.cost for content in contents])
    low, high = np.quantile(sizes[indices], [_SIZES, 1 - _SIZES])
    masks += [networks & (sizes < low), networks & (sizes > high)]
    used: set[bytes] = set()
    for mask in masks:
        # Variants stay with their networks.
        test = np.isin(parents, list(set(parents[mask & networks]))) & networks
        if test.tobytes() in used or not (test & mask).any() or (networks & ~test).sum() < _FEWEST:
            continue
        used.add(test.tobytes())
        yield np.flatnonzero(~test), np.flatnonzero(test & mask)


def _build_domains(examples: Examples, contents: Sequence[Composition], rows: Indices) -> tuple[Domain | None, ...]:
    """Build the domain of each runtime from those of the rows that it has a label of; None without one."""
    domains: dict[bytes, Domain | None] = {}
    isolated = examples.isolated[rows]
    columns = np.isfinite(examples.seconds[rows]).T
    for column in columns:
        chosen, singles = ([contents[int(index)] for index in rows[column & mask]] for mask in (~isolated, isolated))
        if column.tobytes() not in domains:
            domains[column.tobytes()] = Domain.build(chosen, singles) if chosen else None
    return tuple(domains[column.tobytes()] for column in columns)


def _measure_left_out(examples: Examples, contents: Sequence[Composition], train: Indices, test: Indices) -> Floats:
    """Return the distances of the test examples from the training examples, of shape ``(examples, runtimes)``."""
    measured = _measure(_build_domains(examples, contents, train), [contents[int(index)] for index in test])
    return np.array([[distance.value for distance in row] for row in measured]).reshape(-1, len(examples.runtimes))


def _measure(domains: Sequence[Domain | None], contents: Sequence[Composition]) -> list[list[Distance]]:
    """Measure each network against the domain of each runtime, and equal domains once."""
    distinct = {id(domain): domain for domain in domains if domain is not None}
    measured = ({number: domain.measure(content) for number, domain in distinct.items()} for content in contents)
    return [[distances.get(id(domain), WITHIN) for domain in domains] for distances in measured]


def _fit(examples: Examples) -> Linear:
    model = Linear()
    model.fit(examples, seed=0, report=ignore_progress)
    return model
