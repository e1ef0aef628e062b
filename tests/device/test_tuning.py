"""Tuning: it may take long as long as it tells, what it costs is counted, and a sweep's budget is shared."""

from __future__ import annotations

from pathlib import Path

import pytest
from plans import carry_out, spec

from ngbkit import options
from ngbkit.device import plan, tuning
from ngbkit.device.tuning import Budget, Search
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.records import Failure, Measurement
from ngbkit.workloads.base import Workload


def test_a_search_may_take_longer_than_a_step_as_long_as_it_tells(mlp: Workload) -> None:
    """Each word of its progress is a sign of life: ten, a fifth of a second apart, within a limit of a second."""
    label = 'searching{"candidates":10,"seconds":0.2}'
    found, events = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1, timeout_s=1.0))
    told = [event for event in events if event["kind"] == "tuning"]

    assert isinstance(found[label, 1], Measurement), found
    assert [event["done"] for event in told] == list(range(11))
    assert {event["total"] for event in told} == {10}
    assert all(event["best_s"] == 1 / (event["done"] + 1) and event["left_s"] == 1.0 for event in told)


def test_a_silent_search_is_ended(mlp: Workload) -> None:
    """A candidate that takes longer than a step may is a hang."""
    label = 'searching{"seconds":60.0}'
    found, _ = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1, timeout_s=1.0))

    assert found[label, 1].status == "timeout"


def test_tuning_comes_before_anything_is_timed(mlp: Workload) -> None:
    """All that tunes in a group has done so before the first round, and nothing tunes after it."""
    labels = ["identity", 'searching{"candidates":2}', "searching"]
    _, events = carry_out(Sweep(mlp, labels, [1], repeats=3, threads=1))
    kinds = [event["kind"] for event in events if event["kind"] in ("tuning", "round")]

    assert kinds.index("round") == kinds.count("tuning") > 0


def test_a_sweeps_budget_is_shared_out(mlp: Workload) -> None:
    """Seven candidates for three batch sizes are two, then half of what is left, then all of that."""
    sweep = Sweep(mlp, ["searching"], [1, 2, 4], repeats=3, threads=1, tuning_candidates=7)
    found, _ = carry_out(sweep)

    assert [found["searching", size].facts["candidates"] for size in (1, 2, 4)] == [2, 2, 3]


def test_what_earlier_tuning_saved_counts_as_compile_time(mlp: Workload) -> None:
    """A cold compile that found the results of tuning is told as long as it would have taken without them."""
    carry_out(Sweep(mlp, ["searching"], [1], repeats=3, threads=1))
    label = 'searching{"candidates":5}'
    found, _ = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1))
    record = found[label, 1]

    assert isinstance(record, Measurement)
    assert 4000 <= record.compile_time_s < 5000


def test_a_killed_search_goes_on_where_it_was(mlp: Workload) -> None:
    """What it had found outlives its process."""
    killed = 'searching{"stop":2}'
    found, _ = carry_out(Sweep(mlp, [killed], [1], repeats=3, threads=1))
    again, events = carry_out(Sweep(mlp, ["searching"], [1], repeats=3, threads=1))

    assert found[killed, 1].status == "crashed"
    assert again["searching", 1].status == "ok"
    assert [event["done"] for event in events if event["kind"] == "tuning"] == [3, 4]


def test_a_failed_compile_keeps_what_it_printed(mlp: Workload) -> None:
    """After the traceback come the last lines of the compiler's own log."""
    label = 'searching{"fails":true}'
    found, _ = carry_out(Sweep(mlp, [label], [1], repeats=3, threads=1))
    record = found[label, 1]

    assert isinstance(record, Failure)
    assert record.error == "RuntimeError: it fell over"
    assert record.detail.index("RuntimeError: it fell over") < record.detail.index("the linker has much to say")


def test_what_was_spent_is_remembered(tmp_path: Path) -> None:
    """By an engine that was killed in between as well, and what its predecessor had tried is not counted twice."""
    with Journal(tmp_path / "journal.sqlite") as journal:
        budget = Budget(None, 100, journal)
        for first, last in ((0, 30), (30, 50)):
            search = Search("one", journal)
            for done in (first, last):
                search.told({"done": done, "total": last})
        spent = journal.notes("tuning")["one"]

        assert spent["candidates"] == 50
        assert budget.share(2) == {"seconds": None, "candidates": 25}
        assert budget.share(0) == {"seconds": None, "candidates": 50}
        assert Budget(spent["seconds"] + 10, 40, journal).share(5) == {"seconds": pytest.approx(2), "candidates": 0}


def test_results_of_tuning_are_kept_apart_from_caches(mlp: Workload) -> None:
    """They are neither where preparations are evicted by size nor where a cold compile begins with nothing."""
    sweep = Sweep(mlp, ["searching"], [1], repeats=3, threads=1)
    carry_out(sweep)
    folder = tuning.folder(options.state_dir(), "cpu")

    assert len(list((folder / "searching" / "batch-1").iterdir())) == 4
    assert spec(sweep).state_dir / "cache" not in folder.parents
    assert plan.journal_path(options.state_dir(), "cpu", "run").exists()
