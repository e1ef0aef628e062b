"""A network that somebody brought, the options to measure it with, and the right result of each trial."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.workloads.base import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The status of a trial, and a pattern of its reason."""

    # A pattern: ``"ok|not-checked"`` where the two are right.
    status: str
    reason: str = ""


OK = Outcome(status="ok")


def expect_refusal(reason: str) -> Outcome:
    """Expect an error before anything is measured."""
    return Outcome(status="refused", reason=reason)


def expect_unsupported(reason: str) -> Outcome:
    """Expect a trial that the runtime itself refuses for a reason."""
    return Outcome(status="unsupported", reason=reason)


def expect_failure(reason: str) -> Outcome:
    """Expect a reason instead of a measurement, before the run or in the trial."""
    return Outcome(status="refused|failed|unsupported", reason=reason)


def expect_unchecked(reason: str) -> Outcome:
    """Expect a trial that is measured, and says why its outputs could not be compared."""
    return Outcome(status="not-checked", reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network, and what is right for it."""

    name: str
    # Writes the files of the network into a folder, and returns the one to measure; or returns the workload itself.
    build: Callable[[Path], Path | Workload]
    outcome: Outcome = OK
    # Exceptions to `outcome`, by compiler, by batch size, or by both.
    outcomes: Mapping[str | int | tuple[str, int], Outcome] = field(default_factory=dict)
    compilers: tuple[str, ...] = ("identity", "onnxruntime")
    batch_sizes: tuple[int, ...] = (2,)
    factors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    # The options `inputs` and `batch_axis`; a sweep of its own measures a case that has them.
    inputs: Mapping[str, np.ndarray] | None = None
    batch_axis: Mapping[str, int | None] | None = None

    def __str__(self) -> str:
        return self.name

    def get_outcome(self, compiler: str, batch_size: int) -> Outcome:
        """Return the right outcome of a trial."""
        keys = ((compiler, batch_size), compiler, batch_size)
        return next((self.outcomes[key] for key in keys if key in self.outcomes), self.outcome)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the sweep that only this case has."""
        pairs = {"inputs": self.inputs, "batch_axis": self.batch_axis}
        return {name: value for name, value in pairs.items() if value is not None}
