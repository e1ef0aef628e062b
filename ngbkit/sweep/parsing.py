"""The values that a user's words stand for: lists of numbers, factors, shapes, labels with options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from ngbkit.errors import UsageError
from ngbkit.sweep.trials import split_labels
from ngbkit.workloads.base import Number

_IN_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_WORD = re.compile(rf"""(?:{_IN_BRACES}|'[^']*'|"[^"]*"|[^\s'"{{])+""")
_QUOTED = re.compile(rf"""({_IN_BRACES})|'([^']*)'|"([^"]*)\"""")
_LEFTOVER = re.compile(r"\S+")
# A word of a JSON object whose quotes are gone; the e of 1e5 is none.
_BARE = re.compile(r"(?<![\w.])[A-Za-z_][\w./+-]*")
_JSON_WORDS = ("true", "false", "null")
_RANGE = re.compile(r"[^:]+:[^:]+(:[^:]+)?")
_MOST_VALUES = 100_000


def split_words(line: str) -> list[str]:
    """The words of a magic's line, split at blanks that are neither quoted nor inside braces.

    >>> split_words('resnet18 -c identity,openvino{"hint": "throughput"}')
    ['resnet18', '-c', 'identity,openvino{"hint": "throughput"}']

    Raises
    ------
    UsageError
        A quote or a brace that is not closed.
    """
    lost = _LEFTOVER.search(_WORD.sub("", line))
    if lost:
        raise UsageError(f"{lost[0][0]} is opened in {line.strip()!r} and not closed.")
    return [_QUOTED.sub(lambda piece: piece[1] or piece[2] or piece[3] or "", word) for word in _WORD.findall(line)]


def restore_quotes(label: str) -> str:
    """A label with the quotes in its braces that a shell takes away, or that nobody wanted to type.

    >>> restore_quotes("openvino{hint:throughput}"), restore_quotes("resnet18{img_size=160}")
    ('openvino{"hint":"throughput"}', 'resnet18{"img_size":160}')
    """
    name, brace, rest = label.partition("{")
    if not brace or '"' in rest:
        return label
    quoted = _BARE.sub(lambda word: word[0] if word[0] in _JSON_WORDS else json.dumps(word[0]), rest)
    return name + brace + quoted.replace("=", ":")


def read_numbers(kind: str, text: str) -> list[Number]:
    """The numbers that ``64,96``, ``1:6`` (both ends included) or ``1:9:2`` stands for.

    Raises
    ------
    UsageError
        It reads as none of these; `kind` says what it was meant to be.
    """
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        return [number for piece in pieces for number in _stretch(piece)]
    except (ValueError, OverflowError):
        raise UsageError(
            f"{kind} {text!r} does not read; write values as 64,96, or a range with both its ends as 1:6 or 1:9:2."
        ) from None


def read_factors(given: Iterable[str]) -> dict[str, list[Number]]:
    """The values by factor that several ``width=64,96`` ask for.

    Raises
    ------
    UsageError
        Not ``NAME=VALUES``, or a factor that is given twice.
    """
    factors: dict[str, list[Number]] = {}
    for text in given:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(
                f"--factor {text!r} does not read; write it as --factor width=64,96 or --factor depth=1:6."
            )
        if name in factors:
            raise UsageError(f"the factor {name} is given twice; name all its values at once: --factor {name}=64,96.")
        factors[name] = read_numbers(f"factor {name}", values)
    return factors


def read_shape(text: str) -> tuple[int, ...]:
    """The shape of one sample that ``3,224,224`` stands for.

    Raises
    ------
    UsageError
        It is not made of positive integers.
    """
    sides = [side.strip() for side in text.strip("(), ").split(",")]
    if not all(side.isdecimal() and int(side) for side in sides):
        raise UsageError(f"--input-shape {text!r} does not fit; valid is the shape of one sample, such as 3,224,224.")
    return tuple(int(side) for side in sides)


def read_statuses(given: Iterable[str] | None) -> list[str]:
    """The statuses that one or more ``timeout,crashed`` name."""
    return [status for text in given or () for status in split_labels(text)]


def _stretch(piece: str) -> list[Number]:
    if not _RANGE.fullmatch(piece):
        return [_number(piece)]
    first, last, *steps = (_number(part) for part in piece.split(":"))
    step = steps[0] if steps else 1
    count = int((last - first) / step + 1e-9) + 1 if step else 0
    if not step or (last - first) * step < 0 or count > _MOST_VALUES:
        raise ValueError(piece)
    return [first + index * step for index in range(count)]


def _number(text: str) -> Number:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if number != number or abs(number) == float("inf"):
        raise ValueError(text)
    return number


def write_numbers(values: Sequence[Number]) -> str:
    """The numbers as `read_numbers` takes them: a range where they are one."""
    first, last = values[0], values[-1]
    if len(values) > 2 and isinstance(first, int) and list(values) == list(range(first, first + len(values))):
        return f"{first}:{last}"
    return ",".join(map(str, values))
