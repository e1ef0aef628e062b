"""Panels that start no engine unless a test asks for one."""

from __future__ import annotations

import pytest

from ngbkit.notebook.panels import ahead
from ngbkit.sweep.grid import Sweep


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[Sweep]:
    """For which sweeps a panel would have started engines ahead of time."""
    calls: list[Sweep] = []
    monkeypatch.setattr(ahead, "start", calls.append)
    return calls
