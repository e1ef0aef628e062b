"""What comes from outside becomes typed, bounded and clean values, or an error says which value is invalid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

import attrs
import pytest

from ngbkit import user_text, validation
from ngbkit.errors import UsageError
from ngbkit.validation import Count, Duration, Finite, Line, PositiveCount, Precision, SchemaError, Seconds


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
    """JSON is parsed to a record: lists become tuples, and integers floats."""
    data = {"times": [1, 0.5], "error": math.nan, "chip": {"name": "c", "cores": 2, "x": [1]}, "more": {"a": {"b": 1}}}
    sample = validation.parse(Sample, data)

    assert (1.0, 0.5) == sample.times
    assert math.isnan(sample.error)
    assert {"name": "c", "cores": 2, "x": [1]} == sample.chip
    assert {"a": {"b": 1}} == sample.more


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "got []; expected an object"),
        ({}, "it has no times"),
        ({"times": [1], "size": 3}, "it has an unknown field 'size'"),
        ({"times": "1"}, "times: got '1'; expected a list"),
        ({"times": ["1"]}, "times: got '1'; expected a finite number >= 0"),
        ({"times": [-1]}, "times: got -1; expected a finite number >= 0"),
        ({"times": [math.inf]}, "times: got inf; expected a finite number >= 0"),
        ({"times": [10**400]}, "times: got a number of over 18 digits; expected a finite number"),
        ({"times": [True]}, "times: got True; expected a finite number"),
        ({"times": [], "kind": "hot"}, 'kind: got \'hot\'; expected "cold" or "warm"'),
        ({"times": [], "is_quiet": 1}, "is_quiet: got 1; expected True or False"),
        ({"times": [], "chip": {"name": 3}}, "chip: name: got 3; expected a text"),
        ({"times": [], "chip": {"cores": 1.5}}, "chip: cores: got 1.5; expected an integer"),
        ({"times": [], "chip": {"cores": 2**63}}, "got a number of over 18 digits; expected an integer >= 0"),
        ({"times": [], "more": {"a": 10**30}}, "more: got a number of over 18 digits"),
    ],
)
def test_an_invalid_field_is_an_error_that_names_it(data: Any, message: str) -> None:
    """The error of an invalid field has its name, the value, and the expected values."""
    with pytest.raises(SchemaError) as caught:
        validation.parse(Sample, data)

    assert message in str(caught.value)


def test_json_that_nests_without_end_is_refused() -> None:
    """JSON that nests too deeply is refused before Python's own limit."""
    nested: Any = []
    for _ in range(60):
        nested = [nested]

    with pytest.raises(SchemaError, match="nests deeper than 50"):
        validation.parse(Any, nested)


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
    assert (line, lines) == (user_text.clean_line(text), user_text.clean_text(text))


def test_a_line_keeps_its_beginning_and_a_text_its_end() -> None:
    """The reason of an error is at the beginning of a line, and at the end of a traceback."""
    assert user_text.MAX_LINE == len(user_text.clean_line("x" * 10_000))
    assert user_text.clean_text("x" * 1_000_000 + "end").endswith("end")
    assert user_text.MAX_TEXT == len(user_text.clean_text("x" * 1_000_000))


def test_a_number_keeps_what_it_was() -> None:
    """A finite integer or float is parsed to an equal number."""
    assert (3.0, -0.5) == (validation.parse(Finite, 3), validation.parse(Finite, -0.5))


@pytest.mark.parametrize(("value", "share"), [(0.01, 0.01), ("1%", 0.01), (" 2.5 %", 0.025), ("0.05", 0.05)])
def test_a_precision_is_a_share_or_a_percentage(value: Any, share: float) -> None:
    """A user types it as a number or as a text."""
    assert pytest.approx(share) == validation.check("precision", Precision, value)


@pytest.mark.parametrize("value", [0, 1, "100%", "1", "-1%", "tight", math.nan, True, None])
def test_what_is_no_precision_is_refused(value: Any) -> None:
    """The error shows two valid forms."""
    with pytest.raises(UsageError, match=r"expected a share between 0 and 1, such as 0\.01 or '1%'"):
        validation.check("precision", Precision, value)


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (PositiveCount, True, "invalid thing: got True; expected an integer >= 1"),
        pytest.param(PositiveCount, 10**5000, "invalid thing: got a number of over 18 digits; expected", id="huge"),
        (Duration, math.inf, "invalid thing: got inf; expected a number of seconds above 0"),
        (Duration, 1e12, "invalid thing: got 1000000000000.0; expected a number of seconds above 0, of a century"),
        (bool | None, 1, "invalid thing: got 1; expected True or False"),
        (Literal["a", "b", "c"], 1, 'invalid thing: got 1; expected "a", "b" or "c"'),
    ],
)
def test_an_invalid_value_of_a_user_is_an_error_in_their_words(annotation: Any, value: Any, text: str) -> None:
    """The error calls the value by its name."""
    with pytest.raises(UsageError, match=text):
        validation.check("thing", annotation, value)


def test_a_field_of_an_attrs_class_is_checked_by_its_annotation() -> None:
    """The converter of the field runs first, and an unchecked type is left alone."""

    @attrs.frozen(field_transformer=validation.check_fields)
    class Request:
        count: PositiveCount | None = attrs.field(default=None, converter=lambda value: value and value - 1)
        path: Path = Path()

    with pytest.raises(UsageError, match="invalid count: got -3; expected an integer >= 1"):
        Request(count=-2)

    assert (3, None, Path("a")) == (Request(count=4).count, Request().count, Request(path=Path("a")).path)


def test_each_invalid_key_of_a_table_is_a_fault() -> None:
    """The valid keys are values."""
    values, faults = validation.parse_table(Sample, {"error": 1, "is_quiet": 0, "kindd": "cold"}, ["kind", "error"])

    assert {"error": 1.0} == values
    assert ["unknown key 'is_quiet'", "unknown key 'kindd'. Did you mean kind?"] == [
        str(fault).partition(". Expected")[0] for fault in faults
    ]
