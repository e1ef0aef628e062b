"""State folders of tests; modules may share one, since each has its own engine, which takes seconds to start."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ngbkit.cluster import engines
from ngbkit.runs.summary import Summary

NewRuns = Callable[[], list[Summary]]


def make_state_dir(tmp_path_factory: pytest.TempPathFactory, peaks: Path) -> Path:
    """Make a state folder with the peaks of this machine, which each run on a busy machine would measure anew."""
    folder = tmp_path_factory.mktemp("state")
    shutil.copy(peaks, folder)
    return folder


def share_state_dir(shared_state_dir: Path) -> Iterator[Path]:
    """Share a state folder, and so an engine, among all modules whose fixture `state_dir` is this function."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(shared_state_dir))
        yield shared_state_dir


def keep_state_dir(tmp_path_factory: pytest.TempPathFactory, peaks_file: Path) -> Iterator[Path]:
    """Make a state folder, and so an engine, for one module, which may damage it; its fixture `state_dir`."""
    folder = make_state_dir(tmp_path_factory, peaks_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(folder))
        yield folder
        engines.close()
