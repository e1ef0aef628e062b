"""Searches for the cheapest rewritings: a beam search, guided by a cost model."""

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
"""The costs of graphs, one number each; only their order matters."""

Step = tuple[str, Site]
"""A rule, and the site that it was applied to."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A rewritten network.

    Parameters
    ----------
    model, graph
        The model, and the graph that its cost model sees.
    cost
        The cost of the graph.
    steps
        The rewritings, in order; empty for the original.
    """

    model: ir.Model = field(repr=False)
    graph: Graph = field(repr=False)
    cost: float
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beam:
    """The size of the search.

    Parameters
    ----------
    width
        Candidates that are rewritten further in each round.
    alpha
        A candidate that costs more than `alpha` times the best so far is dropped: some rewritings pay only after
        others.
    rounds
        The most rewritings in a row; the search ends earlier after two rounds in a row without a better candidate.
    tries
        The most rewritings per round, the most promising first.
    seconds
        The time budget of the search.
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
    """The candidates of the search, the cheapest first, including the original.

    Parameters
    ----------
    model
        A model of `ngbkit.optimizer.editing.open_model`.
    cost
        The cost model.
    rules
        The rules to apply.
    beam
        The size of the search.
    told
        Called after every round with its number and the best candidate so far.
    """
    rules_by_name = {rule.name: rule for rule in rules}
    graph = graphs.annotate(model.clone().graph)
    start = Candidate(model=model, graph=graph, cost=float(cost([graph])[0]))
    candidates = {graph.digest: start}
    cost_ratios: dict[Step, float] = {}
    frontier, best, idle = [start], start, 0
    deadline = time.monotonic() + beam.seconds
    for round_ in range(beam.rounds):
        expanded = _expand(frontier, rules_by_name, candidates, cost_ratios, beam.tries, deadline)
        for candidate, value in zip(expanded, _compute_costs(expanded, cost), strict=True):
            candidates[candidate.graph.digest] = replace(candidate, cost=value)
            # The gain of a step orders its tries elsewhere.
            cost_ratios[candidate.steps[-1]] = value / candidate.cost
        priced = [candidates[candidate.graph.digest] for candidate in expanded]
        cheapest = min([best, *priced], key=lambda candidate: candidate.cost)
        idle = 0 if cheapest.cost < best.cost else idle + 1
        best = cheapest
        if told is not None:
            told(round_ + 1, best)
        frontier = sorted(
            (candidate for candidate in priced if candidate.cost <= beam.alpha * best.cost),
            key=lambda candidate: candidate.cost,
        )
        frontier = frontier[: beam.width]
        if not frontier or idle > 1 or time.monotonic() > deadline:
            break
    return sorted(candidates.values(), key=lambda candidate: candidate.cost)


def _expand(
    frontier: Sequence[Candidate],
    rules: dict[str, Rule],
    candidates: dict[str, Candidate],
    cost_ratios: dict[Step, float],
    tries: int,
    deadline: float,
) -> list[Candidate]:
    """Return new candidates, one rewriting beyond the frontier, with the cost of their origin."""
    steps = [
        (cost_ratios.get(step, 1.0), index, step)
        for index, candidate in enumerate(frontier)
        for step in _list_steps(candidate, rules)
    ]
    expanded: dict[str, Candidate] = {}
    for _, index, (name, site) in sorted(steps, key=lambda step: step[0])[:tries]:
        if time.monotonic() > deadline:
            break
        parent = frontier[index]
        model = rules[name].apply(parent.model, site)
        graph = graphs.annotate(model.graph)
        if graph.digest not in candidates and graph.digest not in expanded:
            steps_ = (*parent.steps, (name, site))
            expanded[graph.digest] = Candidate(model=model, graph=graph, cost=parent.cost, steps=steps_)
    return list(expanded.values())


def _list_steps(candidate: Candidate, rules: dict[str, Rule]) -> Iterator[Step]:
    return ((rule.name, site) for rule in rules.values() for site in rule.sites(candidate.model))


def _compute_costs(candidates: Sequence[Candidate], cost: Cost) -> list[float]:
    if not candidates:
        return []
    return [
        float(value) if np.isfinite(value) else np.inf for value in cost([candidate.graph for candidate in candidates])
    ]
