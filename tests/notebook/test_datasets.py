"""The display of a dataset as the value of a cell: ours by its values, any other as xarray displays it."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from drawn import crashing, measured, network, sweep
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.dataset.storage import Data
from ngbkit.notebook import objects


def display(shell: InteractiveShell, value: object) -> tuple[str, str]:
    """Format a value as text and as HTML."""
    bundle, _ = shell.display_formatter.format(value)  # type: ignore[union-attr]
    return bundle["text/plain"], bundle["text/html"]


@pytest.mark.parametrize("data", [measured(), measured(network("a"), network("b", width=(8, 16)))])
def test_values_come_first(shell: InteractiveShell, data: Data) -> None:
    """Speed-ups have their intervals, as in the table of a run, and throughputs are folded; no JSON is displayed."""
    text, html = display(shell, data)

    for output in (text, html):
        assert output.index("speed-up over identity") < output.index("throughput (samples/s)")
        assert "±" in output
        assert "median of 10 samples per trial · device cpu" in output
        assert '"compilers"' not in output.partition("xr-wrap")[0]
        assert f"xarray.{type(data).__name__}" in output
    values, rest, _ = html.split("<details>", 2)
    assert ["speed-up over identity" in values, "throughput (samples/s)" in rest] == [True, True]
    assert '"compilers"' not in text


def test_the_display_of_xarray_is_folded_below(shell: InteractiveShell) -> None:
    """All of it is there, its attributes folded once more, although xarray unfolds so few by default."""
    data = measured()
    _, html = display(shell, data)
    folded = html.partition("<details>")[2]
    section = folded.partition("xr-section-summary-in")[0], folded.rpartition("xr-section-item")[2]

    assert "ngbkit_version" in folded
    assert "latency" in folded
    assert "Attributes" in section[1]
    assert "checked" not in section[1].partition("</label>")[0]
    assert "checked" in data._repr_html_().rpartition("xr-section-item")[2].partition("</label>")[0]


def test_a_trial_without_a_number_has_its_status(shell: InteractiveShell) -> None:
    """A failure is never an empty cell."""
    text, html = display(shell, crashing(sweep(), "openvino", 4))

    assert "crashed" in text
    assert "crashed" in html


@pytest.mark.parametrize("value", [xr.Dataset({"a": ("x", [1.0])}, attrs={"run_id": "mine"}), xr.DataTree()])
def test_a_dataset_of_others_is_displayed_by_xarray(shell: InteractiveShell, value: Any) -> None:
    """The same text, and the same HTML but for the ids that xarray draws."""
    text, html = display(shell, value)

    assert repr(value) == text
    assert "xr-wrap" in html
    assert "<details>" not in html


@pytest.mark.parametrize(
    "select",
    [lambda ds: ds[["cpu_percent"]], lambda ds: ds.isel(batch_size=[]), lambda ds: ds.rename(compiler="runtime")],
)
def test_what_has_no_values_is_displayed_by_xarray(shell: InteractiveShell, select: Any) -> None:
    """A part of a dataset may lack what the tables need; its attributes stay folded."""
    part = select(measured())
    text, html = display(shell, part)

    assert repr(part) == text
    assert "<details>" not in html
    assert "checked" not in html.rpartition("xr-section-item")[2].partition("</label>")[0]


def test_a_selection_is_displayed_by_its_values(shell: InteractiveShell) -> None:
    """A scalar label is a column or a row like any other."""
    text, _ = display(shell, measured().sel(batch_size=4))

    assert "throughput (samples/s)" in text
    assert "batch_size" in text


def test_a_long_table_is_shortened(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A note has the number of the other rows."""
    data = measured(batch_sizes=range(1, 8))
    monkeypatch.setattr(objects, "_MOST_ROWS", 3)
    text, _ = display(shell, data)

    assert "… and 4 more rows" in text


def test_unloading_restores_the_display_of_xarray(shell: InteractiveShell) -> None:
    """A dataset has xarray's own display after the extension is unloaded."""
    data = measured()
    shell.run_line_magic("unload_ext", "ngbkit")
    text, html = display(shell, data)
    shell.run_line_magic("load_ext", "ngbkit")

    assert repr(data) == text
    assert "<details>" not in html
