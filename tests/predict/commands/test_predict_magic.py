"""``%ngpredict`` in a real shell."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from onnxgraphs import residual


@pytest.mark.filterwarnings("ignore:too few networks for intervals")
def test_it_fits_and_predicts(tmp_path: Path, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation is shown, the predictions are the value; the option -o names a file, as in a shell."""
    monkeypatch.chdir(tmp_path)
    names = [residual(tmp_path, width, blocks).name for width in (8, 16) for blocks in (1, 2, 3, 4)]
    Path("labels.csv").write_text(
        "file,ms\n" + "\n".join(f"{name},{0.1 * (index % 4 + 1)}" for index, name in enumerate(names))
    )
    with capture_output():
        table = shell.run_line_magic("ngpredict", f"{names[0]} --fit labels.csv --kind linear -o p.safetensors")
        again = shell.run_line_magic("ngpredict", f"{names[0]} -b 1,2 --predictor p.safetensors")

    assert "noise" in table.report.frames[0].header
    assert (1, 2) == tuple(len(each.report.frames[-1].cells) for each in (table, again))
    assert "samples/s" in again._repr_html_()
