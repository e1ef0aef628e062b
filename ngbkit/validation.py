"""The one validator of what comes from outside: values of users, keys of files, and JSON of other machines.

An annotation declares the valid values, with a `Check` where the type alone does not::

    Count = Annotated[int, integer(0)]

`parse` converts JSON to it, `check` does so for a value that an error names, `parse_table` for each key of a file, and
`check_fields` for each field of an attrs class. Every text is cleaned, since a terminal obeys control characters, and
no file can store half of a surrogate pair.
"""

from __future__ import annotations

import inspect
import json
import math
import re
import reprlib
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import attrs

from ngbkit.errors import UnknownNameError, UsageError, join_or
from ngbkit.user_text import LONGEST_S, MAX_DEPTH, clean_line, clean_text

Parser = Callable[[Any], Any]

# Of the integers of arrays, compilers and files.
_MAX_INTEGER = 2**63 - 1
_MAX_SHOWN = 60
_LEAST = 5e-324


class SchemaError(ValueError):
    """A value does not fit its annotation; the message names the field."""


@dataclass(frozen=True, slots=True)
class Check:
    """The valid values of an annotated type."""

    # Returns the value as it is stored. Raises a ValueError for an invalid one, whose text (if any) names the part.
    convert: Parser
    expected: str  # describes the valid values


def integer(low: int, high: int = _MAX_INTEGER, expected: str = "") -> Check:
    """Build the check of an integer with both its bounds."""

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    bounds = f">= {low}" if high == _MAX_INTEGER else f"from {low} to {high}"
    return Check(convert, expected or f"an integer {bounds}")


def number(low: float = -math.inf, high: float = math.inf, expected: str = "") -> Check:
    """Build the check of a finite number with both its bounds."""

    def convert(value: Any) -> float:
        result = value if type(value) is float else _parse_float(value)
        if not low <= result <= high or math.isinf(result):
            raise ValueError
        return result

    bounds = f" from {low:g} to {high:g}" if high != math.inf else "" if low == -math.inf else f" >= {low:g}"
    return Check(convert, expected or f"a finite number{bounds}")


def text(pattern: str, expected: str) -> Check:
    """Build the check of a text that matches a pattern and has no NUL."""
    form = re.compile(pattern, re.DOTALL | re.ASCII)

    def convert(value: Any) -> str:
        if not isinstance(value, str) or "\0" in value or form.fullmatch(value) is None:
            raise ValueError
        return value

    return Check(convert, expected)


def share(low: float, expected: str) -> Check:
    """Build the check of a share from `low` to below 1, as a number or as a text such as ``"1%"``."""

    def convert(value: Any) -> float:
        if isinstance(value, str):
            value = _parse_percentage(value.strip())
        if not low <= (result := _parse_float(value)) < 1:
            raise ValueError
        return result

    return Check(convert, expected)


def _parse_line(value: Any) -> str:
    return clean_line(_require(value, str, "a text"))


Count = Annotated[int, integer(0)]
PositiveCount = Annotated[int, integer(1)]
Round = Annotated[int, integer(0, (1 << 31) - 1)]
Seconds = Annotated[float, number(0)]
Duration = Annotated[float, number(_LEAST, LONGEST_S, "a number of seconds above 0, of a century at most")]
Multiple = Annotated[float, number(0, expected="a number >= 0, such as 2")]
Finite = Annotated[float, number()]
Positive = Annotated[float, number(_LEAST, expected="a finite number above 0")]
Line = Annotated[str, Check(_parse_line, "a text")]
Label = Annotated[str, text(r"\w[\w.-]*", "a label of letters, digits, '_', '-' and '.'")]
"""The label of a device, which names a folder on it."""
Precision = Annotated[float, share(_LEAST, "a share between 0 and 1, such as 0.01 or '1%'")]
Probability = Annotated[float, share(_LEAST, "a probability between 0 and 1, such as 0.95")]
Quantile = Annotated[float, share(0.5, "a share of the calls from 0.5 to below 1, such as 0.99")]
Margin = Annotated[float, share(0, "a share from 0 to below 1, such as 0.02 or '2%'")]


def parse(annotation: Any, value: Any) -> Any:
    """Convert JSON to the annotated type, or raise SchemaError; unknown keys of a TypedDict stay plain JSON."""
    return _build_parser(annotation)(value)


