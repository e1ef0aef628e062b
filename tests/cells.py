"""Cells run in a real IPython shell, with their values, texts and errors."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output


def run_cell(shell: InteractiveShell, cell: str) -> tuple[Any, str]:
    """Run a cell; return its value, and the text that it displayed."""
    with capture_output() as captured:
        result = shell.run_cell(dedent(cell))
    result.raise_error()
    displayed = "".join(output.data["text/plain"] for output in captured.outputs)
    return result.result, captured.stdout + captured.stderr + displayed


def fail_cell(shell: InteractiveShell, cell: str) -> tuple[BaseException, str]:
    """Run a cell that must fail; return its error, and the text that it printed."""
    with capture_output() as captured:
        result = shell.run_cell(dedent(cell))
    assert result.error_in_exec is not None
    return result.error_in_exec, captured.stdout + captured.stderr
