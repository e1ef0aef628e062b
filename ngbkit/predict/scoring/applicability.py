"""The range of networks that labels span, and how far another network is beyond it.

A model is a safe guide only for networks that consist of what its labels consist of, in similar amounts: its domain of
applicability. The distance of a network is a logarithm: about 0.7 for one that is twice too large in everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict import features
from ngbkit.predict.graphs import Graph, Operator

# Operators whose windows are a class of their own.
_WINDOWED = ("Conv", "ConvTranspose", "MaxPool", "AveragePool")
# A proxy of the cost of an operator, in bytes: multiply-accumulates that take as long as a byte, and a call.
_MACS_A_BYTE, _CALL = 5.0, 2e4
UNSEEN = math.log(4)
"""The distance of an operator of an unseen class."""

NEGLIGIBLE = 0.05
"""The share of the cost below which an unknown or unseen operator is negligible."""

# The fewest networks that price an operator that none of them has. With 11 networks, two thirds of the 95 % intervals
# covered; a set below 20 rarely has an error of one network in twenty.
_FEWEST = 20
# Sizes up to this factor beyond the labels count as seen.
_TOLERANCE = math.log(1.5)
# The share of the distance from which a part of it is a reason, and the most reasons of a text.
_RELEVANT, _LISTED = 0.3, 3
_TOTALS = ("operators", "MACs", "bytes")

Range = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The operators of one class in a network: their cost, and the logarithms of the least and the largest of one."""

    cost: float
    low: float
    high: float
    #: Whether nothing tells the cost of such a kind if no label has it: no price is known, or it multiplies.
    risky: bool
    #: Whether its work is unknown.
    unknown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """The classes of operators in a network, and the logarithms of its `_TOTALS`."""

    shares: Mapping[str, Share]
    totals: tuple[float, ...]

    @property
    def cost(self) -> float:
        return sum(share.cost for share in self.shares.values()) or 1.0

    @property
    def mix(self) -> dict[str, float]:
        """The share of each class in the cost."""
        cost = self.cost
        return {name: round(share.cost / cost, 3) for name, share in self.shares.items()}


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Domain:
    """The range of the networks of labels: by class of operators, of the `_TOTALS`, and their number.

    `sizes` are the logarithms of the least and the largest cost of one operator; `most` is the largest cost of all
    operators of a class in a network, without those that were only measured alone. `mixes` are the shares of the
    classes in the cost of each network; equal ones once.
    """

    sizes: Mapping[str, Range]
    most: Mapping[str, float]
    totals: tuple[Range, ...]
    mixes: tuple[Mapping[str, float], ...]
    networks: int

    @classmethod
    def build(cls, contents: Sequence[Composition], singles: Sequence[Composition] = ()) -> Domain:
        """Build the domain of the networks with these contents, and of operators that were measured alone."""
        return cls(
            sizes=_span(
                (name, (share.low, share.high)) for each in (*contents, *singles) for name, share in each.shares.items()
            ),
            most=_find_most((name, share.cost) for each in contents for name, share in each.shares.items()),
            totals=tuple(
                (min(column), max(column)) for column in zip(*(each.totals for each in contents), strict=True)
            ),
            mixes=tuple({tuple(sorted(content.mix.items())): content.mix for content in contents}.values()),
            networks=len(contents),
        )

    def merge(self, other: Domain) -> Domain:
        """Return the domain of the networks of both."""
        pairs = zip(self.totals, other.totals, strict=True)
        return Domain(
            sizes=_span((*self.sizes.items(), *other.sizes.items())),
            most=_find_most((*self.most.items(), *other.most.items())),
            totals=tuple((min(first[0], second[0]), max(first[1], second[1])) for first, second in pairs),
            mixes=self.mixes + other.mixes,
            networks=self.networks + other.networks,
        )

    def measure(self, content: Composition) -> Distance:
        """Measure how far a network is beyond the labels."""
        kinds = {name.partition(" ")[0] for name in self.sizes}
        unseen, sizes, amounts, totals = (dict[str, float]() for _ in range(4))
        unpriced, cost = 0.0, content.cost
        for name, share in content.shares.items():
            weight = share.cost / cost
            if name not in self.most:
                # Operators that were measured alone tell prices, which are others inside a network.
                where = "no network of the labels has" if name in self.sizes else "no label has"
                unseen[f"{where} {name} ({_format_share(weight)} of its work)"] = weight
            elif share.cost > self.most[name]:
                amount = math.log(share.cost / self.most[name])
                amounts[f"{_format_factor(amount)} times as much {name} as in any label"] = weight * amount
            if name in self.sizes:
                low, high = self.sizes[name]
                size = max(share.high - high, low - share.low)
                if size > _TOLERANCE:
                    sizes[f"{name} is {_format_factor(size)} times beyond the sizes of the labels"] = weight * size
            elif share.unknown or (share.risky and name.partition(" ")[0] not in kinds):
                unpriced += 1.0 if share.unknown else weight
        for name, value, (low, high) in zip(_TOTALS, content.totals, self.totals, strict=True):
            if value > high:
                totals[f"{_format_factor(value - high)} times the {name} of the largest label"] = value - high
            elif value < low:
                totals[f"1/{_format_factor(low - value)} of the {name} of the smallest label"] = low - value
        mix = content.mix
        differences = np.abs(self._mixes - [mix.get(name, 0.0) for name in self.sizes])  # others count by themselves
        totals["no label has a similar mix of operators"] = float(differences.sum(axis=1).min() / 2)
        share_unseen = sum(unseen.values())
        value = max(UNSEEN * share_unseen, sum(sizes.values()), sum(amounts.values()), *totals.values())
        # Nothing else matters where an operator has no price.
        if unpriced > NEGLIGIBLE or (share_unseen > NEGLIGIBLE and self.networks < _FEWEST):
            reasons = tuple(sorted(unseen, key=lambda text: -unseen[text])[:_LISTED])
            if unpriced <= NEGLIGIBLE:
                reasons += (f"too few networks for new operators: {self.networks}",)
            return Distance(value=value, reasons=reasons, unpriced=True, unseen=share_unseen)
        parts = {text: UNSEEN * part for text, part in unseen.items()} | sizes | amounts | totals
        # A reason that is far smaller than the largest one explains nothing.
        listed = [text for text in sorted(parts, key=lambda text: -parts[text]) if parts[text] > _RELEVANT * value]
        return Distance(value=value, reasons=tuple(listed[:_LISTED]), unpriced=False, unseen=share_unseen)

    @cached_property
    def _mixes(self) -> NDArray[np.float64]:
        return np.array([[mix.get(name, 0.0) for name in self.sizes] for mix in self.mixes])

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Domain:
        """Build one from its fields; any exception about others."""
        sizes = {str(name): (float(low), float(high)) for name, (low, high) in fields["sizes"].items()}
        most = {str(name): float(cost) for name, cost in fields["most"].items()}
        totals = tuple((float(low), float(high)) for low, high in fields["totals"])
        mixes = tuple({str(name): float(share) for name, share in mix.items()} for mix in fields["mixes"])
        ends = [end for ends in (*sizes.values(), *totals) for end in ends]
        amounts = [*most.values(), *(share for mix in mixes for share in mix.values())]
        if not all(map(math.isfinite, (*ends, *amounts))) or min(amounts, default=-1.0) < 0:
            raise ValueError("a range that no networks have")
        if not mixes or len(totals) != len(_TOTALS) or not all(most.values()) or not most.keys() <= sizes.keys():
            raise ValueError("a range without networks")
        return cls(sizes=sizes, most=most, totals=totals, mixes=mixes, networks=int(fields["networks"]))


