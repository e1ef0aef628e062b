"""A short run of the fuzzer of journals; ``tests/fuzz/run.py journals`` is a long one."""

from __future__ import annotations

import fuzz_journals
import pytest


@pytest.mark.guard
def test_nothing_altered_is_read_as_genuine() -> None:
    """An altered journal never yields an altered record, and raises only errors of ngbkit."""
    fuzz_journals.run(cases=60, number=0)
