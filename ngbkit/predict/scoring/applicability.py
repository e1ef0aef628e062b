"""The range of networks that labels span, and how far another network is beyond it.

A model is a safe guide only for networks that consist of what its labels consist of, in similar amounts: its domain of
applicability. The distance of a network is a logarithm: about 0.7 for one that is twice too large in everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict import features
from ngbkit.predict.graphs import Graph, Operator

Floats = NDArray[np.float64]

# Operators whose windows are a class of their own.
_WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
# A proxy of the cost of an operator, in bytes: multiply-accumulates that take as long as a byte, and a call.
_MACS_A_BYTE, _CALL = 5.0, 2e4
UNSEEN = math.log(4)
"""The distance of an operator of an unseen class."""

NEGLIGIBLE = 0.05
"""The share of the cost below which an unknown or unseen operator is negligible."""

FEWEST = 20
"""The fewest networks that price an operator that none of them has.

With 11 networks, two thirds of the 95 % intervals covered; a set below 20 rarely has an error of one network in twenty.
"""

# Sizes up to this factor beyond the labels count as seen.
_TOLERANCE = math.log(1.5)
# The share of the distance from which a part of it is a reason, and the most reasons of a text.
_RELEVANT, _LISTED = 0.3, 3
_TOTALS = ("operators", "MACs", "bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The operators of one class in a network: their cost, and the logarithms of the least and the largest of one."""

    cost: float
    low: float
    high: float
    #: Whether prices are known for the kind: not of an operator that `features.KINDS` lacks.
    priced: bool
    #: Whether it multiplies, so that its bytes tell nothing about its cost.
    heavy: bool
    #: Whether its work is unknown.
    unknown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The classes of operators in a network, and the logarithms of its `_TOTALS`."""

    shares: Mapping[str, Share]
    totals: Floats

    @property
    def cost(self) -> float:
        return sum(share.cost for share in self.shares.values()) or 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The distance of a network from the labels, its reasons, and whether these tell no price of its operators.

    `unseen` is the share of its work in operators that no network of the labels has.
    """

    value: float
    reasons: tuple[str, ...]
    unpriced: bool
    unseen: float = 0.0


