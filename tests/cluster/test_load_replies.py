"""A device's reply about a load test is checked like all that it sends."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from drawn import build_test

from ngbkit.cluster.replies import ReplyError, parse_test


def build_reply(**changes: Any) -> dict[str, Any]:
    return {**asdict(build_test(50.0, True)), **changes}


def test_a_load_test_is_read() -> None:
    """The reply becomes a record with the same values."""
    assert build_test(50.0, True) == parse_test("orin", build_reply())


@pytest.mark.parametrize(
    "change",
    [
        {"rate": "50"},
        {"rate": float("inf")},
        {"latency": -1.0},
        {"calls": 1.5},
        {"contended": "\x1b[2J"},
        {"valid": None},
        {"arrivals_s": [0.1]},
    ],
)
def test_a_reply_that_no_device_sends_is_refused(change: dict[str, Any]) -> None:
    """The error names the device, and obeys no control character."""
    with pytest.raises(ReplyError, match=r"invalid load test from device orin: [^\x1b]+$"):
        parse_test("orin", build_reply(**change))


@pytest.mark.parametrize("reply", [None, [], "x", {}])
def test_a_load_test_is_an_object_with_all_its_fields(reply: Any) -> None:
    """A reply of another kind, or without fields, is refused."""
    with pytest.raises(ReplyError, match="invalid load test from device orin"):
        parse_test("orin", reply)
