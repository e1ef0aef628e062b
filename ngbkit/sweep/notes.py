"""The notes of a run beside its records: what each device and each network is, and what tuning has cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypedDict

from ngbkit.errors import JournalError
from ngbkit.sweep import schema
from ngbkit.sweep.schema import Count, Finite, Line, Positive, Range, SchemaError
from ngbkit.sweep.variables import COORDINATES

# The standard deviation of a logarithm: even of two programs at random it is far below ten.
Deviation = Annotated[float, Range(0, 10)]


class Conditions(TypedDict, total=False):
    """The fields of `ngbkit.hardware.conditions.observe` that have readers."""

    warnings: list[Line]
    busiest: list[Line]
    governors: list[Line]
    cores: Count | None
    cores_usable: Count | None
    cores_physical: Count | None
    swapped_pages: Count | None
    cpu_quota_cores: Positive | None
    other_busy_percent: Finite | None
    steal_percent: Finite | None
    temperature_max_c: Finite | None
    turbo: bool | None
    on_battery: bool | None
    virtual_machine: bool | None


class Peaks(TypedDict, total=False):
    """The fields of `ngbkit.device.peaks.Peaks` that have readers."""

    flops: Positive | None
    bytes_per_s: Positive | None


class Pair(TypedDict):
    """The fields of a self-check's pair of compilers that have readers."""

    compiler: Line
    group_sd: Deviation | None
    beside_busy: bool


class Reliability(TypedDict, total=False):
    """The fields of a self-check that have readers."""

    process_sd: Deviation | None
    pairs: list[Pair]


class History(TypedDict, total=False):
    """The fields of a device's history that have readers."""

    deviations: Mapping[str, Deviation]


class Environment(TypedDict, total=False):
    """The fields of the description of a device that have readers: see `ngbkit.hardware.environment.describe`."""

    chip: Line
    architecture: Line
    accelerator: Line
    system: Line
    python: Line
    governor: Line
    ngbkit_commit: Line
    threads: Count | None
    cores: Count | None
    cores_usable: Count | None
    memory_bytes: Count | None
    packages: Mapping[str, Line]
    conditions: Conditions
    peaks: Peaks
    selfcheck: Reliability | None
    history: History | None


class TuningCost(TypedDict):
    """What the search for fast code of one trial has cost."""

    seconds: Finite
    candidates: Finite


def parse(kind: str, key: Any, value: Any) -> Any:
    """Return the value of a note if it is valid, with its texts cleaned.

    Raises
    ------
    JournalError
        The note is not of its kind.
    """
    try:
        if not isinstance(key, str):
            raise SchemaError(f"got the key {schema.describe(key)}; expected a text")
        convert: Callable[[str, Any], Any] = _PARSERS.get(kind, _parse_any)
        return convert(key, value)
    except SchemaError as error:
        raise JournalError(f"invalid {kind} {schema.clean_line(str(key)[:80])}: {error}.") from None


def _parse_as(annotation: Any, key: str, value: Any) -> Any:
    del key
    return schema.parse(annotation, value)


def _parse_facts(key: str, value: Any) -> dict[str, Any]:
    """Check the facts of a network, of which those of the dataset have a type, and their key (`facts_key`)."""
    try:
        name, factors = json.loads(key)
        schema.parse(Line, name)
        schema.parse(Mapping[str, Any], factors)
        for level in factors.values():
            schema.parse(Line if isinstance(level, str) else Finite, level)
    except (TypeError, ValueError, RecursionError):
        raise SchemaError("expected the name of a network and its factors as its key") from None
    facts: dict[str, Any] = schema.parse(Mapping[str, Any], value)
    for name in sorted(COORDINATES.keys() & facts.keys()):
        try:
            facts[name] = (_parse_number if COORDINATES[name].units else _parse_line)(facts[name])
        except SchemaError as error:
            raise SchemaError(f"{name}: {error}") from None
    return facts


def _parse_number(value: Any) -> Any:
    """Check a number, and keep an integer as it is."""
    if value is not None:
        schema.parse(Finite, value)
    return value


def _parse_any(key: str, value: Any) -> Any:
    return _parse_as(Any, key, value)


def _parse_line(value: Any) -> Any:
    return None if value is None else schema.parse(Line, value)


_PARSERS: Mapping[str, Callable[[str, Any], Any]] = {
    "environment": partial(_parse_as, Environment),
    "facts": _parse_facts,
    "tuning": partial(_parse_as, TuningCost),
    "retried": partial(_parse_as, Line),
}
