"""Tuning: progress extends its time limit, its cost is recorded, and trials share a sweep's budget."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from plans import build_spec, carry_out, measure

from ngbkit import options
from ngbkit.api import Sweep
from ngbkit.device import plan
from ngbkit.device.groups import tuning
from ngbkit.device.groups.tuning import Budget, JournalledSearch
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Measurement
from ngbkit.workloads.base import Workload


def test_a_search_that_reports_may_exceed_the_time_limit(mlp: Workload) -> None:
    """Each report restarts the limit: ten of them, half a second apart, with a limit of three seconds."""
    label = 'searching{"candidates":10,"seconds":0.5}'
    records, events = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1, timeout_s=3.0))
    reports = [event for event in events if event["kind"] == "tuning"]

    assert isinstance(records[label, 1], Measurement), records
    assert [event["done"] for event in reports] == list(range(11))
    assert {event["total"] for event in reports} == {10}
    assert all(event["best_s"] == 1 / (event["done"] + 1) and event["left_s"] == 1.0 for event in reports)


def test_a_silent_search_is_ended(mlp: Workload) -> None:
    """A candidate that exceeds the limit is a hang."""
    label = 'searching{"seconds":60.0}'
    records, _ = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1, timeout_s=1.0))

    assert records[label, 1].status == "timeout"


def test_tuning_precedes_timing(mlp: Workload) -> None:
    """Every compiler of a group tunes before the first round, and none after it."""
    labels = ["identity", 'searching{"candidates":2}', "searching"]
    _, events = carry_out(Sweep(mlp, labels, [1], repeats=3, threads=1))
    kinds = [event["kind"] for event in events if event["kind"] in ("tuning", "round")]

    assert kinds.index("round") == kinds.count("tuning") > 0


def test_trials_share_the_budget_of_a_sweep(mlp: Workload) -> None:
    """The first of three trials may spend a third of the seconds, and each later one a part of what is left."""
    sweep = Sweep(mlp, ["searching"], [1, 2, 4], repeats=3, threads=1, tuning_seconds=600)
    records, _ = carry_out(sweep)
    first, second, third = (records["searching", size].facts["budget_s"] for size in (1, 2, 4))

    assert 200 == first
    assert 200 <= second <= third < 600


def test_what_earlier_tuning_saved_counts_as_compile_time(mlp: Workload) -> None:
    """A cold compile that reuses tuning results has the time that it would have taken without them."""
    carry_out(Sweep(mlp, ["searching"], [1], repeats=3, threads=1))
    label = 'searching{"candidates":5}'
    record = measure(Sweep(mlp, [label], [1], repeats=3, threads=1))[label, 1]

    assert 4000 <= record.compile_time_s < 5000


def test_a_killed_search_continues(mlp: Workload) -> None:
    """A killed search continues from the results of its predecessor."""
    killed = 'searching{"stop":2}'
    records, _ = carry_out(Sweep(mlp, [killed], [1], repeats=3, threads=1))
    again, events = carry_out(Sweep(mlp, ["searching"], [1], repeats=3, threads=1))

    assert records[killed, 1].status == "crashed"
    assert again["searching", 1].status == "ok"
    assert [event["done"] for event in events if event["kind"] == "tuning"] == [3, 4]


def test_a_failed_compile_keeps_its_output(mlp: Workload) -> None:
    """The last lines of the compiler's own log follow the traceback."""
    label = 'searching{"fails":true}'
    records, _ = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1))
    record = records[label, 1]

    assert record.error == "RuntimeError: it fell over"
    assert record.detail.index("RuntimeError: it fell over") < record.detail.index("the linker has much to say")


def test_the_cost_is_remembered(tmp_path: Path) -> None:
    """The journal keeps the seconds of tuning, those of a killed engine included."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        for _ in range(2):
            search = JournalledSearch("one", journal)
            time.sleep(0.01)
            search.record()
        spent_s = journal.notes("tuning")["one"]["seconds"]

        assert spent_s >= 0.02
        assert Budget(None, journal).allot(2) is None
        assert Budget(spent_s + 10, journal).allot(5) == pytest.approx(2)
        assert Budget(spent_s + 10, journal).allot(0) == pytest.approx(10)
        assert 0.0 == Budget(spent_s / 2, journal).allot(5)


def test_results_of_tuning_are_separate_from_caches(mlp: Workload) -> None:
    """Neither the eviction of preparations nor a cold compile removes them."""
    sweep = Sweep(mlp, ["searching"], [1], repeats=3, threads=1)
    carry_out(sweep)
    folder = tuning.locate_folder(options.get_state_dir(), "cpu")

    assert len(list((folder / "searching" / "batch-1").iterdir())) == 4
    assert build_spec(sweep).state_dir / "cache" not in folder.parents
    assert plan.locate_journal(options.get_state_dir(), "cpu", "run").exists()
