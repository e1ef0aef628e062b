"""Trials whose outputs could not be compared: their numbers are shown with a mark and the reason, and never win."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

import numpy as np
import pytest
import synthetic
import xarray as xr
from synthetic_records import build_network, build_record

from ngbkit import metrics
from ngbkit.api import Sweep
from ngbkit.commands.shell import choose_figures
from ngbkit.dataset import storage
from ngbkit.dataset.assembly import assemble
from ngbkit.metrics import frames, tables
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.rankings.networks import iterate_comparisons
from ngbkit.metrics.rendering import to_texts
from ngbkit.sweep.grid import Grid

ROUNDS = 20
REASON = "two runs of the reference differ: the network draws random numbers"
SPEEDS = {"identity": 1.0, "onnxruntime": 2.0, "inductor": 4.0}


def build_sweep(*names: str, batch_sizes: Collection[int] = (1,), compilers: Collection[str] = tuple(SPEEDS)) -> Grid:
    return Sweep(
        [build_network(name) for name in names or ("net",)], list(compilers), list(batch_sizes), repeats=ROUNDS
    )


def measure(
    *names: str, unchecked: Collection[str] = ("inductor",), batch_sizes: Collection[int] = (1,), noise: float = 0.02
) -> xr.Dataset:
    """One sample a round of three compilers, of which some were not checked; each network takes twice as long."""
    sweep, generator = build_sweep(*names, batch_sizes=batch_sizes), np.random.default_rng(0)
    workloads = [workload.name for workload in sweep.workloads]
    records = [
        build_record(
            trial,
            2 ** workloads.index(trial.workload) / SPEEDS[trial.compiler] * generator.normal(1, noise, ROUNDS),
            unchecked=REASON if trial.compiler in unchecked else "",
        )
        for trial in sweep.trials()
    ]
    data = assemble(sweep, records, run_id="r1")
    environments = {"cpu": {"selfcheck": {"process_sd": 0.0}}}
    return data.assign_attrs(environments=json.dumps(environments))


def test_the_dataset_has_the_samples_the_status_and_the_reason(tmp_path) -> None:
    """An unchecked trial keeps its samples and reason in a file, and is inconclusive."""
    data = storage.load(storage.save(measure(unchecked=("identity",)), tmp_path / "a.nc"))
    trial = data.sel(compiler="identity")

    assert ("not-checked", REASON) == (trial["status"].item(), trial["error"].item())
    assert ROUNDS == int(trial["latency"].notnull().sum())
    assert [False, True, True] == data.ngb.conclusive().squeeze().values.tolist()
    assert [False] * 3 == metrics.speedup(data, ci=0.95)["conclusive"].squeeze().values.tolist()
    assert [False, True, True] == metrics.throughput(data, ci=0.95)["conclusive"].squeeze().values.tolist()


def test_tables_mark_the_numbers_and_say_why() -> None:
    """A table marks every number of an unchecked trial, with or without an interval."""
    for figure in ("speedup", "throughput", "latency", "compile_time"):
        text = to_texts(tables.compact(measure(), figure)).to_text()
        (row,) = (re.split(" {2,}", line) for line in text.splitlines() if line.startswith("net "))

        assert [False, False, True] == [cell.endswith("?") for cell in row[2:5]]
        assert f"? not checked: inductor on net batch 1: {REASON}" in text
        assert "uncontended" not in text
    table = tables.compact(measure(unchecked=("identity",)), "speedup")
    assert "1?" == str(table["identity"].iloc[0])
    assert str(table["inductor"].iloc[0]).endswith("?")
    assert "? not conclusive: a trial behind it was not checked" in table.attrs["notes"]
    assert not tables.compact(measure(unchecked=()), "speedup").attrs["notes"]
    blank = tables.compact(measure(unchecked=tuple(SPEEDS)), "speedup")
    assert f"? not checked: all trials: {REASON}" in blank.attrs["notes"]


def test_a_table_of_other_trials_names_only_those_it_shows() -> None:
    """The note is of the selected rows and columns."""
    table = tables.compact(measure(), "throughput", select={"compiler": ["identity", "onnxruntime"]})

    assert not [note for note in table.attrs["notes"] if "not checked" in note]


def test_means_of_groups_are_marked_where_a_member_was_not_checked() -> None:
    """A mean is marked if a member of its group was not checked."""
    table = tables.compact(measure("a", "b"), "speedup", by=lambda _: "all")

    assert [False, False, True] == [str(cell).endswith("?") for cell in table.iloc[0]]


def test_an_unchecked_trial_is_never_called_the_fastest() -> None:
    """The verdict names the unchecked rival; the note of the table, which has the reason, is not repeated."""
    conclusions = conclude(measure())

    assert [
        "Not conclusive: the fastest in 1 of 1 groups (net batch 1: onnxruntime or inductor, which was not checked). "
        "Not checked: 1 of 3 trials, which are never called the fastest.",
        "Next: remove the reason why trials were not checked, and run again; "
        "`ngbkit runs --resume r1 --retry not-checked` repeats those of an unchanged network.",
    ] == conclusions.lines
    assert [] == conclusions.more.notes


def test_a_slow_trial_that_was_not_checked_keeps_no_other_from_winning() -> None:
    """The fastest is faster than all that were checked, and than the time of the others."""
    winner, doubt, _ = conclude(measure(unchecked=("onnxruntime",))).lines

    assert winner.startswith("Fastest: inductor for net batch 1, 3.9")
    assert winner.endswith(" times identity.")
    assert "Not checked: 1 of 3 trials, which are never called the fastest." == doubt


def test_a_group_without_any_check_has_no_fastest() -> None:
    """A group without any check has no fastest compiler and no fastest network."""
    conclusions = conclude(measure("a", "b", unchecked=tuple(SPEEDS)))

    assert conclusions.lines[0].startswith("Not conclusive: the fastest in 3 of 3 groups. Not checked: 6 of 6 ")
    assert "a batch 1: not conclusive, none of 3 was checked." == conclusions.more.notes[0]
    assert "Fastest" not in conclusions.to_text()


def test_a_network_is_compared_by_its_checked_columns() -> None:
    """A faster column that was not checked decides nothing; nor are more rounds planned for it."""
    data = measure("a", "b")
    (pair,) = data.ngb.compare_networks().to_dict("records")

    assert ("onnxruntime", "onnxruntime", True) == (pair["compiler_a"], pair["compiler_b"], pair["conclusive"])
    assert [False] == data.ngb.compare_networks("inductor")["conclusive"].tolist()
    compared = [comparison for _, comparison in iterate_comparisons(data)]
    assert "inductor" not in {side.compiler for each in compared for side in (each.first, each.second)}


def test_rankings_end_with_what_was_not_checked() -> None:
    """An unchecked trial ranks last and lowers no probability."""
    ranked = measure().ngb.ranking().set_index("compiler")
    (winner,) = measure().ngb.winners().to_dict("records")

    assert ["onnxruntime", "identity", "inductor"] == ranked.index.tolist()
    assert [True, True, False] == ranked["checked"].tolist()
    assert 1.0 == ranked["probability"]["onnxruntime"]
    assert 2.0 == pytest.approx(ranked["of_best"]["inductor"], rel=0.05)
    assert ("onnxruntime", 1.0, "identity", "inductor") == tuple(
        winner[name] for name in ("compiler", "probability", "second", "unchecked")
    )
    (none,) = measure(unchecked=tuple(SPEEDS)).ngb.winners().to_dict("records")
    assert ("", "", "inductor") == tuple(none[name] for name in ("compiler", "second", "unchecked"))


def test_what_was_not_checked_is_on_no_front() -> None:
    """An unchecked trial is on no front and excludes no other from it."""
    data = measure("a", "b").assign_coords(parameters=("workload", [10, 10]))
    data["status"].loc[{"workload": "a"}] = "not-checked"
    frame = data.sel(compiler=["onnxruntime"]).ngb.front().set_index("workload")

    assert {"a": False, "b": True} == frame["on_front"].to_dict() == frame["checked"].to_dict()


def test_reversals_say_whether_all_four_trials_were_checked() -> None:
    """An order that a wrong answer reverses comes last."""
    data = measure("a", "b")
    slow = (data["workload"] == "a") & (data["compiler"] != "identity")
    data["latency"] = data["latency"].where(~slow, 4 * data["latency"])
    pairs = data.ngb.reversals()

    assert [True, False] == pairs["checked"].tolist()
    assert "inductor" in pairs.iloc[1][["compiler_1", "compiler_2"]].tolist()


def test_a_choice_excludes_it_with_the_reason() -> None:
    """A choice excludes an unchecked trial with its reason, however fast it is."""
    choices = measure().ngb.choose("2s", 0.5)

    assert ["onnxruntime"] == choices.table["compiler"].tolist()
    assert f"excluded: net in inductor at batch 1 on cpu (not checked: {REASON})" in choices.notes
    assert "net: no configuration to choose from" in measure(unchecked=tuple(SPEEDS)).ngb.choose("2s").verdicts


def test_frames_keep_the_reason() -> None:
    """The table of trials has it, and so has the table of a compiler's own report."""
    data = measure()
    trials = frames.to_dataframe(data).set_index("compiler")

    assert ("not-checked", REASON) == tuple(trials.loc["inductor", ["status", "error"]])
    assert not trials.loc["inductor", "speedup_conclusive"]
    assert REASON == data.ngb.why().set_index("compiler")["unchecked"]["inductor"]
    assert ["inductor"] == data.ngb.failures()["compiler"].tolist()


