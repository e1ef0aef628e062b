"""Devices files for tests, in a project where no other devices file is found."""

from __future__ import annotations

from pathlib import Path

import pytest

ORIN = '[orin]\nlaunch = "ssh"\nhost = "orin"\n'
SSH, ATTACH = 'launch = "ssh"\nhost = "orin"\n', 'launch = "attach"\n'
SLURM = 'launch = "slurm"\naddress = "10.0.0.5"\n'


def make_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create the current folder, two below a home folder without a devices file; for a fixture `project`."""
    folder = tmp_path / "work" / "project"
    folder.mkdir(parents=True)
    for name in ("NGBKIT_CONFIG_DIR", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(folder)
    return folder


def write(file: Path, text: str | bytes = ORIN) -> Path:
    """Write a devices file that only the user can write."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    file.chmod(0o600)
    return file
