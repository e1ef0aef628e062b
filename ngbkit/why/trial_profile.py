"""The profile of one trial: the kernels that ran, the nodes of the network that each computes, and their seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ngbkit import validation
from ngbkit.compilers.profiles.profile import Kernel, Role, SourceNode
from ngbkit.device.timing.normal import MAD_SCALE
from ngbkit.device.timing.profiler_cost import subtract_cost
from ngbkit.errors import MetricError
from ngbkit.user_text import parse_json

Floats = NDArray[np.floating[Any]]
COPY, UNMAPPED = "copy", "unmapped"

# Beyond so many robust standard deviations above the median, other work slowed a round.
_OUTLYING = 4.0
_Call = Annotated[float, validation.number(1e-12, 1e9)]
_KernelTime = Annotated[float, validation.number(0, 1e9)]


class _KernelRecord(TypedDict):
    name: str
    kind: str
    nodes: list[validation.Count]
    role: Role
    seconds: list[list[_KernelTime | None]]


class _Calls(TypedDict):
    plain: list[list[_Call]]
    profiled: list[list[_Call]]


class _Source(TypedDict):
    digest: str
    form: str


class _ProfileRecord(TypedDict):
    """The record of `ngbkit.device.isolation.profiling.build_record`."""

    nodes: list[list[str]]
    kernels: list[_KernelRecord]
    calls: _Calls
    source: _Source
    notes: list[str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrialProfile:
    """The profile of one trial."""

    nodes: tuple[SourceNode, ...]  # the network in topological order
    kernels: tuple[Kernel, ...]  # what ran
    seconds: Floats  # of each kernel in each round, the median of the profiled calls, without the profiler's own cost
    plain: Floats  # of a whole call without the profiler in each round
    is_outlying: NDArray[np.bool_]  # whether other work slowed a round
    cost: float  # the share by which the profiler slowed a call
    digest: str  # of the source network
    form: str
    notes: tuple[str, ...]  # what cannot be mapped, and why, in sentences

    @property
    def mapped_share(self) -> float:
        """The share of kernel time whose origin in the network is known; copies count as known."""
        times = self.seconds.mean(axis=1)
        is_known = [kernel.role == COPY or is_mapped(kernel) for kernel in self.kernels]
        return float(times[np.array(is_known, dtype=bool)].sum() / times.sum()) if times.sum() > 0 else 0.0


def is_mapped(kernel: Kernel) -> bool:
    """Return whether the nodes that a kernel computes are known; a copy computes none."""
    return bool(kernel.nodes) and kernel.role not in (COPY, UNMAPPED)


def parse_profile(text: str) -> TrialProfile:
    """Parse the variable ``profile`` of a trial; MetricError if it has no kernels, or is damaged."""
    try:
        data: _ProfileRecord = validation.parse(_ProfileRecord, parse_json(text))
        if not data["kernels"]:
            reason = "; ".join(data["notes"]).rstrip(".") or "its runtime tells no kernels"
            raise MetricError(f"missing profile: a column was not profiled: {reason}. Choose another column.")
        return _build(data)
    except MetricError:
        raise
    except ValueError as error:
        raise MetricError(
            f"invalid profile: got {text[:60]!r}, which does not parse ({error}); expected the variable `profile` as "
            "it was measured. Measure it again with --profile."
        ) from error


def _build(data: _ProfileRecord) -> TrialProfile:
    if any(node >= len(data["nodes"]) for each in data["kernels"] for node in each["nodes"]):
        raise ValueError(f"a kernel computes a node that is none of the {len(data['nodes'])}")
    kernels = tuple(
        Kernel(name=each["name"], kind=each["kind"], nodes=tuple(each["nodes"]), role=each["role"])
        for each in data["kernels"]
    )
    plain, profiled = _reduce_rounds(data["calls"]["plain"]), _reduce_rounds(data["calls"]["profiled"])
    measured = np.array([_reduce_rounds(each["seconds"]) for each in data["kernels"]], dtype=float)
    rounds = min(len(plain), len(profiled), measured.shape[1])
    is_whole = np.isfinite(plain[:rounds]) & np.isfinite(profiled[:rounds])
    plain, profiled = plain[:rounds][is_whole], profiled[:rounds][is_whole]
    if len(plain) < 2:
        raise ValueError(f"it has {len(plain)} rounds")
    # Older runs have profiles whose cost is between the kernels.
    delayed = profiled if data.get("delays", True) else None
    seconds = subtract_cost(np.nan_to_num(measured[:, :rounds][:, is_whole]), plain, delayed)
    # A session that profiles may be slower as a whole: its kernels then take no longer than a call without it.
    sums = seconds.sum(axis=0)
    slowness = float(np.median(sums / plain))
    return TrialProfile(
        nodes=tuple(SourceNode(name=name, operator=kind, module=module) for name, kind, module in data["nodes"]),
        kernels=kernels,
        seconds=seconds / max(slowness, 1.0),
        plain=plain,
        is_outlying=_find_outlying(plain) | _find_outlying(profiled),
        cost=float(np.median(profiled / plain)) - 1,
        digest=data["source"]["digest"],
        form=data["source"]["form"],
        notes=tuple(data["notes"]),
    )


def _reduce_rounds(rounds: Sequence[Sequence[float | None]]) -> Floats:
    """Reduce the calls of each round to their median, NaN where the profiler tells nothing."""
    values = [[call for call in calls if call is not None] for calls in rounds]
    return np.array([np.median(calls) if calls else np.nan for calls in values], dtype=float)


def _find_outlying(values: Floats) -> NDArray[np.bool_]:
    """Find the rounds that are slower than the others by more than their spread."""
    middle = np.median(values)
    spread = MAD_SCALE * np.median(np.abs(values - middle))
    return np.asarray(values > middle + np.maximum(_OUTLYING * spread, 0.02 * middle))
