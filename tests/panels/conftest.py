"""Panels that start no engine unless a test asks for one."""

from __future__ import annotations

import pytest
from shells import no_trial_imports, only_shell, shell, state_dir

from ngbkit.api import Sweep
from ngbkit.notebook import preload

__all__ = ["no_trial_imports", "only_shell", "shell", "started", "state_dir"]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[Sweep]:
    """The sweeps for which a panel would have started engines ahead of time."""
    calls: list[Sweep] = []
    monkeypatch.setattr(preload, "start_engines", calls.append)
    return calls
