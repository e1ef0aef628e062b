"""A short run of the fuzzer of journals; ``tests/fuzz/run.py journals`` is a long one."""

from __future__ import annotations

import fuzz_journals


def test_nothing_altered_is_read_as_genuine() -> None:
    """And nothing but ngbkit's own errors is raised."""
    fuzz_journals.run(cases=60, number=0)
