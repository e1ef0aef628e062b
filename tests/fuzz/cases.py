"""What fuzzers share: settings for many cases, and a run of them on files in one folder."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import hypothesis
from hypothesis import strategies as st

# Imports of a first case are not the subject, and neither is a busy machine.
SETTINGS = hypothesis.settings(
    deadline=None, database=None, suppress_health_check=list(hypothesis.HealthCheck), print_blob=False
)

Check = Callable[[st.DataObject, Path], str]
"""Makes a file of the drawn data in a folder, reads it, and returns what became of it; raises on a finding."""


def run_on_files(subject: str, check: Check, cases: int, seed: int) -> None:
    """Check that many files; raise on the first finding, and print what became of them."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="ngbkit-fuzz-") as folder:

        @hypothesis.seed(seed)
        @hypothesis.settings(SETTINGS, max_examples=cases)
        @hypothesis.given(st.data())
        def check_drawn(data: st.DataObject) -> None:
            outcomes[check(data, Path(folder))] += 1

        check_drawn()
    print(f"{subject}: {outcomes.total()} files, {dict(outcomes)}", flush=True)