def parse_fields(annotations: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Convert a JSON object whose keys have these annotations; keys without one stay plain JSON."""
    return _parse_fields({name: _build_parser(annotation) for name, annotation in annotations.items()}, value)


def check(kind: str, annotation: Any, value: Any) -> Any:
    """Convert a value of the user; UsageError, which calls it `kind`, if it does not fit the annotation."""
    try:
        return _build_parser(annotation)(value)
    except SchemaError as error:
        raise UsageError(f"invalid {kind}: {error}.") from None


def is_valid(annotation: Any, value: Any) -> bool:
    """Return whether a value fits the annotation."""
    with suppress(SchemaError):
        _build_parser(annotation)(value)
        return True
    return False


def is_number(value: Any) -> bool:
    """Return whether a value is an integer or a float, and does not merely count as one."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_fields(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Check each field of an attrs class by its annotation, after its own converter: its ``field_transformer``."""
    hints = get_type_hints(cls, include_extras=True)

    def extend(field: attrs.Attribute[Any]) -> attrs.Attribute[Any]:
        if not _has_check(hints[field.name]):
            return field

        def convert(value: Any) -> Any:
            return check(field.name, hints[field.name], value)

        convert.__annotations__["value"] = field.type  # which the signature of the class shows
        return field.evolve(converter=attrs.converters.pipe(*filter(None, [field.converter]), convert))

    return list(map(extend, fields))


def parse_table(
    record: type, table: Mapping[str, Any], names: Sequence[str]
) -> tuple[dict[str, Any], list[UsageError]]:
    """Parse a table of a file by the fields of a record; return the values, and the fault of each invalid key.

    `names` lists the keys that the table may have.
    """
    hints = get_type_hints(record, include_extras=True)
    values: dict[str, Any] = {}
    faults: list[UsageError] = []
    for name, value in table.items():
        try:
            if name not in names:
                raise UnknownNameError("key", name, names)
            values[name] = check(name, hints[name], value)
        except UsageError as fault:
            faults.append(fault)
    return values, faults


def join_faults(file: Path, faults: Sequence[tuple[str, UsageError]]) -> UsageError:
    """Build one error for all faults of a file, each with the title of its table, if it is in one."""
    if len(faults) > 1:
        lines = [f"{file} has {len(faults)} faults:", *(f"{title} {fault}".strip() for title, fault in faults)]
        return UsageError("\n  ".join(lines))
    ((title, fault),) = faults
    if isinstance(fault, UnknownNameError):
        return UnknownNameError(fault.kind, fault.name, fault.choices, f"It is in {title and f'{title} of '}{file}.")
    return UsageError(f"{file}: {title and f'{title} '}{fault}")


def describe_valid(annotation: Any) -> str:
    """Describe the valid values of an annotation."""
    if get_origin(annotation) is Annotated:
        return str(get_args(annotation)[1].expected)
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return join_or([json.dumps(choice) for choice in arguments])
    kinds = [describe_valid(kind) for kind in arguments if kind is not type(None)]
    return join_or(kinds) if kinds else _NOUNS.get(annotation, "a value")


def describe(value: Any) -> str:
    """Describe an invalid value in a few clean words."""
    if isinstance(value, int) and abs(value) > _MAX_INTEGER:
        return "a number of over 18 digits"
    line = clean_line(_SHORT.repr(value))
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}…"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 4 * _MAX_SHOWN  # of which the end is kept too
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 10


def _has_check(annotation: Any) -> bool:
    """Return whether an annotation says more than that a class built the value."""
    arguments = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) in (Union, types.UnionType):
        return all(map(_has_check, arguments))
    return get_origin(annotation) in (Annotated, Literal) or annotation in _NOUNS


@cache
def _build_parser(annotation: Any) -> Parser:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _guard(arguments[1])
    if origin in (Union, types.UnionType):
        return _build_optional(annotation, [each for each in arguments if each is not type(None)])
    if origin is Literal:
        return _build_choice(arguments, describe_valid(annotation))
    if origin in (tuple, list):
        return _build_sequence(_build_parser(arguments[0]), origin)
    if origin in (dict, Mapping):
        return _build_mapping(_build_parser(arguments[1]))
    return _PLAIN[annotation] if annotation in _PLAIN else _build_record(annotation)


