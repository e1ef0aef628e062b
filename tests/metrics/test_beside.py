"""Networks of an earlier run that took turns with new ones: compared round by round, without drift."""

from __future__ import annotations

import pytest
import xarray as xr
from drawn import measured

from ngbkit.errors import UsageError
from ngbkit.metrics.beside import split_sides
from ngbkit.metrics.pairing import compare, compare_sides
from ngbkit.workloads.cell import from_source

CELL = "\nimport torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n"
FACTOR = 1.06


def take_turns() -> xr.Dataset:
    """Measure a network in turns with an earlier one, which takes 6 % longer in each round."""
    names = ("model", "model (it2)")
    data = measured(*(from_source(CELL, name=name)[0] for name in names)).assign_attrs(run_id="20260101-000000-aa")
    data["latency"].loc[{"workload": names[1]}] = FACTOR * data["latency"].sel(workload=names[0]).values
    data["throughput"] = data["batch_size"] / data["latency"].median("repeat")
    return data.assign(bundle=xr.full_like(data["throughput"], 7.0))


def test_turns_need_no_allowance_for_drift() -> None:
    """A difference that drift between two runs would hide is conclusive in the same rounds."""
    data = take_turns()
    sides = split_sides(data, "it2")
    separate_runs = [side.drop_vars("bundle").assign_attrs(run_id=str(number)) for number, side in enumerate(sides)]
    changes = data.ngb.compare("it2")

    assert {"faster"} == set(changes.verdicts)
    assert [FACTOR] * 4 == pytest.approx(changes.trials["change"].tolist())
    assert 0 == changes.drift_sd
    assert {"not conclusive"} == set(compare(*separate_runs, "throughput").verdicts)


def test_the_title_says_that_both_are_of_one_run() -> None:
    """The earlier networks have their own names again, and no trial is left out."""
    changes = compare_sides(take_turns(), "it2", "it3")

    assert "it3 against it2, in one run (" in changes.title
    assert ["model"] == changes.trials["workload"].unique().tolist()
    assert 0 == changes.missing


def test_drift_that_hides_a_change_names_the_remedy() -> None:
    """A comparison of two runs that is not conclusive says how to measure both in turns."""
    data = take_turns()
    first, second = (each.drop_vars("bundle") for each in split_sides(data, "it2")[::-1])
    later = second.assign_attrs(run_id="20260102-000000-bb")
    notes = [
        "; ".join(compare(first, later, "throughput", names=names, **again).list_notes())
        for names, again in ((("it2", "it3"), {"beside": "it2"}), ((), {}))
    ]

    assert "between both times; --beside it2 measures both in turns, without it" in notes[0]
    assert "--beside 20260101-000000-aa measures" in notes[1]


def test_an_unknown_label_is_an_error() -> None:
    """The error lists the networks that a dataset has."""
    with pytest.raises(UsageError, match=r"got 'it9'; expected networks such as 'resnet18 \(it9\)' among model, model"):
        take_turns().ngb.compare("it9")
