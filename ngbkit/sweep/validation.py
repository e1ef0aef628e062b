"""Checks of what a user gave: each returns the value as it is kept, or says what is valid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs

from ngbkit.errors import UsageError
from ngbkit.workloads.base import FactorValue

Check = Callable[[str, Any], Any]
"""Takes what an error calls the value, and the value."""


# Of the integers of compilers and files.
_MOST = 2**63 - 1


def count(kind: str, value: Any, least: int = 1) -> int:
    """An integer of at least `least`; the error calls it `kind`, here and below."""
    if isinstance(value, int) and abs(value) > _MOST:
        raise UsageError(f"invalid {kind}: got a number of over 18 digits; expected {least} to {_MOST}.")
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"invalid {kind}: got {value!r}; expected an integer >= {least}.")
    return value


def counts(kind: str, value: int | Iterable[int]) -> tuple[int, ...]:
    """One positive integer or several, each once."""
    values = [value] if isinstance(value, int) else list(value)
    if not values:
        raise UsageError(f"invalid {kind}: got none; expected at least one integer >= 1.")
    checked = tuple(count(kind, each) for each in values)
    unique(kind, checked)
    return checked


def seconds(kind: str, value: Any) -> float:
    """A finite number of seconds above 0."""
    if not is_number(value) or not 0 < value < math.inf:
        raise UsageError(f"invalid {kind}: got {value!r}; expected a number of seconds above 0.")
    return float(value)


def multiple(kind: str, value: Any) -> float:
    """A finite number of at least 0."""
    if not is_number(value) or not 0 <= value < math.inf:
        raise UsageError(f"invalid {kind}: got {value!r}; expected a number >= 0, such as 2.")
    return float(value)


def precision(value: Any) -> float:
    """A relative half width: a share such as 0.01, or a text such as ``"1%"``."""
    share = _parse_share(value)
    if not 0 < share < 1:
        raise UsageError(f"invalid precision: got {value!r}; expected a share between 0 and 1, such as 0.01 or '1%'.")
    return share


def margin(value: Any) -> float:
    """A slowdown that is accepted: a share such as 0.02, or a text such as ``"2%"``; it may be 0."""
    share = _parse_share(value)
    if not 0 <= share < 1:
        raise UsageError(f"invalid margin: got {value!r}; expected a share from 0 to below 1, such as 0.02 or '2%'.")
    return share


def _parse_share(value: Any) -> float:
    """A share as a number, also of a text in percent; NaN for anything else."""
    if isinstance(value, str):
        text = value.strip()
        try:
            value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        except ValueError:
            return math.nan
    return float(value) if is_number(value) else math.nan


def factor_values(kind: str, value: FactorValue | Iterable[FactorValue]) -> tuple[FactorValue, ...]:
    """One number or text, or several of the same type, each once."""
    values = [value] if isinstance(value, (int, float, str)) else list(value)
    if not values or not all(isinstance(each, str) or is_number(each) for each in values):
        raise UsageError(f"invalid {kind}: got {values!r}; expected one or more numbers, or one or more texts.")
    if len({isinstance(each, str) for each in values}) > 1:
        texts = ", ".join(repr(str(each)) for each in values)
        raise UsageError(
            f"invalid {kind}: got {values!r}, numbers and texts; expected only numbers or only texts. For texts, write "
            f"[{texts}]."
        )
    for each in values:
        if isinstance(each, str) and not _is_label(each):
            raise UsageError(
                f"invalid {kind}: got {each!r}; expected texts of one line without double quotes and without blanks "
                "at their ends, which label the results. Choose another text, and map it in the cell."
            )
    unique(kind, values)
    return tuple(str(each) if isinstance(each, str) else each for each in values)


def _is_label(text: str) -> bool:
    return bool(text) and text.isprintable() and '"' not in text and text == text.strip()


def unique(kind: str, values: Sequence[object]) -> None:
    """Refuse values that are there twice."""
    repeated = sorted({str(value) for value in values if list(values).count(value) > 1})
    if repeated:
        raise UsageError(f"invalid {kind}: got {', '.join(repeated)} twice. Name each once.")


def flag(kind: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one."""
    if not isinstance(value, bool):
        raise UsageError(f"invalid {kind}: got {value!r}; expected True or False.")
    return value


def choice(kind: str, value: Any, valid: Sequence[str]) -> str:
    """One of the valid words."""
    if value not in valid:
        raise UsageError(f"invalid {kind}: got {value!r}; expected {' or '.join(map(repr, valid))}.")
    return str(value)


def one_of(valid: Sequence[str]) -> Check:
    """A check for one of the valid words."""
    return lambda kind, value: choice(kind, value, valid)


def at_least(least: int) -> Check:
    """A check for an integer from `least` up."""
    return lambda kind, value: count(kind, value, least)


def optional(check_value: Check) -> Check:
    """A check for None, or for a value that passes another check."""
    return lambda kind, value: None if value is None else check_value(kind, value)


def check(check_value: Check) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """The validator of an attrs field by a check, which then calls the value by the name of the field."""

    def validate(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
        check_value(field.name, value)

    return validate


def is_number(value: Any) -> bool:
    """Whether it is an integer or a float, and not merely counts as one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
