"""A state folder that the tests of a module share, since an engine belongs to one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ngbkit.cluster import engines
from ngbkit.runs import Summary

NewRuns = Callable[[], list[Summary]]


def share_state_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One state folder, and so one engine, for all tests of a module; to be made a fixture of its own `state_dir`."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(folder))
        yield folder
        engines.close()
