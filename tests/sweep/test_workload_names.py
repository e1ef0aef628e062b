"""The names of files in a sweep: those that another network has are told apart by the ends of their paths."""

from __future__ import annotations

from pathlib import Path

import pytest
import synthetic
from onnxgraphs import residual

from ngbkit.api import Sweep, build_gate_sweep
from ngbkit.errors import UsageError
from ngbkit.workloads import onnx
from ngbkit.workloads.base import Workload

CELL = "import torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n"


@pytest.fixture(autouse=True)
def _enter_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_files(*names: str) -> list[str]:
    """Write a network in each of these files, in folders of this one."""
    for name in map(Path, names):
        name.parent.mkdir(parents=True, exist_ok=True)
        if name.suffix == ".py":
            name.write_text(CELL)
        else:
            residual(Path(), 8, 1).rename(name)
    return list(names)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["a/model.onnx"], ["model"]),
        (["a/model.onnx", "b/other.onnx"], ["model", "other"]),
        (["a/model.onnx", "b/model.onnx"], ["a/model", "b/model"]),
        (["a/x/model.onnx", "b/x/model.onnx", "y/model.onnx"], ["a/x/model", "b/x/model", "y/model"]),
        (["a/model.onnx", "b/model.py", "c/net.py"], ["a/model", "b/model", "net"]),
        (["a/model.onnx", "a/model.py"], ["model.onnx", "model.py"]),
        (["a/model.onnx", "a/model.py", "b/model.py"], ["model.onnx", "a/model.py", "b/model"]),
        (["a/v1.0.onnx", "b/v1.0.onnx"], ["a/v1.0", "b/v1.0"]),
    ],
)
def test_files_of_one_name_are_told_apart(names: list[str], expected: list[str]) -> None:
    """Each by the shortest end of its path that no other has; a name that no other has stays the file's own."""
    sweep = Sweep(write_files(*names))

    assert expected == [workload.name for workload in sweep.workloads]


def test_a_file_in_the_current_folder_is_told_apart_by_that_folder(tmp_path: Path) -> None:
    """The folder of a file distinguishes its name, however the path is written."""
    write_files("model.onnx", "a/model.onnx")

    names = [workload.name for workload in Sweep(["a/../model.onnx", "./a/model.onnx"]).workloads]
    assert [f"{tmp_path.name}/model", "a/model"] == names


def test_links_are_told_apart_by_their_own_folders() -> None:
    """A download is a link to a file that is called after its content."""
    for folder in ("first", "second"):
        write_files(f"blobs/{folder}.onnx", f"{folder}/model.onnx")
        Path(folder, "model.onnx").unlink()
        Path(folder, "model.onnx").symlink_to(Path("blobs", f"{folder}.onnx").absolute())

    names = [workload.name for workload in Sweep(["first/model.onnx", "second/model.onnx"]).workloads]
    assert ["first/model", "second/model"] == names


def test_a_file_is_told_apart_from_another_network() -> None:
    """A network that is no file keeps its name, as does a workload that the user named."""
    write_files("a/net.onnx", "b/net.onnx", "c/net.onnx")
    net = Workload(name="net", source="timm", spec={"model": "resnet18"})
    renamed = onnx.file("b/net.onnx", name="mine")

    names = [workload.name for workload in Sweep(["a/net.onnx", net, renamed, onnx.file("c/net.onnx")]).workloads]
    assert ["a/net", "net", "mine", "c/net"] == names


@pytest.mark.parametrize("name", ["model.onnx", "model.py"])
def test_a_file_that_is_named_twice_is_refused(name: str) -> None:
    """The error of a file that is named twice has its path."""
    write_files(f"a/{name}")

    with pytest.raises(UsageError, match=rf"got the file .*a/{name} 2 times as 'model'; expected it once"):
        Sweep([f"a/{name}", f"./a/../a/{name}"])


def test_a_file_under_two_names_is_two_networks() -> None:
    """A file that the user names twice is two networks."""
    (path,) = write_files("a/model.onnx")
    names = [workload.name for workload in Sweep([onnx.file(path), onnx.file(path, name="again")]).workloads]

    assert ["model", "again"] == names


def test_the_sides_of_a_gate_have_files_of_one_name() -> None:
    """Several networks of a side are told apart; the pair has the name of the earlier one."""
    files = write_files("a/model.onnx", "b/model.onnx", "after/a/model.onnx", "after/b/model.onnx")
    sweep = build_gate_sweep(files[:2], files[2:])

    again = build_gate_sweep(files[0], files[0])

    assert ["a/model (before)", "b/model (before)"] == [workload.name for workload in sweep.workloads[::2]]
    assert ["model (before)", "model (after)"] == [workload.name for workload in again.workloads]


def test_labels_of_files_survive_json_and_a_dataset(tmp_path: Path) -> None:
    """A run that is resumed has the same trials, and a label selects the file."""
    sweep = Sweep(write_files("a/model.onnx", "b/model.onnx"), together=True)
    back = Sweep.from_json(sweep.to_json())
    data = synthetic.make_dataset(sweep)

    assert [trial.id for trial in sweep.trials()] == [trial.id for trial in back.trials()]
    assert str(tmp_path) not in str(sweep.to_json())
    assert ["a/model", "b/model"] == data["workload"].values.tolist()
    assert 1 == data.sel(workload=["b/model"]).sizes["workload"]
