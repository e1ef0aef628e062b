"""``%ngoptimize`` in a real shell."""

from __future__ import annotations

from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from onnxgraphs import Builder, write


def test_it_shows_a_table(tmp_path: Path, shell: InteractiveShell) -> None:
    """Each candidate has a row, with its rules, its gain, and whether it is kept."""
    build = Builder(16, 24)
    build.add("Relu", build.add("Add", build.conv("x", 16, 3), build.conv("x", 16, 1)))
    file = write(build.model("v3"), tmp_path / "branches.onnx")

    table = shell.run_line_magic("ngoptimize", f"{file} --rules sum-branches --top 1 -r 6")

    assert "sum-branches" in table._repr_html_()
    assert "yes" in table._repr_html_()
