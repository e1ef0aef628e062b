"""Errors in a cell are as short as those of a magic."""

from __future__ import annotations

import pytest
from drawn import measured
from IPython.core.interactiveshell import InteractiveShell


@pytest.mark.parametrize("call", ["ds.ngb.speedup(baseline='tvm')", "ds.ngb.plot.depth()", "ds.ngb.friction()"])
def test_an_error_of_the_accessor_is_two_lines(shell: InteractiveShell, capsys, call: str) -> None:
    """The traceback of the accessor has the user's line and the message alone."""
    shell.user_ns["ds"] = measured(batch_sizes=[1])

    result = shell.run_cell(f"x = 1\n{call}\ny = 2")

    lines = capsys.readouterr().out.strip().splitlines()
    error = result.error_in_exec
    assert [f"line 2: {call}", f"{type(error).__name__}: {error}"] == lines


def test_an_error_below_a_function_of_the_user_names_its_line(shell: InteractiveShell, capsys) -> None:
    """The traceback ends with the last line of the user's own code."""
    shell.user_ns["ds"] = measured(batch_sizes=[1])

    shell.run_cell("def draw(data):\n    return data.ngb.plot.depth()\n\ndraw(ds)")

    assert capsys.readouterr().out.startswith("line 2: return data.ngb.plot.depth()\nMetricError: ")
