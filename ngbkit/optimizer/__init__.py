"""Rewriting graphs so that a runtime takes less for them, as far as its own measurements say so."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ngbkit.errors import MissingDependencyError

if TYPE_CHECKING:
    from ngbkit.optimizer.costs import operations, predicted
    from ngbkit.optimizer.drawing import draw
    from ngbkit.optimizer.optimise import Optimised, Tried, optimize
    from ngbkit.optimizer.portability import study, summary
    from ngbkit.optimizer.rules import RULES, Rule, rule
    from ngbkit.optimizer.search import Beam, Candidate, search
    from ngbkit.optimizer.variants import Outcome

# Where each name lives: the words of the command line are read without any of it.
_EXPORTS = {
    "RULES": "rules",
    "Beam": "search",
    "Candidate": "search",
    "Optimised": "optimise",
    "Outcome": "variants",
    "Rule": "rules",
    "Tried": "optimise",
    "draw": "drawing",
    "operations": "costs",
    "optimize": "optimise",
    "predicted": "costs",
    "rule": "rules",
    "search": "search",
    "study": "portability",
    "summary": "portability",
}

__all__ = [
    "RULES",
    "Beam",
    "Candidate",
    "Optimised",
    "Outcome",
    "Rule",
    "Tried",
    "draw",
    "operations",
    "optimize",
    "predicted",
    "rule",
    "search",
    "study",
    "summary",
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
