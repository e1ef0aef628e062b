"""Front ends that people use: each shows the table, the error and how to resume; see `frontends.py`."""

from __future__ import annotations

import pytest
from frontends import CELLS, EXPECTED, FRONT_ENDS, record, render_terminal


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_a_front_end_shows_the_table_the_error_and_how_to_resume(front_end: str) -> None:
    """One and the same notebook, run as its user runs it; papermill shows an interrupted run in the next list."""
    view = record(front_end, measuring_s=0.5)

    assert [] == [cell for cell in CELLS if not EXPECTED[cell].search(view[cell])], view


def test_a_terminal_shows_a_line_as_it_was_last_overwritten() -> None:
    """The rendered terminal has each line as last overwritten, without colours and links."""
    text = "1 of 2 trials\r\x1b[2K\x1b[1mtable\x1b[0m\r\nlong line\rLONG\n\x1b]8;;x\x07end"

    assert "table\nLONG line\nend" == render_terminal(text)
