"""Selection of a GPU by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import pytest

from ngbkit.hardware.telemetry.visible import Gpu, match_gpu, select_entry

SAME = [Gpu(index=0, name="A", uuid="GPU-aa11-1"), Gpu(index=1, name="A", uuid="GPU-ab22-2")]
DIFFERENT = [SAME[0], Gpu(index=1, name="B", uuid="GPU-ab22-2")]
SLICED = [Gpu(index=0, name="A", uuid="GPU-aa11-1", slices=("MIG-c1", "MIG-c2")), SAME[1]]


@pytest.mark.parametrize(
    ("accelerator", "environment", "selector"),
    [
        ("cuda:3", {}, "3"),
        ("cuda", {}, "0"),
        ("cuda:3", {"CUDA_VISIBLE_DEVICES": "1, 2"}, "1"),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": "GPU-8932f937"}, "GPU-8932f937"),
        ("cuda:0", {"CUDA_VISIBLE_DEVICES": ""}, ""),
    ],
)
def test_the_first_visible_gpu_is_selected(accelerator: str, environment: dict[str, str], selector: str) -> None:
    """The first visible GPU is selected, or that of the accelerator's number if none is hidden."""
    assert selector == select_entry(accelerator, environment)


@pytest.mark.parametrize(
    ("selector", "index", "part"),
    [
        ("1", 1, ""),
        ("GPU-aa11-1", 0, ""),
        ("GPU-ab", 1, ""),
        ("GPU-AB", 1, ""),
        ("MIG-c2", 0, "MIG-c2"),
    ],
)
def test_a_gpu_is_found_by_number_or_uuid(selector: str, index: int, part: str) -> None:
    """A unique prefix of a UUID is enough."""
    match = match_gpu(selector, SLICED, "PCI_BUS_ID")

    assert (index, part) == (match.gpu.index, match.slice)


@pytest.mark.parametrize("selector", ["", "-1", "2", "GPU-a", "GPU-ff", "MIG-c", "NoDevFiles", "A"])
def test_an_ambiguous_or_unknown_selector_matches_none(selector: str) -> None:
    """An ambiguous or unknown selector matches no GPU, as in CUDA."""
    assert None is match_gpu(selector, SLICED, "")


def test_a_number_among_different_gpus_is_an_assumption() -> None:
    """A number is an assumption among different GPUs, unless CUDA counts by bus."""
    matches = [
        match_gpu("1", DIFFERENT, ""),
        match_gpu("1", DIFFERENT, "PCI_BUS_ID"),
        match_gpu("1", SAME, ""),
        match_gpu("GPU-ab", DIFFERENT, ""),
    ]

    assert [True, False, False, False] == [match is not None and bool(match.assumed) for match in matches]
    assert "Set CUDA_DEVICE_ORDER=PCI_BUS_ID" in matches[0].assumed


def test_a_gpu_in_slices_is_an_assumption_too() -> None:
    """The number of a GPU in slices selects no slice, and the match is an assumption."""
    assert "name the slice by its UUID" in match_gpu("0", SLICED, "PCI_BUS_ID").assumed
