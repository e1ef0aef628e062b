"""State folders of tests; modules may share one, since an engine belongs to one and takes seconds to start."""

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


def share_state_dir(shared_state_dir: Path) -> Iterator[Path]:
    """The state folder, and so the engine, of all modules that make this a fixture of their own `state_dir`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(shared_state_dir))
        yield shared_state_dir


def keep_state_dir(tmp_path_factory: pytest.TempPathFactory, peaks_file: Path) -> Iterator[Path]:
    """A state folder, and so an engine, of a module's own, which may be spoilt; to be made its fixture `state_dir`."""
    folder = make_state_dir(tmp_path_factory, peaks_file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NGBKIT_STATE_DIR", str(folder))
        yield folder
        engines.close()
