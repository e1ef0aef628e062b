"""Searches for the cheapest rewritings: a beam search, guided by a cost model."""

from __future__ import annotations

import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from ngbkit.errors import NgbkitWarning
from ngbkit.predict import onnx_graphs
from ngbkit.predict.graphs import Graph
from ngbkit.predict.optimizer.costs import Cost, operations
from ngbkit.predict.optimizer.rules import RULES, Rule, Site
from ngbkit.predict.optimizer.rules.rule_selection import select

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
    last
        The last move: see `Move.key`.
    """

    model: ir.Model = field(repr=False)
    graph: Graph = field(repr=False)
    cost: float
    steps: tuple[Step, ...] = ()
    last: str = field(default="", repr=False)


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
        The most moves in a row, each of a rule at one site or at all of its sites; the search ends earlier after two
        rounds in a row without a better candidate.
    tries
        The most moves per round, the most promising first.
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
    rules: Iterable[Any] = tuple(RULES.values()),
    beam: Beam = USUAL,
    report: Callable[[int, Candidate], None] | None = None,
) -> list[Candidate]:
    """The candidates of the search, the cheapest first, including the original.

    Parameters
    ----------
    model
        A model of `ngbkit.predict.optimizer.editing.open_model`.
    cost
        The cost model.
    rules
        The rules to apply: see `ngbkit.predict.optimizer.rules.rule_selection.select`. A rule that fails is left out,
        with a warning.
    beam
        The size of the search.
    report
        Called after every round with its number and the best candidate so far.

    Warns
    -----
    NgbkitWarning
        The cost of the model itself is not finite; operations are its cost then. Or a rule failed.
    """
    rules_by_name = {rule.name: rule for rule in select(rules)}
    graph = onnx_graphs.annotate(model.clone().graph)
    start = Candidate(model=model, graph=graph, cost=float(cost([graph])[0]))
    if not math.isfinite(start.cost):
        warnings.warn(
            "the network is beyond the labels of its cost model, so that the search follows multiply-accumulate "
            "operations instead. `ngbkit predict` has the reasons; measure such networks.",
            NgbkitWarning,
            stacklevel=2,
        )
        return search(model, operations, rules, beam, report)
    candidates = {graph.digest: start}
    cost_ratios: dict[str, float] = {}
    frontier, best, idle = [start], start, 0
    deadline = time.monotonic() + beam.seconds
    for round_ in range(beam.rounds):
        expanded = _expand(frontier, rules_by_name, candidates, cost_ratios, beam.tries, deadline)
        for candidate, value in zip(expanded, _compute_costs(expanded, cost), strict=True):
            candidates[candidate.graph.digest] = replace(candidate, cost=value)
            # The gain of a move orders its tries elsewhere.
            cost_ratios[candidate.last] = compute_ratio(value, candidate.cost)
        priced = [candidates[candidate.graph.digest] for candidate in expanded]
        cheapest = min([best, *priced], key=lambda candidate: candidate.cost)
        idle = 0 if cheapest.cost < best.cost else idle + 1
        best = cheapest
        if report is not None:
            report(round_ + 1, best)
        frontier = sorted(
            (candidate for candidate in priced if candidate.cost <= beam.alpha * best.cost),
            key=lambda candidate: candidate.cost,
        )
        frontier = frontier[: beam.width]
        if not frontier or idle > 1 or time.monotonic() > deadline:
            break
    return sorted(candidates.values(), key=lambda candidate: candidate.cost)


def select_cheaper(candidates: Sequence[Candidate], top: int) -> tuple[Candidate, list[Candidate]]:
    """Return the original, and the `top` cheapest candidates of a search that cost less than it."""
    original = next(candidate for candidate in candidates if not candidate.steps)
    return original, [candidate for candidate in candidates if candidate.cost < original.cost][:top]


def _expand(
    frontier: Sequence[Candidate],
    rules: dict[str, Rule],
    candidates: dict[str, Candidate],
    cost_ratios: dict[str, float],
    tries: int,
    deadline: float,
) -> list[Candidate]:
    """Return new candidates, one move beyond the frontier, with the cost of their origin."""
    moves = [
        (cost_ratios.get(move.key, 1.0), len(move.sites) == 1, index, move)
        for index, candidate in enumerate(frontier)
        for move in list_moves(candidate.model, rules.values())
    ]
    expanded: dict[str, Candidate] = {}
    for *_, index, move in sorted(moves, key=lambda ranked: ranked[:2])[:tries]:
        if time.monotonic() > deadline:
            break
        candidate = apply_move(frontier[index], move, rules[move.rule])
        if candidate is not None and candidate.graph.digest not in candidates:
            expanded.setdefault(candidate.graph.digest, candidate)
    return list(expanded.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One rewriting of the search: a rule at one site, or at all of its sites together."""

    rule: str
    sites: tuple[Site, ...]

    @property
    def key(self) -> str:
        """Moves with the same key have similar gains on several candidates."""
        return f"{self.rule} {self.sites[0] if len(self.sites) == 1 else 'everywhere'}"


def list_moves(model: ir.Model, rules: Iterable[Rule]) -> Iterator[Move]:
    """Yield the moves of each rule: at all of its sites together, and at each."""
    for rule in rules:
        try:
            sites = tuple(rule.sites(model))
        except Exception as error:  # noqa: BLE001  a rule of a user or a plugin may raise anything
            _warn(rule, error)
            continue
        if len(sites) > 1:
            yield Move(rule=rule.name, sites=sites)
        yield from (Move(rule=rule.name, sites=(site,)) for site in sites)


def apply_move(parent: Candidate, move: Move, rule: Rule) -> Candidate | None:
    """Return the rewritten candidate, with the cost of its parent; None if the rule fails, with a warning."""
    try:
        model, sites = rule.apply_all(parent.model, move.sites)
        graph = onnx_graphs.annotate(model.graph)
    except Exception as error:  # noqa: BLE001  a rule of a user or a plugin may raise anything
        _warn(rule, error)
        return None
    steps = (*parent.steps, *((move.rule, site) for site in sites))
    return Candidate(model=model, graph=graph, cost=parent.cost, steps=steps, last=move.key)


def _warn(rule: Rule, error: Exception) -> None:
    # The same text each time: Python shows it once.
    text = (
        f"the rule {rule.name} failed with {type(error).__name__}: {error}. The search goes on without this rewriting."
    )
    warnings.warn(text, NgbkitWarning, stacklevel=2)


def format_steps(steps: Iterable[Step], separator: str = ", ") -> str:
    """The rules in the order of their first use, each with the number of its sites.

    >>> format_steps([("fold", ("a",)), ("merge", ("b", "c")), ("fold", ("d",))])
    'fold x2, merge'
    """
    counts = Counter(name for name, _ in steps)
    return separator.join(f"{name} x{count}" if count > 1 else name for name, count in counts.items())


def compute_ratio(first: float, second: float) -> float:
    """Return the ratio of two costs; either may be 0, as the operations of a network that only moves data."""
    if second:
        return first / second
    return math.inf if first else 1.0


def _compute_costs(candidates: Sequence[Candidate], cost: Cost) -> list[float]:
    if not candidates:
        return []
    return [
        float(value) if np.isfinite(value) else np.inf for value in cost([candidate.graph for candidate in candidates])
    ]
