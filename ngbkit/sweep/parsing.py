"""Words on a command line, parsed: lists of numbers, factors, shapes, labels with options."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from ngbkit.errors import UsageError
from ngbkit.sweep.trials import split_labels
from ngbkit.workloads import labels
from ngbkit.workloads.base import FactorValue, Number

IN_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_WORD = re.compile(rf"""(?:{IN_BRACES}|'[^']*'|"[^"]*"|[^\s'"{{])+""")
_QUOTED = re.compile(rf"""({IN_BRACES})|'([^']*)'|"([^"]*)\"""")
_LEFTOVER = re.compile(r"\S+")
# A word of a JSON object whose quotes are gone; the e of 1e5 is none.
_BARE = re.compile(r"(?<![\w.])[A-Za-z_][\w./+-]*")
_JSON_WORDS = ("true", "false", "null")
_RANGE = re.compile(r"[^:]+:[^:]+(:[^:]+)?")
_MOST_VALUES = 100_000
# Of the values of a factor: a comma outside quotes, and a text that needs no quotes.
_OUTER_COMMA = re.compile(r',(?=(?:[^"]*"[^"]*")*[^"]*$)')
_PLAIN = re.compile(r"\w[\w.+/-]*")
# The side of a shape, with no more digits than a tensor can have elements.
_SIDE = re.compile(r"0*[1-9][0-9]{0,17}")
# As texts, all of these are true in Python: a model that gets one as a switch would be another one than was meant.
_NO_TEXTS = ("true", "false", "none", "null")


def split_words(line: str) -> list[str]:
    """The words of a magic's line, split at blanks that are neither quoted nor inside braces.

    >>> split_words('resnet18 -c identity,openvino{"hint": "throughput"}')
    ['resnet18', '-c', 'identity,openvino{"hint": "throughput"}']
    """
    unclosed = _LEFTOVER.search(_WORD.sub("", line))
    if unclosed:
        raise UsageError(f"invalid line: got {line.strip()!r}, in which {unclosed[0][0]} is never closed. Close it.")
    return [_QUOTED.sub(lambda piece: piece[1] or piece[2] or piece[3] or "", word) for word in _WORD.findall(line)]


def restore_quotes(label: str) -> str:
    """A label with the quotes in its braces that a shell removes, or that the user left out.

    >>> restore_quotes("openvino{hint:throughput}"), restore_quotes("resnet18{img_size=160}")
    ('openvino{"hint":"throughput"}', 'resnet18{"img_size":160}')
    """
    name, braces = labels.separate(label)
    if '"' in braces:
        return label
    quoted = _BARE.sub(lambda word: word[0] if word[0] in _JSON_WORDS else json.dumps(word[0]), braces)
    return name + quoted.replace("=", ":")


def parse_compilers(text: str) -> list[str]:
    """The labels in ``identity,openvino{hint:throughput}``."""
    compilers = [restore_quotes(label) for label in split_labels(text)]
    torn = next((label for label in compilers if ":" in labels.separate(label)[0]), None)
    if torn is not None:
        raise UsageError(
            f"invalid compiler: got {torn!r}, without braces: a shell expands braces around a comma. "
            """Quote them: -c 'openvino{"hint":"latency","precision":"f32"}'."""
        )
    return compilers


def parse_numbers(kind: str, text: str) -> list[Number]:
    """The numbers in ``64,96``, ``1:6`` (both ends included) or ``1:9:2``; errors call them `kind`."""
    pieces = [piece.strip() for piece in text.split(",")]
    try:
        return [number for piece in pieces for number in _parse_range(piece)]
    except (ValueError, OverflowError):
        raise UsageError(
            f"invalid {kind}: got {text!r}; expected values such as 64,96, or a range with both its ends such as 1:6 "
            "or 1:9:2."
        ) from None