def _guard(limits: Check) -> Parser:
    convert, expected = limits.convert, limits.expected

    def parse_checked(value: Any) -> Any:
        try:
            return convert(value)
        except (SchemaError, UsageError):
            raise
        except ValueError as error:
            raise SchemaError(f"got {str(error) or describe(value)}; expected {expected}") from None

    return parse_checked


def _build_optional(annotation: Any, kinds: list[Any]) -> Parser:
    if len(kinds) != 1:
        raise TypeError(f"{annotation} is no type of a record: only None may be beside a type")
    convert = _build_parser(kinds[0])
    return lambda value: None if value is None else convert(value)


def _build_choice(choices: tuple[Any, ...], expected: str) -> Parser:
    valid = [(type(choice), choice) for choice in choices]

    def parse_choice(value: Any) -> Any:
        if (type(value), value) not in valid:
            raise SchemaError(f"got {describe(value)}; expected {expected}")
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
        items = _require(value, Mapping, "an object")
        return {_parse_line(name): convert(item) for name, item in items.items()}

    return parse_mapping


def _build_record(kind: Any) -> Parser:
    """Build the parser of a class from its fields, or of a TypedDict, whose unknown keys stay plain JSON."""
    parsers = {name: _build_parser(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    is_open = is_typeddict(kind)
    if is_open:
        required = kind.__required_keys__
    else:
        parameters = inspect.signature(kind).parameters.values()
        required = {parameter.name for parameter in parameters if parameter.default is parameter.empty}

    def parse_record(value: Any) -> Any:
        if type(value) is kind:  # it is parsed already
            return value
        items = _require(value, Mapping, "an object")
        if not required <= items.keys():
            raise SchemaError(f"it has no {min(required - items.keys())}")
        if not is_open and not items.keys() <= parsers.keys():
            unknown = items.keys() - parsers.keys()
            raise SchemaError(f"it has an unknown field {describe(min(map(str, unknown)))}")
        fields = _parse_fields(parsers, items)
        return fields if is_open else kind(**fields)

    return parse_record


def _parse_fields(parsers: Mapping[str, Parser], value: Any) -> dict[str, Any]:
    converted: dict[str, Any] = {}
    name = ""
    try:
        for name, item in _require(value, Mapping, "an object").items():
            convert = parsers.get(name)
            if convert is None:
                converted[_parse_line(name)] = _parse_json(item)
            else:  # a known name is clean
                converted[name] = convert(item)
    except SchemaError as error:
        raise SchemaError(f"{clean_line(str(name))[:80]}: {error}" if name else str(error)) from None
    return converted


def _require(value: Any, kind: type, noun: str) -> Any:
    if not isinstance(value, kind):
        raise SchemaError(f"got {describe(value)}; expected {noun}")
    return value


def _parse_float(value: Any) -> float:
    if not is_number(value) or (isinstance(value, int) and abs(value) > _MAX_INTEGER):
        raise ValueError
    return float(value)


def _parse_percentage(text: str) -> float:
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return math.nan


def _parse_json(value: Any, depth: int = 0) -> Any:
    """Any JSON, with clean texts, integers of ordinary size, and no endless nesting."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return _PLAIN[int](value)
    if depth >= MAX_DEPTH:
        raise SchemaError(f"got JSON that nests deeper than {MAX_DEPTH} levels; expected a few")
    if isinstance(value, Mapping):
        return {_parse_line(name): _parse_json(item, depth + 1) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_parse_json(item, depth + 1) for item in value]
    raise SchemaError(f"got a {type(value).__name__}; expected plain JSON")


_NOUNS: Mapping[Any, str] = {str: "a text", bool: "True or False", int: "an integer", float: "a number"}
_PLAIN: Mapping[Any, Parser] = {
    Any: _parse_json,
    str: lambda value: clean_text(_require(value, str, "a text")),
    bool: lambda value: _require(value, bool, _NOUNS[bool]),
    int: _guard(Check(integer(-_MAX_INTEGER).convert, _NOUNS[int])),
    float: _guard(Check(_parse_float, _NOUNS[float])),
}
