"""Which GPU is meant by what CUDA_VISIBLE_DEVICES says."""

from __future__ import annotations

import pytest

from ngbkit.hardware.telemetry.visible import Gpu, entry, match

ALIKE = [Gpu(index=0, name="A", uuid="GPU-aa11-1"), Gpu(index=1, name="A", uuid="GPU-ab22-2")]
UNLIKE = [ALIKE[0], Gpu(index=1, name="B", uuid="GPU-ab22-2")]
SLICED = [Gpu(index=0, name="A", uuid="GPU-aa11-1", slices=("MIG-c1", "MIG-c2")), ALIKE[1]]


@pytest.mark.parametrize(
    ("accelerator", "environment", "named"),
    [
        ("cuda:3", {}, "3"),
        ("cuda", {}, "0"),
        ("cuda:3", {"CUDA_VISIBLE_DEVICES": "1, 2"}, "1"),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, "GPU-8932f937"),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": ""}, ""),
    ],
)
def test_the_first_that_may_be_seen_is_meant(accelerator: str, environment: dict[str, str], named: str) -> None:
    """Where nothing is hidden, the number of the accelerator."""
    assert named == entry(accelerator, environment)


@pytest.mark.parametrize(
    ("named", "index", "part"),
    [
        ("1", 1, ""),
        ("GPU-aa11-1", 0, ""),
        ("GPU-ab", 1, ""),
        ("GPU-AB", 1, ""),
        ("MIG-c2", 0, "MIG-c2"),
    ],
)
def test_a_gpu_is_found_by_number_or_uuid(named: str, index: int, part: str) -> None:
    """The beginning of a UUID is enough where no other begins so."""
    found = match(named, SLICED, "PCI_BUS_ID")

    assert found is not None
    assert (index, part) == (found.gpu.index, found.slice)


@pytest.mark.parametrize("named", ["", "-1", "2", "GPU-a", "GPU-ff", "MIG-c", "NoDevFiles", "A"])
def test_what_names_none_or_several_finds_none(named: str) -> None:
    """As CUDA would have it."""
    assert None is match(named, SLICED, "")


def test_a_number_among_unlike_gpus_is_an_assumption() -> None:
    """Unless CUDA is told to count as NVML does; a UUID is none."""
    found = [
        match("1", UNLIKE, ""),
        match("1", UNLIKE, "PCI_BUS_ID"),
        match("1", ALIKE, ""),
        match("GPU-ab", UNLIKE, ""),
    ]

    assert [True, False, False, False] == [one is not None and bool(one.assumed) for one in found]
    assert found[0] is not None
    assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID" in found[0].assumed


def test_a_gpu_in_slices_is_an_assumption_too() -> None:
    """Its number says nothing of the slice."""
    found = match("0", SLICED, "PCI_BUS_ID")

    assert found is not None
    assert "name the slice by its UUID" in found.assumed
