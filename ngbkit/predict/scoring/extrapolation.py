"""Predictions beyond the labels: their intervals follow from families, operators and sizes that were left out.

Errors on held-out rows say nothing about a network that is unlike all labels. Additive prices extrapolate best, and are
fitted in no time; so their errors on whole families, operators and sizes that they were not fitted to, by the distance
of these from the rest, widen the interval of any kind of model. Networks of a family err alike; so such a part counts
once, however many networks it has, and the new network is as one more part: a conformal interval of parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Floats, ignore_progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.applicability import (
    FEWEST,
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

    Parameters
    ----------
    model
        Prices of all labels.
    domains
        The range of the labels, by runtime; None without a label of a network.
    limits
        The distance from which a network is beyond the range, by runtime.
    near
        The distance from which its interval is wider: that of a typical network of a family of the labels.
    distances, errors
        Of networks that were left out with all that is like them: their distances, and the absolute logarithms of
        prediction over measurement, of shape ``(networks, runtimes)``; NaN where there is none.
    parts
        The number of the part that each of these was left out with.
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
        limits, near = _find_limits(examples, contents, seed)
        distances, errors, parts = [], [], []
        for number, (train, test) in enumerate(split_shifts(examples, contents) if shifts else ()):
            model = _fit(examples.take(train))
            distances.append(_measure(_build_domains(examples, contents, train), contents, test))
            predicted = model.predict([examples.graphs[index] for index in test])
            with np.errstate(divide="ignore", invalid="ignore"):
                errors.append(np.abs(np.log(predicted / examples.seconds[test])))
            parts.append(np.full(len(test), float(number)))
        blank = np.empty((0, len(examples.runtimes)))
        return cls(
            model=_fit(examples),
            domains=_build_domains(examples, contents, np.arange(len(examples))),
            limits=limits,
            near=near,
            distances=np.concatenate([blank, *distances]),
            errors=np.concatenate([blank, *errors]),
            parts=np.concatenate([np.empty(0), *parts]),
        )

    def measure(self, graphs: Sequence[Graph]) -> list[list[Distance]]:
        """Measure how far each graph is beyond the labels of each runtime: not at all where there are none."""
        contents = [read_composition(graph) for graph in graphs]
        measured: list[list[Distance]] = []
        for content in contents:
            distances = {id(domain): domain.measure(content) for domain in self._distinct}
            measured.append([distances.get(id(domain), WITHIN) for domain in self.domains])
        return measured

    def find_beyond(self, distances: Sequence[Sequence[Distance]]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which ``(networks, runtimes)`` are beyond the range, and which beyond any sensible prediction."""
        shape = (len(distances), len(self.domains))
        values = np.array([[distance.value for distance in row] for row in distances]).reshape(shape)
        unpriced = np.array([[distance.unpriced for distance in row] for row in distances], dtype=bool).reshape(shape)
        unseen = _list_unseen(distances, shape) > NEGLIGIBLE
        with np.errstate(invalid="ignore"):
            farthest = np.fmax(self.limits, np.nanmax(self.distances, axis=0, initial=0.0))
        refused = unpriced | (values > np.maximum(_FARTHEST * farthest, _FAR))
        return refused | unseen | (values > self.limits), refused

    def widen(self, graphs: Sequence[Graph], seconds: Floats, low: Floats, high: Floats, ci: float) -> Beyond:
        """Widen the intervals of networks beyond the range, in place; a refused network has no prediction.

        Such an interval encloses that of the model, and the errors of prices around either prediction.
        """
        distances = self.measure(graphs)
        beyond, refused = self.find_beyond(distances)
        values = np.array([[distance.value for distance in row] for row in distances])
        wide = beyond | (values > self.near)
        if wide.any():
            # What no network of the labels has may cost as many times more or less as its distance says.
            errors = np.maximum(self.compute_errors(values, ci), UNSEEN * _list_unseen(distances, values.shape))
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

    @property
    def _distinct(self) -> list[Domain]:
        return list({id(domain): domain for domain in self.domains if domain is not None}.values())

    def compute_errors(self, distances: Floats, ci: float) -> Floats:
        """Return the errors of a logarithm that a share `ci` of networks at these distances keep.

        `distances` and the result have the shape ``(networks, runtimes)``; infinity without a test.
        """
        limits = np.full(distances.shape, np.inf)
        for runtime in range(distances.shape[1]):
            tested, errors = self.distances[:, runtime], self.errors[:, runtime]
            finite = np.isfinite(errors) & np.isfinite(tested)
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


