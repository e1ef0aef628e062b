"""What users write is read once, or refused in a sentence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from ngbkit.errors import UsageError
from ngbkit.user_text import parse_duration, parse_json, parse_path


def test_a_path_is_read() -> None:
    """A path is parsed from a text or a path, and a tilde becomes the home folder."""
    assert Path.home() / "x.onnx" == parse_path("~/x.onnx")
    assert Path("a/b") == parse_path(Path("a/b"))
    assert Path("n" * 255) == parse_path("n" * 255)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "got an empty one"),
        ("~nouser/x", "no such home folder"),
        ("a\0b", "zero byte"),
        ("a" * 256, "256 bytes; expected at most 255"),
        ("é" * 128, "256 bytes"),
        ("a/" * 2500, "4095 in all"),
    ],
)
def test_a_path_of_no_file_is_refused(text: str, message: str) -> None:
    """The error quotes its beginning."""
    with pytest.raises(UsageError, match=message) as caught:
        parse_path(text)

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("duration", "seconds"),
    [
        ("50ms", 0.05),
        (" 1.5 h ", 5400),
        ("20min", 1200),
        ("250us", 250e-6),
        ("250µs", 250e-6),
        ("2s", 2),
        ("1e-3", 1e-3),
        (0.05, 0.05),
        (2, 2),
    ],
)
def test_a_duration_is_read_in_seconds(duration: str | float, seconds: float) -> None:
    """A duration is parsed to seconds, with or without a unit."""
    assert seconds == pytest.approx(parse_duration(duration), rel=1e-12)


INVALID = ["", "ms", "50 msec", "-1s", "0", "nan", "inf", "1e400", "5m", "1 2s", "1" * 10_000]


@pytest.mark.parametrize("duration", [*INVALID, 0, -1.0, True, None, math.nan, math.inf, 10**400])
def test_what_is_no_duration_is_refused(duration: str) -> None:
    """The error calls it by its name, quotes its beginning and says what is valid."""
    with pytest.raises(UsageError, match=r"^invalid deadline: got .*; expected a time above 0 such as") as caught:
        parse_duration(duration, "deadline")

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Expecting"),
        ("[" * 100_000, "nests too deeply"),
        ("[" * 60 + "]" * 60, "nests too deeply"),
        ("9" * 5000, "too many digits"),
        (b"\xff", "can.t decode byte"),
        ("", "Expecting"),
    ],
)
def test_invalid_json_is_refused(text: str | bytes, message: str) -> None:
    """The error of invalid JSON has the reason."""
    with pytest.raises(UsageError, match=message):
        parse_json(text)


def test_json_is_read() -> None:
    """`parse_json` returns the same value as Python's own module."""
    assert {"a": [1, None]} == parse_json('{"a": [1, null]}')
