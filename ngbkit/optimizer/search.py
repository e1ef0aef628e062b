"""Which rewritings to apply: a beam search, led by a cost model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from ngbkit.optimizer.rules import RULES, Rule, Site
from ngbkit.predictor import graphs
from ngbkit.predictor.graphs import Graph

Cost = Callable[[Sequence[Graph]], NDArray[Any]]
"""What graphs cost, one number each, the less the better; all that counts is how they compare."""

Step = tuple[str, Site]
"""A rule, and where it was applied."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A rewritten network.

    Parameters
    ----------
    model, graph
        What it is, and the same as its cost model sees it.
    cost
        Of the graph.
    steps
        What was applied, in order; none to the network as it came.
    """

    model: ir.Model = field(repr=False)
    graph: Graph = field(repr=False)
    cost: float
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beam:
    """How far the search goes.

    Parameters
    ----------
    width
        Candidates that are rewritten further in each round.
    alpha
        A candidate that costs more than the best so far times this is given up: some rewritings pay only after others.
    rounds
        Rewritings in a row at most; it ends earlier, where a round finds nothing better twice in a row.
    tries
        Rewritings that are looked at in each round, the most promising first.
    seconds
        How long it may take in all.
    """

    width: int = 8
    alpha: float = 1.05
    rounds: int = 30
    tries: int = 400
    seconds: float = 120.0


USUAL = Beam()


def search(
    model: ir.Model,
    cost: Cost,
    rules: Iterable[Rule] = tuple(RULES.values()),
    beam: Beam = USUAL,
    told: Callable[[int, Candidate], None] | None = None,
) -> list[Candidate]:
    """The candidates that were found, the cheapest first, the network as it came among them.

    Parameters
    ----------
    model
        What `ngbkit.optimizer.editing.open_model` gave.
    cost
        The cost model.
    rules
        What may be applied.
    beam
        How far the search goes.
    told
        Called after every round with its number and the best candidate so far.
    """
    named = {one.name: one for one in rules}
    graph = graphs.of(model.clone().graph)
    start = Candidate(model=model, graph=graph, cost=float(cost([graph])[0]))
    known = {graph.digest: start}
    promise: dict[Step, float] = {}
    frontier, best, idle = [start], start, 0
    until = time.monotonic() + beam.seconds
    for round_ in range(beam.rounds):
        fresh = _expanded(frontier, named, known, promise, beam.tries, until)
        for one, value in zip(fresh, _priced(fresh, cost), strict=True):
            known[one.graph.digest] = replace(one, cost=value)
            # What the last step was worth: where it has not been taken yet, the best are tried first.
            promise[one.steps[-1]] = value / one.cost
        found = [known[one.graph.digest] for one in fresh]
        cheapest = min([best, *found], key=lambda one: one.cost)
        idle = 0 if cheapest.cost < best.cost else idle + 1
        best = cheapest
        if told is not None:
            told(round_ + 1, best)
        frontier = sorted((one for one in found if one.cost <= beam.alpha * best.cost), key=lambda one: one.cost)
        frontier = frontier[: beam.width]
        if not frontier or idle > 1 or time.monotonic() > until:
            break
    return sorted(known.values(), key=lambda one: one.cost)


def _expanded(
    frontier: Sequence[Candidate],
    rules: dict[str, Rule],
    known: dict[str, Candidate],
    promise: dict[Step, float],
    tries: int,
    until: float,
) -> list[Candidate]:
    """New candidates, one rewriting further than those of the frontier, with the cost of what they came from."""
    steps = [(promise.get(step, 1.0), at, step) for at, one in enumerate(frontier) for step in _steps(one, rules)]
    found: dict[str, Candidate] = {}
    for _, at, (name, site) in sorted(steps, key=lambda step: step[0])[:tries]:
        if time.monotonic() > until:
            break
        parent = frontier[at]
        model = rules[name].apply(parent.model, site)
        graph = graphs.of(model.graph)
        if graph.digest not in known and graph.digest not in found:
            steps_ = (*parent.steps, (name, site))
            found[graph.digest] = Candidate(model=model, graph=graph, cost=parent.cost, steps=steps_)
    return list(found.values())


def _steps(one: Candidate, rules: dict[str, Rule]) -> Iterator[Step]:
    return ((rule.name, site) for rule in rules.values() for site in rule.sites(one.model))


def _priced(several: Sequence[Candidate], cost: Cost) -> list[float]:
    if not several:
        return []
    return [float(value) if np.isfinite(value) else np.inf for value in cost([one.graph for one in several])]
