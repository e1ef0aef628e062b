"""The gate in a shell: both sides are measured in turns, judged and reported; invalid sides are refused first."""

from __future__ import annotations

import json
import sys
import venv
from pathlib import Path

import pytest

import ngbkit
from ngbkit import cli
from ngbkit.api import gate as measure_gate
from ngbkit.commands import gate as gate_command
from ngbkit.dataset import storage
from ngbkit.errors import UsageError
from ngbkit.workloads import onnx as onnx_source


def create_environment(folder: Path) -> Path:
    """An environment whose packages are those of this one, by a path file; its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = [str(Path(ngbkit.__file__).parents[1]), *(path for path in sys.path if path.endswith("site-packages"))]
    (site / "packages.pth").write_text("\n".join(paths))
    return folder / "bin" / "python"


@pytest.mark.guard
@pytest.mark.usefixtures("state_dir")
def test_both_sides_take_turns(mlp_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The gate measures both sides in the same rounds and reports the verdict."""
    out, python = tmp_path / "out.nc", create_environment(tmp_path / "after")
    words = ["gate", str(mlp_file), str(mlp_file), "-c", "onnxruntime", "-r", "10", "-o", str(out), "--quiet", "--json"]
    code = cli.main([*words, "--margin", "99%", "--after-python", str(python)])
    report = json.loads(capsys.readouterr().out)
    data = storage.load(out)

    assert ["mlp (before)", "mlp (after)"] == data["workload"].values.tolist()
    assert {"ok"} == set(data["status"].values.ravel())
    assert 1 == len(set(data["bundle"].values.ravel()))
    assert ["mlp"] == [row["workload"] for row in report["trials"]]
    assert "latency, measured in turns" == report["compared"]
    assert (cli.OK if report["passes"] else cli.FAILED) == code
    assert code == cli.main(["gate", str(out), "--margin", "99%", "--json"])
    assert report["trials"] == json.loads(capsys.readouterr().out)["trials"]


@pytest.mark.usefixtures("state_dir")
def test_the_packages_of_an_interpreter_run_its_side(mlp_file: Path, tmp_path: Path) -> None:
    """A side whose interpreter lacks ONNX Runtime fails, and the gate with it."""
    python = create_environment(tmp_path / "bare")
    (site,) = (tmp_path / "bare").glob("lib/python*/site-packages")
    (site / "onnxruntime").mkdir()
    (site / "onnxruntime" / "__init__.py").write_text("raise ImportError('this side has another onnxruntime')")
    result = measure_gate(mlp_file.as_posix(), mlp_file.as_posix(), compilers="onnxruntime", repeats=10,
                          after_python=str(python))  # fmt: skip

    assert ["failed"] == result.trials["verdict"].tolist()
    assert not result.passes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{file}"], "expected two sides, or two columns of one compiler"),
        (["resnet18,{file}", "{file}"], "invalid sides: got 2 networks before and 1 after"),
        (["{file}", "nowhere.onnx"], "there is no file"),
        (["{file}", "{file}", "--margin", "2"], "invalid margin"),
        (["{file}", "{file}", "--fail-on", "faster"], "unknown cause of --fail-on 'faster'"),
        (["{file}", "{file}", "-d", "nowhere"], "unknown device 'nowhere'"),
        (["{file}", "{file}", "--before-python", "/nowhere/python"], "/nowhere/python does not describe its packages"),
        (["{file}", "{file}", "--together"], "unknown option '--together'"),
    ],
)
def test_invalid_sides_are_refused_first(
    mlp_file: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    """Invalid sides are refused before anything is measured."""
    code = cli.main(["gate", *(word.format(file=mlp_file) for word in words), "-c", "onnxruntime"])

    assert code in (cli.INVALID, cli.FAILED)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("word", ["resnet18", "{file}"])
def test_a_network_alone_is_no_earlier_gate(mlp_file: Path, capsys: pytest.CaptureFixture[str], word: str) -> None:
    """The error says what is missing beside a network."""
    code = cli.main(["gate", word.format(file=mlp_file)])

    assert cli.INVALID == code
    assert "A network needs a second side, or two releases" in capsys.readouterr().err


def test_interpreters_are_described_and_must_have_this_ngbkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same packages do not differ; another version of ngbkit is refused."""
    python = create_environment(tmp_path / "same")

    assert [] == gate_command.compare_interpreters(None, None)
    assert [] == gate_command.compare_interpreters(None, str(python))
    monkeypatch.setattr(gate_command, "__version__", "99.0")
    with pytest.raises(UsageError, match=r"has ngbkit .*; expected 99\.0"):
        gate_command.compare_interpreters(None, str(python))


def test_a_gate_is_a_sweep_of_pairs(mlp_file: Path) -> None:
    """A gate sweeps pairs of networks, each labelled by its name before."""
    before, after = onnx_source.file(mlp_file, name="a"), onnx_source.file(mlp_file, name="b")
    sweep = ngbkit.api.build_gate_sweep([before], [after], after_python="/other/python", compilers="onnxruntime")

    assert ["a (before)", "a (after)"] == [workload.name for workload in sweep.workloads]
    assert ["", "/other/python"] == [workload.python for workload in sweep.workloads]
    assert sweep.together
    assert sweep.workloads[0].id != sweep.workloads[1].id
    again = type(sweep).from_json(json.loads(json.dumps(sweep.to_json())), locate=lambda digest: mlp_file)
    assert sweep.id == again.id
