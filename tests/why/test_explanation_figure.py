"""The figure of the gap between two columns along their network."""

from __future__ import annotations

from typing import Any

import pytest
from contrast import LEAST, PAGES, measure_contrasts
from drawn import Spec, read
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from profiled import FUSED, SPLIT, make_explained

import ngbkit  # noqa: F401  the accessor
from ngbkit import figures
from ngbkit.why.explanation import Explanation


@pytest.fixture(scope="module")
def explanation() -> Explanation:
    return make_explained(copies=1e-4).ngb.explain(FUSED, SPLIT)


def list_rows(chart: Any) -> list[dict[str, Any]]:
    """The rows of all panels."""
    datasets = chart.to_dict()["datasets"].values()
    return [row for text in datasets if isinstance(text, str) for row in read(text)]


def test_blocks_are_bars_from_input_to_output(explanation: Explanation) -> None:
    """Each block has a bar with its interval, in the colour of the faster column, and a click opens its pieces."""
    chart = explanation.plot()
    blocks = [row for row in list_rows(chart) if row["part"] == row.get("block")]

    assert [f"blocks.{number}" for number in range(4)] == [row["part"] for row in blocks[:4]]
    assert {FUSED} == {row["faster"] for row in blocks[:4]}
    assert {"no more than chance"} == {row["faster"] for row in blocks[4:]}
    assert all(row["value_low"] < row["value"] < row["value_high"] for row in blocks[:4])
    assert 100 == pytest.approx(sum(row["value"] for row in blocks), abs=0.1)
    assert "opened" in str(chart.to_dict()["params"])


def test_a_click_between_bars_changes_nothing(explanation: Explanation) -> None:
    """It would open all blocks at once; and the figure grows with the pieces that a click opens."""
    fields = explanation.plot().to_dict()
    (click,) = [param["select"]["on"] for param in fields["params"] if param["name"] == "opened"]

    assert "event.item.datum.block" in click
    assert fields["autosize"]["resize"]


def test_the_largest_block_is_open(explanation: Explanation) -> None:
    """A picture shows the pieces of the block with the largest gap, and no other's."""
    texts = Spec(explanation.plot()).texts()
    opened = [block for block in range(4) if f"blocks.{block}.conv_dw" in texts]

    assert 1 == len(opened)


def test_without_blocks_all_pieces_are_bars(explanation: Explanation) -> None:
    """The depth None folds nothing, and has nothing to open."""
    chart = explanation.plot(depth=None)

    assert 14 == len(list_rows(chart))
    assert "params" not in chart.to_dict()


@pytest.mark.parametrize("page", PAGES)
def test_its_texts_are_readable(explanation: Explanation, page: str) -> None:
    """Each has the contrast of WCAG 2 on light and dark pages."""
    texts = measure_contrasts(explanation.plot().to_dict(), page)

    assert [] == [text for text in texts if text.contrast < LEAST]


def test_each_side_of_the_line_is_a_column(explanation: Explanation) -> None:
    """Below the axis both columns are named, and no number has a sign, whichever is faster."""
    backward = make_explained(copies=1e-4).ngb.explain(SPLIT, FUSED)
    texts = [Spec(chart.plot()).texts() for chart in (explanation, backward)]

    assert f"← {SPLIT} is faster   |   {FUSED} is faster →" in texts[0]
    assert f"← {FUSED} is faster   |   {SPLIT} is faster →" in texts[1]
    assert not [text for text in texts[1] if text.startswith(("-", "−")) and text[1:].isdigit()]


def test_it_fits_a_page(explanation: Explanation, tmp_path) -> None:
    """A figure across both columns is a picture."""
    assert figures.save(explanation.plot(), tmp_path / "why.png", width=180).stat().st_size > 1000


def test_it_prints_as_sentence_and_table(explanation: Explanation) -> None:
    """A terminal has the sentence, the largest parts and the notes; a notebook has the figure before these."""
    text, html = repr(explanation), explanation._repr_html_()

    for words in ("openvino is 1.2", "blocks.1.conv_dw", "Kernel time mapped"):
        assert words in text
        assert words in html
    shell = InteractiveShell.instance()
    with capture_output() as output:
        shell.display_formatter.ipython_display_formatter(explanation)
    assert 2 == len(output.outputs)