def _span(sizes: Iterable[tuple[str, Range]]) -> dict[str, Range]:
    """Return the least start and the largest end of the ranges of each class."""
    spans: dict[str, Range] = {}
    for name, (low, high) in sizes:
        least, largest = spans.get(name, (low, high))
        spans[name] = min(least, low), max(largest, high)
    return spans


def _find_most(costs: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the largest cost of each class."""
    most: dict[str, float] = {}
    for name, cost in costs:
        most[name] = max(cost, most.get(name, 0.0))
    return most


def read_composition(graph: Graph) -> Composition:
    """Read the classes and the amounts of a graph."""
    operators: dict[str, list[Operator]] = {}
    for operator in graph.operators:
        operators.setdefault(name_class(operator), []).append(operator)
    shares = {}
    for name, members in operators.items():
        costs = [_CALL + operator.bytes + (operator.macs or 0) / _MACS_A_BYTE for operator in members]
        is_priced = name.partition(" ")[0] in (*features.KINDS, *features.CONVOLUTIONS)
        shares[name] = Share(
            cost=sum(costs),
            low=math.log(min(costs)),
            high=math.log(max(costs)),
            risky=not is_priced or any(operator.macs for operator in members),
            unknown=any(operator.macs is None for operator in members),
        )
    macs = sum(operator.macs or 0 for operator in graph.operators)
    moved = sum(operator.bytes for operator in graph.operators)
    return Composition(shares=shares, totals=tuple(map(math.log1p, (len(graph.operators), macs, moved))))


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