def parse_factor_values(kind: str, text: str) -> list[FactorValue]:
    """The values in ``64,96``, ``1:6`` or ``plain,residual``; a quoted one is a text; errors call them `kind`.

    >>> parse_factor_values("factor kernel", '"3","5"'), parse_factor_values("factor variant", "plain,residual")
    (['3', '5'], ['plain', 'residual'])
    """
    pieces = [piece.strip() for piece in _OUTER_COMMA.split(text)]
    invalid = next((piece for piece in pieces if piece.lower() in _NO_TEXTS), None)
    if invalid is not None:
        raise UsageError(
            f"invalid {kind}: got {invalid!r}, which would be a text; expected numbers, such as 0,1, or texts, such as "
            f'on,off. If the text is meant, quote it: "{invalid}".'
        )
    try:
        values = [value for piece in pieces for value in _parse_factor_value(piece)]
    except (ValueError, OverflowError):
        raise UsageError(
            f"invalid {kind}: got {text!r}; expected numbers such as 64,96, a range with both its ends such as 1:6 or "
            '1:9:2, or texts such as plain,residual. Quote texts with other signs: "a:b".'
        ) from None
    if len({isinstance(value, str) for value in values}) > 1:
        quoted = ",".join(piece if piece.startswith('"') else f'"{piece}"' for piece in pieces)
        raise UsageError(
            f"invalid {kind}: got {text!r}, numbers and texts; expected only numbers or only texts. For texts, quote "
            f"the numbers: {quoted} (in a shell, in single quotes)."
        )
    return values


def parse_factors(texts: Iterable[str]) -> dict[str, list[FactorValue]]:
    """The values by factor in several ``width=64,96``."""
    factors: dict[str, list[FactorValue]] = {}
    for text in texts:
        name, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier():
            raise UsageError(
                f"invalid --factor: got {text!r}; expected NAME=VALUES, such as --factor width=64,96, --factor "
                "depth=1:6 or --factor variant=plain,residual."
            )
        if name in factors:
            raise UsageError(f"invalid --factor: got {name} twice. Give all its values at once: --factor {name}=64,96.")
        factors[name] = parse_factor_values(f"factor {name}", values)
    return factors


def parse_shape(text: str) -> tuple[int, ...]:
    """The shape of one sample in ``3,224,224``."""
    sides = [side.strip() for side in text.strip("(), ").split(",")]
    if not all(map(_SIDE.fullmatch, sides)):
        raise UsageError(f"invalid --input-shape: got {text!r}; expected the shape of one sample, such as 3,224,224.")
    return tuple(int(side) for side in sides)


def parse_statuses(texts: Iterable[str] | None) -> list[str]:
    """The statuses in several ``timeout,crashed``."""
    return [status for text in texts or () for status in split_labels(text)]


def format_numbers(values: Sequence[Number]) -> str:
    """The numbers as `parse_numbers` reads them, as a range if they are one."""
    first, last = values[0], values[-1]
    if len(values) > 2 and isinstance(first, int) and list(values) == list(range(first, first + len(values))):
        return f"{first}:{last}"
    return ",".join(map(str, values))


def format_factor_values(values: Sequence[FactorValue]) -> str:
    """The values as `parse_factor_values` reads them: texts in quotes if they need some."""
    numbers = [value for value in values if not isinstance(value, str)]
    texts = (text if _is_plain(text) else f'"{text}"' for text in map(str, values))
    return format_numbers(numbers) if numbers else ",".join(texts)


def format_factors(factors: Mapping[str, Sequence[FactorValue]]) -> list[str]:
    """The texts that `parse_factors` reads."""
    return [f"{name}={format_factor_values(values)}" for name, values in factors.items()]


def _is_plain(text: str) -> bool:
    """Return whether a text needs no quotes: it is a word, and no number or switch."""
    return _PLAIN.fullmatch(text) is not None and text.lower() not in _NO_TEXTS and not _is_numeric(text)


def _is_numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _parse_factor_value(piece: str) -> list[FactorValue]:
    if len(piece) > 2 and piece[0] == piece[-1] == '"':
        return [piece[1:-1]]
    return [piece] if _is_plain(piece) else [*_parse_range(piece)]


def _parse_range(piece: str) -> list[Number]:
    if not _RANGE.fullmatch(piece):
        return [_parse_number(piece)]
    first, last, *steps = (_parse_number(part) for part in piece.split(":"))
    step = steps[0] if steps else 1
    count = int((last - first) / step + 1e-9) + 1 if step else 0
    if not step or (last - first) * step < 0 or count > _MOST_VALUES:
        raise ValueError(piece)
    return [first + index * step for index in range(count)]


def _parse_number(text: str) -> Number:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    try:
        return int(text)
    except ValueError:
        return number
