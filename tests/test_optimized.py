"""Python without docstrings and asserts, as ``PYTHONOPTIMIZE=2`` sets it: help and documentation are the same."""

from __future__ import annotations

import subprocess
import sys

import pytest

DOCUMENTED = """
import ngbkit
from IPython.core.interactiveshell import InteractiveShell
from ngbkit.notebook import magics
shell = InteractiveShell()
magics.register(shell)
print(ngbkit.Sweep.__doc__.split()[:4], shell.find_line_magic("ngbench").__doc__.split())
"""


@pytest.mark.parametrize(
    "arguments", [["-m", "ngbkit", "--help"], ["-m", "ngbkit", "runs", "--help"], ["-c", DOCUMENTED]]
)
def test_help_does_not_depend_on_docstrings(arguments: list[str]) -> None:
    """The help of commands, `Sweep` and magics is the same without docstrings."""
    texts = [
        subprocess.run([sys.executable, *flags, *arguments], capture_output=True, text=True, check=True).stdout
        for flags in ([], ["-OO"])
    ]

    assert texts[0] == texts[1]
    assert "None" not in texts[0]