def _find_limits(examples: Examples, contents: Sequence[Composition], seed: int) -> tuple[Floats, Floats]:
    """Return the limits of the distance by runtime, from networks that are held out at random.

    The first holds most of them, the second those that are typical of a family of which other networks stay; of labels
    without several families, both are the same.
    """
    parents, families = (np.array(labels, dtype=object) for labels in (examples.parents, examples.families))
    names = set(parents[~examples.isolated])
    values, related = [], []
    for train, test in split_folds(examples, min(FOLDS, len(names)), seed):
        values.append(_measure(_build_domains(examples, contents, train), contents, test))
        related.append(np.isin(families[test], list(set(families[train]))))
    distances, is_related = np.concatenate(values), np.concatenate(related)
    limits, near = (np.full(len(examples.runtimes), _LEAST) for _ in range(2))
    has_families = 1 < len(set(families[~examples.isolated])) < len(names)
    for runtime, column in enumerate(distances.T):
        finite = np.isfinite(column)
        if finite.any():
            limits[runtime] = max(_LEAST, np.quantile(column[finite], _WITHIN, method="higher"))
        near[runtime] = limits[runtime]
        if has_families and (finite & is_related).any():
            near[runtime] = min(limits[runtime], np.quantile(column[finite & is_related], _NEAR))
    return limits, near


def split_shifts(examples: Examples, contents: Sequence[Composition]) -> Iterator[tuple[Indices, Indices]]:
    """Yield the training and the test indices without each of the largest families, some operators, and both ends of
    the sizes.
    """
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
        train = np.flatnonzero(~test)
        if test.tobytes() in used or not (test & mask).any() or (networks & ~test).sum() < _FEWEST:
            continue
        used.add(test.tobytes())
        yield train, np.flatnonzero(test & mask)


def _build_domains(examples: Examples, contents: Sequence[Composition], rows: Indices) -> tuple[Domain | None, ...]:
    """Build the domain of each runtime from those of the rows that it has a label of; None without one."""
    domains: dict[bytes, Domain | None] = {}
    isolated = examples.isolated[rows]
    result = []
    for column in np.isfinite(examples.seconds[rows]).T:
        if column.tobytes() not in domains:
            chosen = [contents[int(index)] for index in rows[column & ~isolated]]
            singles = [contents[int(index)] for index in rows[column & isolated]]
            domains[column.tobytes()] = Domain.build(chosen, singles) if chosen else None
        result.append(domains[column.tobytes()])
    return tuple(result)


def _measure(domains: Sequence[Domain | None], contents: Sequence[Composition], rows: Indices) -> Floats:
    """Return the distances of these rows, of shape ``(rows, runtimes)``; NaN where a runtime has no domain."""
    values = np.full((len(rows), len(domains)), np.nan)
    for place, index in enumerate(rows):
        measured: dict[int, float] = {}
        for runtime, domain in enumerate(domains):
            if domain is not None:
                if id(domain) not in measured:
                    measured[id(domain)] = domain.measure(contents[int(index)]).value
                values[place, runtime] = measured[id(domain)]
    return values


def _list_unseen(distances: Sequence[Sequence[Distance]], shape: tuple[int, ...]) -> Floats:
    """Return the share of the work of each network that no network of the labels of each runtime has."""
    return np.array([[distance.unseen for distance in row] for row in distances]).reshape(shape)


def _fit(examples: Examples) -> Linear:
    model = Linear()
    model.fit(examples, seed=0, report=ignore_progress)
    return model


def dump(extrapolation: Extrapolation) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return what JSON can hold, and all arrays."""
    distinct = extrapolation._distinct
    numbers = {id(domain): number for number, domain in enumerate(distinct)}
    settings = {
        "classes": [list(domain.classes) for domain in distinct],
        "networks": [domain.networks for domain in distinct],
        "domains": [numbers.get(id(domain), -1) for domain in extrapolation.domains],
    }
    arrays = {name: getattr(extrapolation, name) for name in _ARRAYS} | extrapolation.model.dump_arrays()
    for number, domain in enumerate(distinct):
        arrays |= {f"{number}.{name}": array for name, array in domain.dump_arrays().items()}
    return settings, arrays


def restore(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], runtimes: int) -> Extrapolation:
    """Build what `dump` returned; any exception about something else."""
    # Files of earlier releases do not tell how many networks there are: enough.
    counts = settings.get("networks", [FEWEST] * len(settings["classes"]))
    domains = [
        Domain.restore(
            classes,
            int(counts[number]),
            {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{number}.")},
        )
        for number, classes in enumerate(settings["classes"])
    ]
    numbers = [int(number) for number in settings["domains"]]
    # Files of earlier releases have no parts: each test is then one.
    tests = len(arrays["errors"])
    values = {name: np.asarray(arrays[name], np.float64) for name in _ARRAYS if name != "parts"}
    values["parts"] = np.asarray(arrays.get("parts", np.arange(tests)), np.float64)
    expected: dict[str, tuple[int, ...]] = {"limits": (runtimes,), "near": (runtimes,), "parts": (tests,)}
    expected |= dict.fromkeys(("distances", "errors"), (tests, runtimes))
    if len(numbers) != runtimes or any(values[name].shape != shape for name, shape in expected.items()):
        raise ValueError(f"a range that is not of {runtimes} runtimes")
    return Extrapolation(
        model=Linear.restore({}, arrays),
        domains=tuple(domains[number] if number >= 0 else None for number in numbers),
        **values,
    )