def test_it_is_a_result_and_can_be_compared() -> None:
    """A run without any other has its tables."""
    assert ["speedup", "throughput"] == choose_figures(measure(unchecked=tuple(SPEEDS)))


def test_synthetic_data_has_as_many_as_asked_for() -> None:
    """The numbers of the others stay the same."""
    sweep = build_sweep("a", "b", batch_sizes=(1, 2, 4, 8))
    plain, mixed = synthetic.make_records(sweep), synthetic.make_records(sweep, unchecked=0.5)

    assert {"ok", "not-checked"} == {record.status for record in mixed}
    assert [record.latency_s for record in plain] == [record.latency_s for record in mixed]
    assert 24 == sum(record.status == "not-checked" for record in synthetic.make_records(sweep, unchecked=1.0))


def test_a_growth_of_memory_is_a_note() -> None:
    """The note has the trial, its growth a call, and whether that ended its rounds."""
    sweep, growth = build_sweep(), {"bytes_a_call": 8.0e6, "bytes": 2_400_000_000}
    records = [
        build_record(trial, [1.0] * ROUNDS, facts={"memory_growth": {**growth, "ended": ended}} if grows else {})
        for trial, grows, ended in zip(sweep.trials(), (True, True, False), (False, True, False), strict=True)
    ]
    notes = tables.compact(assemble(sweep, records, run_id="r1"), "throughput").attrs["notes"]

    assert [note for note in notes if "its memory" in note] == [
        "identity on net batch 1: its memory grows by 8 MB a call",
        "onnxruntime on net batch 1: its memory grows by 8 MB a call; its rounds ended early, after 2,400 MB",
    ]
