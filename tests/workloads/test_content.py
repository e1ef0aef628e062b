"""The content of a network decides whether it is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ngbkit.workloads import cell
from ngbkit.workloads.base import Workload
from ngbkit.workloads.content import hash_content

SOURCE = """import torch
from helper import width
def model():
    return torch.nn.Linear(width, 2)  # the last layer
input_shape = (4,)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module, which imports another one and a package."""
    (tmp_path / "helper.py").write_text("from other import width\nimport parts.deep\n")
    (tmp_path / "other.py").write_text("width = 4\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "deep.py").write_text("from . import near\n")
    (tmp_path / "parts" / "near.py").write_text("")
    return tmp_path


def digest(folder: Path, source: str = SOURCE, **changes: object) -> str:
    (workload,) = cell.from_source(source)
    return hash_content(replace(workload, **changes), [str(folder)]).digest


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("the last layer", "another comment"),
        SOURCE.replace("(width, 2)", "( width,2 )"),
        SOURCE.replace("input_shape", "\n\n\ninput_shape"),
    ],
)
def test_comments_and_layout_are_no_content(folder: Path, source: str) -> None:
    """The digest stays the same."""
    assert digest(folder) == digest(folder, source)


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("2)", "3)"),
        SOURCE.replace("(4,)", "(8,)"),
        SOURCE.replace("Linear", "LazyLinear"),
        SOURCE + "width = 5\n",
        SOURCE + "import json\n",
    ],
)
def test_code_is_content(folder: Path, source: str) -> None:
    """The digest changes with the code of the cell."""
    assert digest(folder) != digest(folder, source)


@pytest.mark.parametrize("name", ["helper.py", "other.py", "parts/deep.py", "parts/near.py"])
def test_imported_files_are_content(folder: Path, name: str) -> None:
    """The digest changes with each file that the cell imports, also by others."""
    before = digest(folder)
    (folder / name).write_text((folder / name).read_text() + "more = 1\n")

    assert before != digest(folder)


def test_other_files_are_no_content(folder: Path) -> None:
    """A file that nothing imports changes nothing."""
    before = digest(folder)
    (folder / "unrelated.py").write_text("x = 1\n")

    assert before == digest(folder)


@pytest.mark.parametrize("line", ["open('weights.bin')", "torch.load('w.pt')", "import os; os.environ['WIDTH']"])
def test_a_cell_that_reads_has_no_known_content(folder: Path, line: str) -> None:
    """The reason names what reads, in the cell or in a module of it."""
    (workload,) = cell.from_source(SOURCE + line + "\n")
    of_cell = hash_content(workload, [str(folder)])
    (folder / "other.py").write_text(f"import torch\nwidth = 4\n{line}\n")
    of_module = hash_content(cell.from_source(SOURCE)[0], [str(folder)])

    assert ["", ""] == [of_cell.digest, of_module.digest]
    assert "may change" in of_cell.reason
    assert of_cell.reason == of_module.reason


def test_a_file_has_the_modules_beside_it(folder: Path) -> None:
    """A file elsewhere imports its neighbours, which are content."""
    path = folder / "net.py"
    path.write_text(SOURCE)
    (workload,) = [cell.parse(str(path))]
    before = hash_content(workload, []).digest
    (folder / "other.py").write_text("width = 8\n")

    assert before
    assert before != hash_content(workload, []).digest


def test_the_name_is_no_content(folder: Path) -> None:
    """The label of a network and its description in a file name change nothing; its batch axis does."""
    assert digest(folder) == digest(folder, name="other")
    assert digest(folder) != digest(folder, batch_axis={"input": 1})


def test_other_networks_are_known_by_their_description() -> None:
    """The description of a network that is no cell is its content."""
    workload = Workload(name="net", source="blocks", spec={"kind": "conv"})

    assert workload.id == hash_content(workload, []).digest