WITHIN = Distance(value=0.0, reasons=(), unpriced=False)
"""The distance of a network within the range."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Domain:
    """The range of the networks of labels.

    Parameters
    ----------
    classes
        The classes of operators that any of them has.
    sizes
        The logarithms of the least and the largest cost of one operator by class, of shape ``(classes, 2)``.
    costs
        The least and the largest cost of all operators of a class in a network, of shape ``(classes, 2)``.
    totals
        The least and the largest logarithms of the whole, of shape ``(3, 2)``.
    mixes
        The share of each class in the cost of each network, of shape ``(networks, classes)``; equal ones once.
    networks
        The number of networks.
    """

    classes: tuple[str, ...]
    sizes: Floats
    costs: Floats
    totals: Floats
    mixes: Floats
    networks: int

    @classmethod
    def build(cls, contents: Sequence[Composition], singles: Sequence[Composition] = ()) -> Domain:
        """Build the domain of the networks with these contents, and of operators that were measured alone."""
        classes = tuple(sorted({name for content in (*contents, *singles) for name in content.shares}))
        place = {name: index for index, name in enumerate(classes)}
        costs = np.zeros((len(contents), len(classes)))
        sizes = np.tile([np.inf, -np.inf], (len(classes), 1))
        for row, content in enumerate((*contents, *singles)):
            for name, share in content.shares.items():
                column = place[name]
                if row < len(contents):
                    costs[row, column] = share.cost
                sizes[column] = min(sizes[column, 0], share.low), max(sizes[column, 1], share.high)
        totals = np.stack([content.totals for content in contents])
        return cls(
            classes=classes,
            sizes=sizes,
            costs=np.stack([costs.min(axis=0), costs.max(axis=0)], axis=1),
            totals=np.stack([totals.min(axis=0), totals.max(axis=0)], axis=1),
            mixes=np.unique((costs / np.maximum(costs.sum(axis=1, keepdims=True), 1.0)).round(3), axis=0),
            networks=len(contents),
        )

    def measure(self, content: Composition) -> Distance:
        """Measure how far a network is beyond the labels."""
        place = {name: index for index, name in enumerate(self.classes)}
        kinds = {name.partition(" ")[0] for name in self.classes}
        by_reason: list[dict[str, float]] = [{} for _ in range(4)]
        unseen, sizes, amounts, totals = by_reason
        unpriced = 0.0
        for name, share in content.shares.items():
            weight = share.cost / content.cost
            if name not in place:
                unseen[f"no label has {name} ({_format_share(weight)} of its work)"] = weight * UNSEEN
                is_new = name.partition(" ")[0] not in kinds
                if share.unknown or (is_new and (share.heavy or not share.priced)):
                    unpriced += 1.0 if share.unknown else weight
                continue
            most = self.costs[place[name], 1]
            if not most:
                # Operators that were measured alone tell prices, which are others inside a network.
                unseen[f"no network of the labels has {name} ({_format_share(weight)} of its work)"] = weight * UNSEEN
            low, high = self.sizes[place[name]]
            size = max(share.high - high, low - share.low)
            if size > _TOLERANCE:
                sizes[f"{name} is {_format_factor(size)} times beyond the sizes of the labels"] = weight * size
            if most and share.cost > most:
                amount = math.log(share.cost / most)
                amounts[f"{_format_factor(amount)} times as much {name} as in any label"] = weight * amount
        for name, value, (low, high) in zip(_TOTALS, content.totals, self.totals, strict=True):
            if value > high:
                totals[f"{_format_factor(value - high)} times the {name} of the largest label"] = float(value - high)
            elif value < low:
                totals[f"1/{_format_factor(low - value)} of the {name} of the smallest label"] = float(low - value)
        mix = {"no label has a similar mix of operators": self._measure_mix(content)}
        value = max(sum(unseen.values()), sum(sizes.values()), sum(amounts.values()), *totals.values(), *mix.values())
        unseen_share = sum(unseen.values()) / UNSEEN
        if unpriced > NEGLIGIBLE or (unseen_share > NEGLIGIBLE and self.networks < FEWEST):  # nothing else matters then
            reasons = tuple(sorted(unseen, key=lambda text: -unseen[text])[:_LISTED])
            if unpriced <= NEGLIGIBLE:
                reasons += (f"too few networks for new operators: {self.networks}",)
            return Distance(value=value, reasons=reasons, unpriced=True, unseen=unseen_share)
        parts = sorted({**unseen, **sizes, **amounts, **totals, **mix}.items(), key=lambda part: -part[1])
        # A reason that is far smaller than the largest one explains nothing.
        reasons = tuple(text for text, part in parts if part > _RELEVANT * value)[:_LISTED]
        return Distance(value=value, reasons=reasons, unpriced=False, unseen=unseen_share)

    def _measure_mix(self, content: Composition) -> float:
        """Return the share of the cost that another mix of operators has than the most similar label."""
        mix = np.array([content.shares[name].cost if name in content.shares else 0.0 for name in self.classes])
        mix = mix / content.cost
        # Unseen classes count by themselves.
        return float(np.abs(self.mixes - mix).sum(axis=1).min() / 2) if len(self.mixes) else 0.0

    def merge(self, other: Domain) -> Domain:
        """Return the domain of the networks of both."""
        classes = tuple(sorted({*self.classes, *other.classes}))
        places = [[classes.index(name) for name in domain.classes] for domain in (self, other)]
        sizes, mixes = np.tile([np.inf, -np.inf], (2, len(classes), 1)), []
        costs = np.zeros((2, len(classes), 2))
        for index, domain in enumerate((self, other)):
            sizes[index, places[index]], costs[index, places[index]] = domain.sizes, domain.costs
            mixes.append(np.zeros((len(domain.mixes), len(classes))))
            mixes[index][:, places[index]] = domain.mixes
        totals = np.stack([self.totals, other.totals])
        return Domain(
            classes=classes,
            sizes=_span(sizes),
            costs=_span(costs),
            totals=_span(totals),
            mixes=np.unique(np.concatenate(mixes), axis=0),
            networks=self.networks + other.networks,
        )

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        """Return all but the classes and the number of networks."""
        return {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def restore(cls, classes: Iterable[str], networks: int, arrays: Mapping[str, NDArray[Any]]) -> Domain:
        """Build a domain from its classes, the number of networks, and arrays; any exception about others."""
        names = tuple(map(str, classes))
        values = {name: np.asarray(arrays[name], np.float64) for name in _ARRAYS}
        expected = {"sizes": (len(names), 2), "costs": (len(names), 2), "totals": (len(_TOTALS), 2)}
        for name, shape in {**expected, "mixes": (len(values["mixes"]), len(names))}.items():
            if values[name].shape != shape:
                raise ValueError(f"{name} of shape {values[name].shape}")
            if not np.isfinite(values[name]).all() or (name in ("costs", "mixes") and values[name].min(initial=0) < 0):
                raise ValueError(f"{name} that no network has")
        return cls(classes=names, networks=networks, **values)


_ARRAYS = ("sizes", "costs", "totals", "mixes")


def _span(ranges: Floats) -> Floats:
    """Return the least start and the largest end of ranges, stacked along the first axis."""
    return np.stack([ranges[..., 0].min(axis=0), ranges[..., 1].max(axis=0)], axis=-1)


def read_composition(graph: Graph) -> Composition:
    """Read the classes and the amounts of a graph."""
    costs: dict[str, list[float]] = {}
    unknown, heavy = set[str](), set[str]()
    for operator in graph.operators:
        name = name_class(operator)
        costs.setdefault(name, []).append(_CALL + operator.bytes + (operator.macs or 0) / _MACS_A_BYTE)
        if operator.macs is None:
            unknown.add(name)
        elif operator.macs:
            heavy.add(name)
    shares = {
        name: Share(
            cost=sum(values),
            low=math.log(min(values)),
            high=math.log(max(values)),
            priced=name.partition(" ")[0] in (*features.KINDS, *features.CONVOLUTIONS),
            heavy=name in heavy,
            unknown=name in unknown,
        )
        for name, values in costs.items()
    }
    macs = sum(operator.macs or 0 for operator in graph.operators)
    moved = sum(operator.bytes for operator in graph.operators)
    return Composition(shares=shares, totals=np.log1p([len(graph.operators), macs, moved]))


def name_class(operator: Operator) -> str:
    """Return the class of an operator: its kind, and the size of its window."""
    windows = tuple(operator.attributes.get(name) for name in ("kernel_shape", "dilations"))
    kernel = features.name_kernel(operator)
    return _name_window(kernel, *windows) if kernel in (*features.CONVOLUTIONS, *_WINDOWED) else kernel


@lru_cache(maxsize=1024)
def _name_window(kernel: str, shape: Any, dilations: Any) -> str:
    sides = "x".join(map(str, shape)) if isinstance(shape, tuple) else ""
    dilated = isinstance(dilations, tuple) and any(each != 1 for each in dilations)
    return " ".join(part for part in (kernel, sides, "dilated" if dilated else "") if part)


def _format_share(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else "less than 1 %"


def _format_factor(logarithm: float) -> str:
    return f"{math.exp(min(logarithm, 50.0)):.2g}"
