"""The notes of a run: what a device and a network are, typed where something reads it."""

from __future__ import annotations

from typing import Any

import pytest

from ngbkit.errors import JournalError
from ngbkit.hardware import conditions, environment
from ngbkit.sweep import notes
from ngbkit.sweep.trials import facts_key

KEY = facts_key("net", {"width": 8})


def test_the_description_of_this_machine_is_valid() -> None:
    """The description of this machine is valid and is parsed unchanged."""
    observed = conditions.observe(0)
    description = {**environment.describe(), "conditions": {**observed, "warnings": []}, "peaks": {}, "selfcheck": {}}

    assert description == notes.parse("environment", "cpu", description)


def test_the_facts_of_a_network_are_valid() -> None:
    """The facts of a network are valid, and integers stay integers."""
    facts = {"parameters": 11_689_512, "macs": None, "baseline": "torch eager", "reference": "float64"}

    assert facts == notes.parse("facts", KEY, facts)


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("facts", KEY, {"parameters": "many"}, "parameters: got 'many'; expected a finite number"),
        ("facts", KEY, {"baseline": 3}, "baseline: got 3; expected a text"),
        ("facts", "net", {}, "expected the name of a network and its factors"),
        ("facts", '["net"]', {}, "expected the name of a network and its factors"),
        ("facts", KEY, [], "got []; expected an object"),
        ("facts", 3, {}, "got the key 3; expected a text"),
        ("environment", "cpu", {"conditions": False}, "conditions: got False; expected an object"),
        ("environment", "cpu", {"conditions": {"warnings": [3]}}, "warnings: got 3; expected a text"),
        ("environment", "cpu", {"packages": {"numpy": []}}, "packages: got []; expected a text"),
        ("environment", "cpu", {"peaks": {"flops": 0}}, "flops: got 0; expected a finite number above 0"),
        ("environment", "cpu", {"memory_bytes": "much"}, "memory_bytes: got 'much'; expected an integer"),
        ("environment", "cpu", {"selfcheck": {"pairs": [{"compiler": "a"}]}}, "pairs: it has no beside_busy"),
        (
            "environment",
            "cpu",
            {"history": {"deviations": {"a": -1}}},
            "deviations: got -1; expected a finite number from 0",
        ),
        ("tuning", "trial", {}, "it has no seconds"),
        ("retried", "last", {}, "got {}; expected a text"),
    ],
)
def test_an_invalid_note_is_an_error(kind: str, key: Any, value: Any, message: str) -> None:
    """The error of an invalid note has the kind, the key and the field."""
    with pytest.raises(JournalError, match=f"invalid {kind}") as caught:
        notes.parse(kind, key, value)

    assert message in str(caught.value)
