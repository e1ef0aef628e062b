"""TensorRT, held to the protocol as far as this machine goes, and the reasons that it gives where it cannot work."""

import sys

import pytest

from ngbkit.compilers import tensorrt
from ngbkit.testing import CompilerConformance


class TestTensorRt(CompilerConformance):
    compiler = "tensorrt"
    required = False  # its packages are on an index of NVIDIA's own


@pytest.mark.parametrize(
    ("layer", "fused"),
    [("conv1", False), ("conv1 + relu1", True), ("{ForeignNode[norm.weight...add_3]}", True), ("Reformat(x)", False)],
)
def test_fused_layers_are_told_by_their_names(layer: str, fused: bool) -> None:
    """A layer is several where its name joins them, or gives the first and the last."""
    assert tensorrt._is_fused(layer) is fused


def _counting(count: int):
    return lambda: count


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the driver's library the reason is the driver."""
    monkeypatch.setattr(tensorrt, "_DRIVER", "libnowhere.so.1")

    assert "no NVIDIA driver" in tensorrt.diagnose()
    assert "libnowhere.so.1" in tensorrt.diagnose()


def test_a_driver_that_does_not_start_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that answers with an error is told from one that is not there."""

    def fail() -> int:
        raise RuntimeError("CUDA error 803")

    monkeypatch.setattr(tensorrt, "_count_gpus", fail)

    assert "the NVIDIA driver does not start (CUDA error 803)" in tensorrt.diagnose()


def test_a_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a driver and no GPU the reason is the GPU, and where one may be hidden."""
    monkeypatch.setattr(tensorrt, "_count_gpus", _counting(0))

    assert "no NVIDIA GPU" in tensorrt.diagnose()
    assert "CUDA_VISIBLE_DEVICES" in tensorrt.diagnose()


def test_a_library_that_does_not_load_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a GPU and a TensorRT that does not import, the reason is TensorRT's own error."""
    monkeypatch.setattr(tensorrt, "_count_gpus", _counting(1))
    monkeypatch.setitem(sys.modules, "tensorrt", None)

    assert "tensorrt is installed and does not load: ModuleNotFoundError" in tensorrt.diagnose()


def test_the_probe_asks_in_a_process_of_its_own() -> None:
    """The probe gives the reason that a fresh process finds, and leaves no trace of the driver in this one."""
    tensorrt.probe.cache_clear()
    before = set(sys.modules)

    assert tensorrt.probe() == tensorrt.diagnose()
    assert "tensorrt" not in set(sys.modules) - before or tensorrt.probe() == ""
