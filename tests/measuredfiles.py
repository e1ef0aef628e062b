"""A file of results, as a command line writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngbkit import cli


def write_measured_file(mlp_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A file that `ngbkit run` wrote; a module makes a fixture of it."""
    out = tmp_path / "measured.nc"
    words = ["run", str(mlp_file), "-c", "identity,onnxruntime", "-b", "1,2", "-r", "3", "-o", str(out)]

    assert cli.OK == cli.main([*words, "--threads", "1"])
    capsys.readouterr()
    return out
