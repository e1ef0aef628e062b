"""The caches of this machine's CPU, and a devices file with devices of several kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngbkit.cluster import devices
from ngbkit.cluster.caches import DeviceCaches, locate


@pytest.fixture
def caches(state_dir: Path) -> DeviceCaches:
    return locate("cpu")


@pytest.fixture
def devices_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / devices.NAME
    file.write_text(
        f'[own]\nlaunch = "local"\nstate_dir = "{tmp_path / "own"}"\naccelerator = "cuda:0"\n'
        '[orin]\nlaunch = "ssh"\nhost = "orin"\nstate_dir = "~/there"\n'
        '[mine]\nlaunch = "attach"\n'
    )
    file.chmod(0o600)
    monkeypatch.chdir(tmp_path)
