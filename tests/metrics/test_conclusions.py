"""What a run lets its user conclude."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from synthetic_records import build_record

from ngbkit import figures
from ngbkit.api import Sweep
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.storage import Data
from ngbkit.metrics import tables
from ngbkit.metrics.conclusions import conclude, describe_contention
from ngbkit.workloads.base import Workload

ROUNDS = 20
FIGURES = ("throughput", "speedup")


def measure(
    mlp: Workload,
    speeds: Mapping[str, float],
    contended: Mapping[str, Sequence[int]] | None = None,
    devices: Sequence[str] = ("cpu",),
    **facts: float,
) -> Data:
    """One sample a round, with noise of 5 %, of compilers that are so many times as fast as identity."""
    sweep = Sweep(mlp, list(speeds), repeats=ROUNDS, devices=list(devices))
    generator = np.random.default_rng(0)
    records = [
        build_record(
            trial,
            1 / speeds[trial.compiler] * generator.normal(1, 0.05, ROUNDS),
            contended_samples=tuple((contended or {}).get(trial.compiler, ())),
            **facts,
        )
        for trial in sweep.trials()
    ]
    return assemble(sweep, records)


def test_a_sure_winner_is_named(mlp: Workload) -> None:
    """On a quiet machine nothing else is said."""
    data = measure(mlp, {"identity": 1.0, "onnxruntime": 2.0, "openvino": 3.0})

    assert ["Fastest: openvino, for mlp batch 1."] == conclude(data)


def test_a_virtual_machine_says_why_its_intervals_are_wide(mlp: Workload) -> None:
    """A conclusion explains the wide intervals of a virtual machine that has no history."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0})
    hosted = {"conditions": {"virtual_machine": True}}
    data.attrs["environments"] = json.dumps({"cpu": hosted})
    *_, line = conclude(data)
    data.attrs["environments"] = json.dumps({"cpu": {**hosted, "history": {"deviations": {"openvino": 0.01}}}})

    assert line.startswith(
        "Intervals of speed-ups allow for 5 % (standard deviation) by which the host of cpu, a virtual"
    )
    assert "`ngbkit selfcheck --history`" in line
    assert ["Fastest: openvino, for mlp batch 1."] == conclude(data)


def test_a_tie_is_named_as_one(mlp: Workload) -> None:
    """The conclusion of a tie has its probability, the rival and a remedy."""
    data = measure(mlp, {"identity": 1.0, "onnxruntime": 2.0, "openvino": 2.0})
    tie, remedy = conclude(data)

    assert tie.startswith("The fastest is not conclusive in 1 of 1 groups. mlp batch 1: ")
    assert "(p = 0." in tie
    assert "onnxruntime" in tie
    assert "openvino" in tie
    assert "identity" not in tie
    assert "--precision" in remedy


def test_a_contended_winner_is_not_sure(mlp: Workload) -> None:
    """A lead of any size is not conclusive if its rounds were contended."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, {"identity": range(15)}, foreign_percent=30.0)
    inconclusive, tie = conclude(data)

    assert "38 % of the samples were contended: of the cores, other processes took 30 % of their time" in (
        describe_contention(data)
    )
    assert inconclusive.startswith(
        "1 of 2 trials are not conclusive, since too few of their rounds were uncontended (identity"
    )
    assert tie.startswith("The fastest is not conclusive in 1 of 1 groups.")


@pytest.mark.parametrize(("samples", "mentioned"), [(range(2), False), (range(8), True)])
def test_a_few_contended_samples_are_not_worth_a_word(mlp: Workload, samples: Sequence[int], mentioned: bool) -> None:
    """Some are marked on any machine."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, {"openvino": samples}, steal_percent=4.0)

    assert mentioned == bool(describe_contention(data))


BUSY = {"other_busy_percent": 99.6, "busiest": ["stress"]}


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        ({"cpu": BUSY}, "other work used 100 % of all cores (stress) when it began"),
        ({"cpu": {"other_busy_percent": 9.4}}, ""),
        ({"cpu": {"other_busy_percent": None}}, ""),
        ({"cpu": BUSY, "orin": {}}, "other work used 100 % of all cores (stress) of cpu when it began"),
    ],
)
def test_what_ran_when_a_run_began_stays_with_it(
    mlp: Workload, devices: Mapping[str, Mapping[str, object]], text: str, tmp_path: Path
) -> None:
    """A table and a figure of a saved dataset report the other work of its run."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0})
    data.attrs["environments"] = json.dumps({label: {"conditions": state} for label, state in devices.items()})
    data = storage.load(storage.save(data, tmp_path / "run.nc"))
    subtitles = [figures.overview(data).to_dict()["title"]["subtitle"], data.ngb.plot.speedup().title.subtitle]

    assert text == describe_contention(data)
    assert [bool(text)] * 2 == ["other work used" in tables.to_text(tables.compact(data, name)) for name in FIGURES]
    assert [bool(text)] * 2 == [text in lines for lines in subtitles]


def test_a_single_compiler_has_no_rival(mlp: Workload) -> None:
    """A single compiler has no conclusion."""
    assert [] == conclude(measure(mlp, {"identity": 1.0}))


def test_several_devices_are_named(mlp: Workload) -> None:
    """Each group has its own winner."""
    data = measure(mlp, {"identity": 1.0, "openvino": 3.0}, devices=["cpu", "orin"])

    assert ["Fastest: openvino, for mlp on cpu batch 1; mlp on orin batch 1."] == conclude(data)
