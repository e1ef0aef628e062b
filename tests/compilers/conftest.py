"""Fixtures shared by the tests of several compilers."""

from __future__ import annotations

from pathlib import Path

import pytest

from ngbkit.testing.networks import NETWORKS
from ngbkit.workloads.export import export_for


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions at batch size 1, as an ONNX file."""
    folder = tmp_path_factory.mktemp("exported")
    export_for(NETWORKS["small_conv"](), folder, [1], seed=0)
    return folder / "batch-1.onnx"
