"""The probe of TensorRT says whether it works with the GPU and the driver here, and why not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hardware.accelerators.faking import install_tensorrt, show_driver

from ngbkit.compilers import tensorrt
from ngbkit.hardware.accelerators import probing


@pytest.fixture
def libraries(driver_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A driver, and a folder for libraries, as the processes of the probe see them."""
    show_driver(driver_folder, monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    yield tmp_path
    probing.clear_cache()


def test_the_probe_says_that_it_works(libraries: Path) -> None:
    """The probe finds nothing missing with a driver, a GPU and a TensorRT that creates a builder."""
    install_tensorrt(libraries, "11.4.0")

    assert "" == tensorrt.probe()


def test_the_probe_says_that_it_does_not_load(libraries: Path) -> None:
    """The probe reports the error of a TensorRT that does not load."""
    (libraries / "tensorrt.py").write_text("raise ImportError('libnvinfer.so.11: cannot open shared object file')")

    assert "tensorrt is installed and does not load: " in tensorrt.probe()
    assert "ImportError: libnvinfer.so.11" in tensorrt.probe()


def test_the_probe_says_that_it_does_not_fit_the_driver(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe reports a TensorRT for a newer CUDA, which loads but creates no builder."""
    install_tensorrt(libraries, "11.4.0")
    monkeypatch.setenv("FAKE_TENSORRT", "builder")

    assert "TensorRT 11.4.0 does not work with this GPU and driver: CUDA initialization failure with error: 35" == (
        tensorrt.probe()
    )


def test_the_probe_says_that_there_is_no_gpu(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe reports a missing GPU without loading TensorRT."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")

    assert "tensorrt needs one" in tensorrt.probe()
