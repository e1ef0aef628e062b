"""Rewrites graphs for lower latency on a runtime, verified by measurements on that runtime."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ngbkit.errors import MissingDependencyError

if TYPE_CHECKING:
    from ngbkit.optimizer.costs import operations, predicted
    from ngbkit.optimizer.optimise import Optimised, Tried, optimize
    from ngbkit.optimizer.rules import RULES, Rule, rule
    from ngbkit.optimizer.search import USUAL, Beam, Candidate, search
    from ngbkit.optimizer.variants import Outcome

# The module of each export: the command line is parsed without importing any of them.
_EXPORTS = {
    "RULES": "rules",
    "Beam": "search",
    "Candidate": "search",
    "Optimised": "optimise",
    "Outcome": "variants",
    "Rule": "rules",
    "Tried": "optimise",
    "USUAL": "search",
    "operations": "costs",
    "optimize": "optimise",
    "predicted": "costs",
    "rule": "rules",
    "search": "search",
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


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name in ("onnx", "onnx_ir"):
            raise MissingDependencyError(error.name.replace("_", "-"), "predict") from error
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
