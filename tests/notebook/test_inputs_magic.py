"""``%nginputs`` in a real shell, and variables of the notebook as values of inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from cells import fail_cell, run_cell
from field.writing import write_graph
from IPython.core.interactiveshell import InteractiveShell

from ngbkit.commands.answer import Answer
from ngbkit.errors import UsageError

SUM = """
sums (float[batch, "n"] x, float[2, batch] state) => (float[batch, n] y) {
    mean = ReduceMean<axes = [0], keepdims = 1>(state)
    column = Transpose<perm = [1, 0]>(mean)
    y = Add(x, column)
}"""


def list_column(answer: Answer, name: str) -> list[str]:
    """The cells of a column of an answer."""
    (frame,) = answer.report.frames
    return [row[frame.header.index(name)] for row in frame.cells]


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An ONNX file in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_graph(SUM)(tmp_path)
    return "net.onnx"


def test_it_shows_rows_and_sentences(shell: InteractiveShell, network: str) -> None:
    """The value of the magic is a list, in text and in HTML."""
    listing = shell.run_line_magic("nginputs", network)

    assert ["dimension 0", "dimension 1"] == list_column(listing, "batch")
    assert "net: 1 factor without a value: --factor n=…." in repr(listing)
    assert "--factor n=…" in listing._repr_html_()


def test_a_variable_has_the_values_of_a_file(shell: InteractiveShell, network: str) -> None:
    """The arrays of a variable give the inputs their values by name and the sizes of open dimensions."""
    shell.user_ns["arrays"] = {"x": np.ones((3, 5), np.float32)}
    listing = shell.run_line_magic("nginputs", f"{network} --inputs arrays")

    assert ["given: 3 rows", "noise"] == [text.partition(" of ")[0] for text in list_column(listing, "values")]
    assert "net: factors: n=5." in listing.report.notes


def test_a_module_of_the_notebook_has_inputs(shell: InteractiveShell) -> None:
    """The inputs of a module are those of a variable or of a shape."""
    import torch

    shell.user_ns.update(net=torch.nn.Tanh(), rows=torch.ones(3, 4))
    first = shell.run_line_magic("nginputs", "net --inputs rows")
    second = shell.run_line_magic("nginputs", "net --inputs rows --batch-axis input=1")

    assert ("(batch, 4)", "its own: 3 rows") == (list_column(first, "shape")[0], list_column(first, "values")[0])
    assert ("(3, batch)", "its own: 4 rows") == (list_column(second, "shape")[0], list_column(second, "values")[0])


def test_a_module_takes_the_arrays_of_a_file(shell: InteractiveShell, network: str) -> None:
    """A module gets the arrays of a file by argument or in order."""
    import torch

    shell.user_ns["net"] = torch.nn.Tanh()
    np.save("rows.npy", np.ones((2, 7), np.float32))
    listing = shell.run_line_magic("nginputs", "net --inputs rows.npy")

    assert "(batch, 7)" == list_column(listing, "shape")[0]


def test_models_of_a_cell_are_described(shell: InteractiveShell) -> None:
    """Each of `models` has its rows."""
    code = "import torch\nmodels = {'a': torch.nn.Linear(4, 2), 'b': torch.nn.Tanh()}\ninput_shape = (4,)"
    listing = shell.run_cell_magic("nginputs", "", code)

    assert ["a", "b"] == list_column(listing, "network")


def test_a_missing_file_is_an_error(shell: InteractiveShell) -> None:
    """An input that is neither a variable nor a file is an error."""
    import torch

    shell.user_ns["net"] = torch.nn.Tanh()
    error, _ = fail_cell(shell, "%nginputs net --inputs nothing")

    assert isinstance(error, UsageError)
    assert "invalid --inputs: got 'nothing'" in str(error)


def test_a_sweep_takes_a_variable(shell: InteractiveShell, network: str) -> None:
    """The values travel as a file, so that a run can be resumed without the variable."""
    shell.user_ns["arrays"] = {"x": np.ones((3, 5), np.float32), "state": np.ones((2, 3), np.float32)}
    run_cell(shell, f"%ngbench {network} -c identity -r 3 --inputs arrays -o ds")

    assert {"ok"} == set(shell.user_ns["ds"]["status"].values.ravel())
