"""The schema: JSON becomes typed, bounded and clean values, or an error says which field is invalid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest

from ngbkit.sweep import schema
from ngbkit.sweep.schema import Count, Finite, Line, SchemaError, Seconds


class Chip(TypedDict, total=False):
    name: Line
    cores: Count | None


@dataclass(frozen=True)
class Sample:
    times: tuple[Seconds, ...]
    kind: Literal["cold", "warm"] = "cold"
    error: float = 0.0
    is_quiet: bool = True
    chip: Chip | None = None
    more: Mapping[str, Any] | None = None


def test_json_becomes_a_record() -> None:
    """Lists become tuples, integers floats, integral floats integers; unknown keys of a TypedDict stay."""
    data = {"times": [1, 0.5], "error": "nan", "chip": {"name": "c", "cores": 2.0, "x": [1]}, "more": {"a": {"b": 1}}}
    sample = schema.parse(Sample, data)

    assert (1.0, 0.5) == sample.times
    assert math.isnan(sample.error)
    assert {"name": "c", "cores": 2, "x": [1]} == sample.chip
    assert {"a": {"b": 1}} == sample.more


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "got a list of 0; expected an object"),
        ({}, "it has no times"),
        ({"times": [1], "size": 3}, "it has an unknown field 'size'"),
        ({"times": "1"}, "times: got '1'; expected a list"),
        ({"times": ["1"]}, "times: got '1'; expected a number"),
        ({"times": [-1]}, "times: got -1; expected a finite number of at least 0"),
        ({"times": [math.inf]}, "times: got inf; expected a finite number of at least 0"),
        ({"times": [10**400]}, "times: got an integer of 1329 bits; expected a number"),
        ({"times": [True]}, "times: got True; expected a number"),
        ({"times": [], "kind": "hot"}, "kind: got 'hot'; expected one of cold, warm"),
        ({"times": [], "is_quiet": 1}, "is_quiet: got 1; expected true or false"),
        ({"times": [], "chip": {"name": 3}}, "chip: name: got 3; expected a text"),
        ({"times": [], "chip": {"cores": 1.5}}, "chip: cores: got 1.5; expected an integer"),
        ({"times": [], "chip": {"cores": 2**60}}, "expected an integer from 0 to"),
        ({"times": [], "more": {"a": 10**30}}, "more: got an integer of 100 bits"),
    ],
)
def test_an_invalid_field_is_an_error_that_names_it(data: Any, message: str) -> None:
    """What came, and what is valid."""
    with pytest.raises(SchemaError) as caught:
        schema.parse(Sample, data)

    assert message in str(caught.value)


def test_json_that_nests_without_end_is_refused() -> None:
    """Before Python's own limit is near."""
    nested: Any = []
    for _ in range(60):
        nested = [nested]

    with pytest.raises(SchemaError, match="nests deeper than 50"):
        schema.parse(Any, nested)


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        ("plain ü …", "plain ü …", "plain ü …"),
        ("\x1b[31mred\x1b[0m", "red", "red"),
        ("\x1b]0;title\x07x", "x", "x"),
        ("a\r\nb\tc\x00", "a  b c ", "a\nb\tc "),
        ("half \ud800 pair", "half   pair", "half   pair"),
        ("left\u202eright", "left right", "left right"),
    ],
)
def test_texts_are_cleaned(text: str, line: str, lines: str) -> None:
    """A terminal obeys nothing in them, and every file can store them."""
    assert (line, lines) == (schema.clean_line(text), schema.clean_text(text))


def test_a_line_keeps_its_beginning_and_a_text_its_end() -> None:
    """The reason of an error is at the beginning of a line, and at the end of a traceback."""
    assert schema.MAX_LINE == len(schema.clean_line("x" * 10_000))
    assert schema.clean_text("x" * 1_000_000 + "end").endswith("end")
    assert schema.MAX_TEXT == len(schema.clean_text("x" * 1_000_000))


def test_a_number_keeps_what_it_was() -> None:
    """A finite number of either kind."""
    assert (3.0, -0.5) == (schema.parse(Finite, 3), schema.parse(Finite, -0.5))
