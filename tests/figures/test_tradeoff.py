"""Time against answers: the marks, the front, and what is refused."""

from __future__ import annotations

import pytest
import synthetic
import xarray as xr
from drawn import COSTED, LOW, Spec, add_costs, build_costed, measured, network, sweep

from ngbkit import figures, metrics
from ngbkit.dataset import assembly
from ngbkit.errors import MetricError, UnknownNameError
from ngbkit.metrics.acceptance import accept
from ngbkit.sweep.records import Failure


def select(spec: Spec, kind: str) -> dict[str, dict[str, object]]:
    return {str(row["column"]): row for row in spec.rows if row.get("kind") == kind}


def test_a_mark_has_the_time_of_a_call_and_its_answers() -> None:
    """The accuracy is drawn where there are labels, over the time of a call, by runtime and precision."""
    data = build_costed(accuracy=0.8)
    spec = Spec(figures.tradeoff(data))
    row = select(spec, "trial")[LOW]

    milliseconds = 1e3 / metrics.throughput(data).sel(compiler=LOW).item()
    assert pytest.approx((0.8, milliseconds), rel=1e-4) == (row["value"], row["ms"])
    assert ("openvino", "bf16", 100) == (row["compiler"], row["precision"], row["samples"])
    assert row["low"] < 0.8 < row["high"]
    assert "100 evaluated samples" in spec.subtitle


def test_the_front_has_what_nothing_equals_in_less_time() -> None:
    """A faster and worse column and a slower and better one are both on the front."""
    front = [row for row in Spec(figures.tradeoff(build_costed(accuracy=0.8))).rows if row.get("kind") == "front"]

    assert 0.8 == front[0]["value"]
    assert [0.8, 0.9] == sorted(row["value"] for row in front)


def test_what_is_refused_is_crossed_and_never_on_the_front() -> None:
    """Bounds of the figure judge like those of a sweep, and the subtitle names what they refuse."""
    spec = Spec(figures.tradeoff(build_costed(agreement=0.5), cost="agreement", accept="agreement>=0.9"))

    assert (1, 0) == (select(spec, "trial")[LOW]["refused"], select(spec, "trial")[LOW]["conclusive"])
    assert all(row["value"] == 0.98 for row in spec.rows if row.get("kind") == "front")
    assert f"the cost of {LOW} is not accepted" in spec.subtitle


def test_what_was_refused_before_it_was_timed_is_on_the_edge() -> None:
    """A failed trial has its cost, and no time."""
    grid = sweep(network("net"), compilers=COSTED, batch_sizes=(1,))
    records = [
        Failure(trial_id=record.trial_id, status="not-equivalent", stage="check", error="agreement 0.98")
        if trial.compiler == LOW
        else record
        for trial, record in zip(grid.trials(), synthetic.make_records(grid), strict=True)
    ]
    data = assembly.assemble(grid, records)
    assert isinstance(data, xr.Dataset)
    spec = Spec(figures.tradeoff(add_costs(data)))

    assert [LOW] == list(select(spec, "untimed"))
    assert "not timed" in spec.subtitle


def test_a_dataset_without_costs_is_refused() -> None:
    """The error says how to measure them, and which there are."""
    with pytest.raises(MetricError, match=r"Measure with evaluate=FILE, or calibrate=FILE without labels"):
        figures.tradeoff(measured())
    with pytest.raises(UnknownNameError, match=r"unknown cost 'acuracy'\. Did you mean accuracy"):
        figures.tradeoff(build_costed(), cost="acuracy")


def test_bounds_judge_a_dataset() -> None:
    """A column that costs too much keeps its latencies and fails, and one that nothing had judged becomes ok."""
    data = build_costed(agreement=0.5)
    unjudged = data.assign(
        status=data["status"].where(data["compiler"] != LOW, "not-checked"),
        error=data["error"].where(data["compiler"] != LOW, "bf16 is not judged without --accept 'agreement>=0.99': …"),
    )
    refused, accepted = (
        accept(unjudged, bound).sel(compiler=LOW).squeeze() for bound in ("agreement>=0.9", "sqnr>=20")
    )

    assert ("not-equivalent", "agreement 0.5; accepted: agreement>=0.9") == (
        refused["status"].item(),
        refused["error"].item(),
    )
    assert ("ok", "") == (accepted["status"].item(), accepted["error"].item())
    assert bool(refused["latency"].notnull().all())
    with pytest.raises(MetricError, match="needs accuracy, which this dataset lacks"):
        accept(unjudged.drop_vars("accuracy"), "accuracy>=0.9")


def test_a_choice_excludes_what_costs_too_much() -> None:
    """The fastest is chosen if its cost is accepted, and is excluded with the reason otherwise."""
    data = build_costed(agreement=0.5)
    cheap = data.ngb.choose("1h", 0.5, accept="agreement>=0.4")
    dear = data.ngb.choose("1h", 0.5, accept="agreement>=0.9")

    assert LOW == cheap.table["compiler"].item()
    assert "openvino" == dear.table["compiler"].item()
    assert "agreement 0.5; accepted: agreement>=0.9" in str(dear)


def test_a_compiler_of_another_machine_has_its_precision() -> None:
    """A label names its precision, whether its compiler is here or not."""
    data = build_costed()
    renamed = data.assign_coords(compiler=["identity", "openvino", 'unknown{"precision":"bf16"}'])

    assert {"f32", "bf16"} == {row["precision"] for row in select(Spec(figures.tradeoff(renamed)), "trial").values()}
