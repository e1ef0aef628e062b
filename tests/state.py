"""State folders of tests; those of a module may share one, since an engine belongs to one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ngbkit.cluster import engines
from ngbkit.runs import Summary

NewRuns = Callable[[], list[Summary]]


def make_state_dir(tmp_path_factory: pytest.TempPathFactory, peaks: Path) -> Path:
    """A state folder that knows the peaks of this machine, which each run on a busy one would measure anew."""
    folder = tmp_path_factory.mktemp("state")
    shutil.copy(peaks, folder)
    return folder


def share_state_dir(tmp_path_factory: pytest.TempPathFactory, peaks_file: Path) -> Iterator[Path]:
    """One state folder, and so one engine, for all tests of a module; to be made a fixture of its own `state_dir`."""
    folder = make_state_dir(tmp_path_factory, peaks_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(folder))
        yield folder
        engines.close()
