"""Rewrites graphs for lower latency on a runtime, verified by measurements on that runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily

if TYPE_CHECKING:
    from ngbkit.predict.optimizer.beam_search import USUAL, Beam, Candidate, search
    from ngbkit.predict.optimizer.costs import operations, predicted
    from ngbkit.predict.optimizer.optimise import Optimised, Tried, optimize
    from ngbkit.predict.optimizer.rules import RULES, Rule, rule
    from ngbkit.predict.optimizer.variants import Outcome

# The module of each export: the command line is parsed without importing any of them.
_EXPORTS = {
    "RULES": "rules",
    "Beam": "beam_search",
    "Candidate": "beam_search",
    "Optimised": "optimise",
    "Outcome": "variants",
    "Rule": "rules",
    "Tried": "optimise",
    "USUAL": "beam_search",
    "operations": "costs",
    "optimize": "optimise",
    "predicted": "costs",
    "rule": "rules",
    "search": "beam_search",
}

__all__ = [
    "RULES",
    "USUAL",
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

__getattr__, __dir__ = export_lazily(__name__, _EXPORTS, "predict")
