"""Checks of plain JSON against type annotations: data from outside becomes typed and bounded values here.

A record class, or a TypedDict, declares its fields once; `parse` converts JSON to it, or says which field is invalid.
Bounds are part of the annotation: see `Range`. Every text is cleaned, since a terminal obeys control characters, and
no file can store half of a surrogate pair.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

Parser = Callable[[Any], Any]

MAX_LINE = 2000
# A traceback and the end of a log have less than half of this.
MAX_TEXT = 200_000
# JSON that nests deeper than this is not ours; Python's own limit is near 1000.
_MAX_DEPTH = 50
# Larger integers are neither counts nor identifiers, and overflow where an array is made of them.
_MAX_INTEGER = 1 << 64
_INFINITIES = (math.inf, -math.inf)
# JSON has no such numbers, and up to ngbkit 0.1 an event had them as text.
_NO_NUMBERS = ("nan", "inf", "-inf")
_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


class SchemaError(ValueError):
    """A value does not fit its annotation."""


@dataclass(frozen=True, slots=True)
class Range:
    """The bounds of a number, both ends included; a float must be finite."""

    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class Clean:
    """How a text is cleaned: ``"line"`` has no line breaks."""

    kind: Literal["line", "text"]


Count = Annotated[int, Range(0, 1 << 53)]
PositiveCount = Annotated[int, Range(1, 1 << 53)]
Round = Annotated[int, Range(0, (1 << 31) - 1)]
Seconds = Annotated[float, Range(0)]
Finite = Annotated[float, Range()]
Positive = Annotated[float, Range(5e-324)]
Line = Annotated[str, Clean("line")]
Text = Annotated[str, Clean("text")]


def parse(annotation: Any, value: Any) -> Any:
    """Convert JSON to the annotated type.

    Integral floats count as integers, and integers as floats; unknown keys of a TypedDict are kept as plain JSON.

    Raises
    ------
    SchemaError
        The value is of another type or out of bounds; the message names the field.
    """
    return _build_parser(annotation)(value)


def clean_line(text: str) -> str:
    """Return foreign text as one short line without control characters and escape sequences."""
    if len(text) <= MAX_LINE and text.isprintable():
        return text
    if not text[:MAX_LINE].isprintable():
        text = _ESCAPE_SEQUENCE.sub("", text[: 2 * MAX_LINE])
        text = "".join(character if character.isprintable() else " " for character in text)
    return text[:MAX_LINE]


def clean_text(text: str) -> str:
    """Return the end of foreign text without control characters and escape sequences, except line breaks and tabs."""
    text = text[-MAX_TEXT:]
    if text.translate(_LAYOUT).isprintable():
        return text
    text = _ESCAPE_SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)


def describe(value: Any) -> str:
    """Describe an invalid value in a few clean words; a container by its type, since it may be large."""
    if isinstance(value, (Mapping, list, tuple)):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        return f"an integer of {value.bit_length()} bits"
    return clean_line(repr(value[:80] if isinstance(value, str) else value)[:80])


_LAYOUT = {ord("\n"): None, ord("\t"): None}


@cache
def _build_parser(annotation: Any) -> Parser:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _build_annotated(arguments[0], arguments[1])
    if origin in (Union, types.UnionType):
        return _build_optional(annotation, [each for each in arguments if each is not type(None)])
    if origin is Literal:
        return _build_choice(arguments)
    if origin is tuple:
        return _build_sequence(_build_parser(arguments[0]), tuple)
    if origin is list:
        return _build_sequence(_build_parser(arguments[0]), list)
    if origin in (dict, Mapping):
        return _build_mapping(_build_parser(arguments[1]))
    if is_dataclass(annotation):
        return _build_record(annotation)
    if is_typeddict(annotation):
        return _build_typed_dict(annotation)
    return _PLAIN[annotation]


def _build_annotated(kind: type, limits: Range | Clean) -> Parser:
    if isinstance(limits, Clean):
        clean = {"line": clean_line, "text": clean_text}[limits.kind]
        return lambda value: clean(_check(value, str, "a text"))
    convert, low, high = _build_parser(kind), limits.low, limits.high
    valid, exact = _describe_range(kind, limits), float if kind is float else None

    def parse_number(value: Any) -> Any:
        number = value if type(value) is exact else convert(value)
        if not low <= number <= high or number in _INFINITIES:
            raise SchemaError(f"got {describe(value)}; expected {valid}")
        return number

    return parse_number


def _describe_range(kind: type, limits: Range) -> str:
    noun = "an integer" if kind is int else "a finite number"
    if limits.high != math.inf:
        return f"{noun} from {limits.low:g} to {limits.high:g}"
    return noun if limits.low == -math.inf else f"{noun} of at least {limits.low:g}"


def _build_optional(annotation: Any, kinds: list[Any]) -> Parser:
    if len(kinds) != 1:
        raise TypeError(f"{annotation} is no type of a record: only None may be beside a type")
    convert = _build_parser(kinds[0])
    return lambda value: None if value is None else convert(value)


def _build_choice(choices: tuple[Any, ...]) -> Parser:
    def parse_choice(value: Any) -> Any:
        if not isinstance(value, str) or value not in choices:
            raise SchemaError(f"got {describe(value)}; expected one of {', '.join(choices)}")
        return value

    return parse_choice


def _build_sequence(convert: Parser, kind: Callable[[Any], Any]) -> Parser:
    def parse_sequence(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise SchemaError(f"got {describe(value)}; expected a list")
        return kind([convert(item) for item in value])

    return parse_sequence


def _build_mapping(convert: Parser) -> Parser:
    def parse_mapping(value: Any) -> Any:
        items = _check(value, Mapping, "an object")
        return {clean_line(_check(name, str, "a text")): convert(item) for name, item in items.items()}

    return parse_mapping


def _build_record(kind: Any) -> Parser:
    hints = get_type_hints(kind, include_extras=True)
    parsers = {each.name: _build_parser(hints[each.name]) for each in fields(kind)}
    required = {each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING}

    def parse_record(value: Any) -> Any:
        items = _check(value, Mapping, "an object")
        if missing := required - items.keys():
            raise SchemaError(f"it has no {min(missing)}")
        if unknown := items.keys() - parsers.keys():
            raise SchemaError(f"it has an unknown field {describe(min(map(str, unknown)))}")
        return kind(**_parse_fields(parsers, items))

    return parse_record


def _build_typed_dict(kind: Any) -> Parser:
    hints = get_type_hints(kind, include_extras=True)
    parsers = {name: _build_parser(hint) for name, hint in hints.items()}

    def parse_typed_dict(value: Any) -> Any:
        items = _check(value, Mapping, "an object")
        if missing := kind.__required_keys__ - items.keys():
            raise SchemaError(f"it has no {min(missing)}")
        return _parse_fields(parsers, {clean_line(_check(name, str, "a text")): items[name] for name in items})

    return parse_typed_dict


def _parse_fields(parsers: Mapping[str, Parser], items: Mapping[str, Any]) -> dict[str, Any]:
    """Convert fields by name; those without a parser stay plain JSON."""
    converted: dict[str, Any] = {}
    name = ""
    try:
        for name, item in items.items():
            converted[name] = parsers.get(name, _parse_json)(item)
    except SchemaError as error:
        raise SchemaError(f"{name[:80]}: {error}") from None
    return converted


def _check(value: Any, kind: type, noun: str) -> Any:
    if not isinstance(value, kind):
        raise SchemaError(f"got {describe(value)}; expected {noun}")
    return value


def _parse_integer(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MAX_INTEGER:
        raise SchemaError(f"got {describe(value)}; expected an integer")
    return value


def _parse_float(value: Any) -> float:
    if isinstance(value, str) and value in _NO_NUMBERS:
        return float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (isinstance(value, int) and abs(value) > _MAX_INTEGER):
        raise SchemaError(f"got {describe(value)}; expected a number")
    return float(value)


def _parse_json(value: Any, depth: int = 0) -> Any:
    """Any JSON, with clean texts, integers of ordinary size, and no endless nesting."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return _parse_integer(value)
    if depth >= _MAX_DEPTH:
        raise SchemaError(f"got JSON that nests deeper than {_MAX_DEPTH} levels; expected a few")
    if isinstance(value, Mapping):
        return {clean_line(_check(name, str, "a text")): _parse_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_parse_json(item, depth + 1) for item in value]
    raise SchemaError(f"got a {type(value).__name__}; expected plain JSON")


_PLAIN: dict[Any, Parser] = {
    Any: _parse_json,
    str: lambda value: clean_text(_check(value, str, "a text")),
    bool: lambda value: _check(value, bool, "true or false"),
    int: _parse_integer,
    float: _parse_float,
}
