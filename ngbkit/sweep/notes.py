"""The notes of a run beside its records: what each device and each network is, and what tuning has cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from ngbkit import user_text, validation
from ngbkit.errors import JournalError
from ngbkit.sweep.variables import COORDINATES
from ngbkit.validation import Check, Count, Finite, Line, Positive, SchemaError, Seconds, number

# The standard deviation of a logarithm: even of two programs at random it is far below ten.
Deviation = Annotated[float, number(0, 10)]


class Conditions(TypedDict, total=False):
    """The fields of `ngbkit.hardware.conditions.observe` that have readers."""

    warnings: list[Line]
    busiest: list[Line]
    governors: list[Line]
    cores: Count | None
    cores_usable: Count | None
    cores_physical: Count | None
    core_caches: list[Line]
    swapped_pages: Count | None
    cpu_quota_cores: Positive | None
    other_busy_percent: Finite | None
    steal_percent: Finite | None
    temperature_max_c: Finite | None
    turbo: bool | None
    on_battery: bool | None
    virtual_machine: bool | None


class StateNote(TypedDict):
    """The fields of `ngbkit.hardware.host.probe_history.State`."""

    low_s: Seconds
    high_s: Seconds
    mean_s: Seconds
    share: Seconds


class StatesNote(TypedDict, total=False):
    """The states of a host that each probe shows, the usual one first."""

    trip_s: list[StateNote]
    work_s: list[StateNote]


class PeaksNote(TypedDict, total=False):
    """The fields of `ngbkit.device.peaks.Peaks` that have readers, and the seconds of a page fault."""

    flops: Positive | None
    bytes_per_s: Positive | None
    fault_s: Finite | None


class PairNote(TypedDict):
    """The fields of a self-check's pair of compilers that have readers."""

    compiler: Line
    group_sd: Deviation | None
    beside_busy: bool


class Reliability(TypedDict, total=False):
    """The fields of a self-check that have readers."""

    process_sd: Deviation | None
    pairs: list[PairNote]


class HistoryNote(TypedDict, total=False):
    """The fields of a device's history that have readers."""

    deviations: Mapping[str, Deviation]


class ReleaseNote(TypedDict, total=False):
    """The fields of the environment of a release that have readers, by the label of its column."""

    python: Line
    packages: Mapping[str, Line]
    seconds: Finite
    size_bytes: Count
    refusal: Line


class Environment(TypedDict, total=False):
    """The fields of the description of a device that have readers: see `ngbkit.hardware.environment.describe`."""

    chip: Line
    clock: Finite
    architecture: Line
    accelerator: Line
    system: Line
    python: Line
    governor: Line
    microcode: Line | None
    blas: Line
    kernel_options: list[Line]
    smt: bool | None
    hypervisor: bool | None
    ngbkit_commit: Line
    threads: Count | None
    cores: Count | None
    cores_usable: Count | None
    memory_bytes: Count | None
    packages: Mapping[str, Line]
    releases: Mapping[str, ReleaseNote]
    conditions: Conditions
    states: StatesNote
    peaks: PeaksNote
    selfcheck: Reliability | None
    history: HistoryNote | None
    variables: Mapping[str, Line]
    change: Line


class Ending(TypedDict):
    """The state of a run: ``running``, or how it ended, with the reason if it failed."""

    state: Line
    error: Line


class ContentNote(TypedDict):
    """The content of a network on a device (`ngbkit.device.contents`), and the hash of that device's settings."""

    digest: Line
    settings: Line


class TuningCost(TypedDict):
    """The cost of the search for fast code of one trial."""

    seconds: Finite


def parse(kind: str, key: Any, value: Any) -> Any:
    """Return the value of a note, with its texts cleaned, or raise JournalError if it is not of its kind."""
    try:
        if not isinstance(key, str):
            raise SchemaError(f"got the key {validation.describe(key)}; expected a text")
        if kind in ("facts", "content"):
            _check_facts_key(key)
        if kind == "facts":
            return validation.parse_fields(_FACTS, value)
        return validation.parse(_ANNOTATIONS.get(kind, Any), value)
    except SchemaError as error:
        raise JournalError(f"invalid {kind} {user_text.clean_line(str(key)[:80])}: {error}.") from None


def _check_facts_key(key: str) -> None:
    """Check that the key of the facts of a network is its name with its factors (`facts_key`)."""
    try:
        name, factors = json.loads(key)
        validation.parse(Line, name)
        for level in validation.parse(Mapping[str, Any], factors).values():
            validation.parse(Line if isinstance(level, str) else Finite, level)
    except (TypeError, ValueError, RecursionError):
        raise SchemaError("expected the name of a network and its factors as its key") from None


def _check_number(value: Any) -> Any:
    """Check a finite number, and keep an integer as it is."""
    validation.parse(Finite, value)
    return value


_NUMBER = Annotated[float, Check(_check_number, "")] | None
_FACTS = {name: _NUMBER if variable.units else Line | None for name, variable in COORDINATES.items()}
"""The facts of a network that the dataset has."""
_ANNOTATIONS: Mapping[str, Any] = {
    "environment": Environment,
    "description": Environment,
    "tuning": TuningCost,
    "ending": Ending,
    "content": Mapping[str, ContentNote],
    "guide": Line,
    "retried": Line,
}
