"""A short run of the fuzzer of a device's events; ``tests/fuzz/run.py events`` is a long one."""

from __future__ import annotations

import fuzz_events


def test_any_event_is_refused_or_harmless() -> None:
    """Any event of a device is refused or harmless."""
    fuzz_events.run(cases=100, number=0)
