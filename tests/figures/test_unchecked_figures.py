"""Figures of trials whose outputs could not be compared: hollow marks, and a line of the subtitle with the reason."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from drawn import Spec, flipping, measured, network

from ngbkit import figures

REASON = "the network draws random numbers"


def forget_check(data: xr.Dataset, compiler: str = "openvino") -> xr.Dataset:
    """The dataset, with the trials of one compiler at the smallest batch size not checked."""
    unchecked = (data["compiler"] == compiler) & (data["batch_size"] == data["batch_size"].min())
    texts = {"status": "not-checked", "error": REASON}
    return data.assign(
        {name: data[name].where(~unchecked, text).transpose(*data[name].dims) for name, text in texts.items()}
    )


@pytest.mark.parametrize(
    "name", ["throughput", "speedup", "latency", "break_even", "cpu", "frontier", "reversals", "overview", "status"]
)
def test_every_figure_says_what_was_not_checked(name: str) -> None:
    """The subtitle of every figure lists unchecked trials with the reason."""
    draw: Any = getattr(figures, name)
    unchecked, checked = Spec(draw(forget_check(flipping()))), Spec(draw(flipping()))

    look = "" if name == "status" else " (drawn hollow or pale)"
    assert f"not checked{look}: {REASON}" in unchecked.subtitle
    assert "uncontended" not in unchecked.subtitle
    assert "not checked" not in checked.subtitle


@pytest.mark.parametrize("name", ["throughput", "speedup", "break_even", "cpu", "frontier", "reversals"])
def test_its_marks_are_hollow(name: str) -> None:
    """The marks of an unchecked trial are hollow, and it is no failure."""
    draw: Any = getattr(figures, name)
    unchecked, checked = Spec(draw(forget_check(flipping()))), Spec(draw(flipping()))

    assert unchecked.marks().count("point") > checked.marks().count("point")
    assert {0} == {
        row["conclusive"] for row in unchecked.rows if "openvino" in (row.get("compiler"), row.get("column"))
    }
    assert "no result" not in unchecked.subtitle


def test_a_cell_of_a_heatmap_has_a_question_mark() -> None:
    """A cell of a heatmap has a question mark if it, or what it is relative to, is unchecked."""
    data = forget_check(measured(network("block", width=(8, 16))))
    cells = [row for row in Spec(figures.heatmap(data)).rows if str(row["mark"]).endswith("?")]

    assert {("openvino", 1.0), ("openvino", 4.0)} == {(row["compiler"], row["batch_size"]) for row in cells}


def test_a_grid_of_statuses_has_a_word_for_it() -> None:
    """The grid of statuses has a short word and a colour for unchecked trials."""
    spec = Spec(figures.status(forget_check(measured())))

    assert {"no check", "ok"} == {row["word"] for row in spec.rows}
    assert "1 not-checked" in spec.subtitle


def test_it_is_never_on_the_front_of_a_frontier() -> None:
    """An unchecked trial is drawn and is never on the front."""
    rows = Spec(figures.frontier(forget_check(flipping()))).rows
    front = {(row["network"], row["value"]) for row in rows if row["kind"] == "front"}
    unchecked = {(row["network"], row["value"]) for row in rows if row.get("compiler") == "openvino"}

    assert unchecked
    assert front
    assert not front & unchecked
