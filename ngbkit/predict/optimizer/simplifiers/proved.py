"""Models of simplifiers, each proved to compute the same as the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ngbkit.errors import NgbkitError
from ngbkit.predict.optimizer import proof
from ngbkit.predict.optimizer.simplifiers.base import LIMIT_S, Simplifier, simplify
from ngbkit.predict.optimizer.variants import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplified:
    """The result of another tool.

    Parameters
    ----------
    name, version
        The tool; its version is empty if it is not installed.
    error
        The error of its model in float64 against the original, as of a candidate; NaN without a model.
    outcome
        The measured speed-up of its model, or the reason why there is none.
    """

    name: str
    version: str
    error: float
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplification:
    """The model of a tool before it is measured: its file, or the problem."""

    name: str
    version: str
    error: float = float("nan")
    file: Path | None = None
    problem: str = ""


def simplify_all(
    tools: Iterable[Simplifier],
    start: Path,
    folder: Path,
    report: Callable[[str], None] | None = None,
    limit_s: float = LIMIT_S,
) -> list[Simplification]:
    """Simplify a static ONNX file with each tool, and prove each result; a tool that fails is a problem, no error."""
    simplifications = []
    for tool in tools:
        if report is not None:
            report(f"simplifying with {tool.name}")
        simplifications.append(_simplify(tool, start, folder / f"simplified-{tool.name}.onnx", limit_s))
    return simplifications


def _simplify(tool: Simplifier, start: Path, file: Path, limit_s: float) -> Simplification:
    problem = simplify(tool, start, file, limit_s)
    if problem:
        return Simplification(name=tool.name, version=tool.version, problem=problem)
    try:
        error = proof.measure_error(start, file)
    except NgbkitError as failure:
        return Simplification(name=tool.name, version=tool.version, problem=f"cannot be proved: {failure}")
    if error > proof.LIMIT:
        problem = f"wrong result: error {error:.3g} in float64"
        return Simplification(name=tool.name, version=tool.version, error=error, problem=problem)
    return Simplification(name=tool.name, version=tool.version, error=error, file=file)
