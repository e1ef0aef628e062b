"""The parts of the script that repeats the paper, and how a part replaces what an earlier file has of it."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from drawn import measured, network

import ngbkit


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
    return importlib.import_module("paper")


def test_further_parts_vary_what_the_paper_varied(script: ModuleType) -> None:
    """Each part of the blocks' other factors has one of them; the quickest come first."""
    parts = dict(script.build_further_sweeps())
    factors = {name: dict(sweep.workloads[0].factors) | dict(sweep.factors) for name, sweep in parts.items()}

    assert ["heads", "sequence", "kernel", "size", "mha-384", "conv-128"] == list(parts)
    assert (1, 3, 5) == factors["kernel"]["kernel"]
    assert [61, 122, 244] == list(factors["size"]["size"])
    assert {100} == {sweep.repeats for sweep in parts.values()}
    assert not {*parts} & {name for name, _ in script.build_sweeps()}


def test_a_part_replaces_its_widths_alone(script: ModuleType) -> None:
    """Other widths and batch sizes of the same block stay in the file."""
    earlier = measured(network("conv", width=(64, 96)), network("other"), batch_sizes=(1, 4))
    part = measured(network("conv", width=(96, 128)), batch_sizes=(1,))
    merged = ngbkit.merge(*script.select_others(earlier, [part]), part).ngb.sel(workload=["conv"])
    status = merged["status"].sel(workload="conv", device="cpu", compiler="openvino")

    assert [64, 96, 128] == merged["width"].values.tolist()
    assert [["ok", "ok", "ok"], ["ok", "ok", ""]] == [status.sel(batch_size=size).values.tolist() for size in (1, 4)]
