"""What a user gave, checked where it comes in: the value as it is kept from then on, or what would have been valid."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from ngbkit.errors import UsageError

Number = int | float

# A factor is a dim of the dataset beside these, which are its other dims, its variables and its coordinates.
RESERVED = frozenset(
    {
        *("device", "workload", "compiler", "batch_size", "repeat"),
        *(
            "latency",
            "round",
            "disturbed",
            "anchor_latency",
            "anchor_round",
            "calls_per_sample",
            "interleaved",
            "looks",
        ),
        *("throughput", "compile_time", "compile_time_warm", "first_call_time"),
        *("cpu_percent", "process_cpu_percent", "peak_memory", "gpu_percent", "gpu_memory"),
        *("energy", "max_abs_error", "rmse_ratio", "contract", "status", "error"),
        *("nodes_before", "nodes_after", "nodes_fused", "fallbacks", "graph_breaks", "facts"),
        *("parameters", "mult_adds", "macs", "weight_bytes", "input_bytes", "output_bytes", "baseline"),
    }
)


def count(kind: str, value: Any, least: int = 1) -> int:
    """An integer of at least `least`; `kind` is what the error calls it, here and below."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"{kind} {value!r} does not fit; valid is an integer of at least {least}.")
    return value


def counts(kind: str, given: int | Iterable[int]) -> tuple[int, ...]:
    """One positive integer or several, each once."""
    values = [given] if isinstance(given, int) else list(given)
    if not values:
        raise UsageError(f"a sweep needs at least one {kind}.")
    found = tuple(count(kind, value) for value in values)
    once(kind, found)
    return found


def seconds(kind: str, value: Any) -> float:
    """A finite number of seconds above 0."""
    if not _is_number(value) or not 0 < value < math.inf:
        raise UsageError(f"{kind} {value!r} does not fit; valid is a number of seconds above 0.")
    return float(value)


def precision(value: Any) -> float:
    """A relative half width: a share such as 0.01, or a text such as ``"1%"``."""
    given = value
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            value = None
    if not _is_number(value) or not 0 < value < 1:
        raise UsageError(f"precision {given!r} does not fit; valid is a share between 0 and 1, such as 0.01 or '1%'.")
    return float(value)


def numbers(kind: str, given: Number | Iterable[Number]) -> tuple[Number, ...]:
    """One number or several, each once."""
    values = [given] if isinstance(given, (int, float)) else list(given)
    if not values or not all(_is_number(value) for value in values):
        raise UsageError(f"{kind} {values!r} does not fit; valid is one number or more.")
    once(kind, values)
    return tuple(values)


def once(kind: str, values: Sequence[object]) -> None:
    """None of them is there twice."""
    twice = sorted({str(value) for value in values if list(values).count(value) > 1})
    if twice:
        raise UsageError(f"the {kind} {', '.join(twice)} is asked for twice; name each once.")


def flag(kind: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise UsageError(f"{kind} {value!r} does not fit; valid is True or False.")
    return value


def choice(kind: str, value: Any, valid: Sequence[str]) -> str:
    """One of the words that are valid."""
    if value not in valid:
        raise UsageError(f"{kind} {value!r} does not fit; valid is {' or '.join(map(repr, valid))}.")
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
