"""Rewriting graphs so that a runtime takes less for them, as far as its own measurements say so."""

from ngbkit.optimizer.costs import operations, predicted
from ngbkit.optimizer.optimise import Optimised, Tried, optimize
from ngbkit.optimizer.rules import RULES, Rule, rule
from ngbkit.optimizer.search import Beam, Candidate, search
from ngbkit.optimizer.variants import Outcome

__all__ = [
    "RULES",
    "Beam",
    "Candidate",
    "Optimised",
    "Outcome",
    "Rule",
    "Tried",
    "operations",
    "optimize",
    "predicted",
    "rule",
    "search",
]
