"""Every code block of the README and of the pages runs, in the order of the document.

The sweeps of a document take minutes, so recordings replay them; `make recordings` measures those that have none.
A command for another machine is only checked: its devices must be those of the document, and its sweep must be valid.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import keeping
import nbformat
import numpy as np
import pytest
from documents import BATCH_PROGRAMS, Block, Reader, parse_blocks
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import ngbkit
from ngbkit import cli, options, runs
from ngbkit.cluster import devices
from ngbkit.commands import arguments
from ngbkit.commands.command import load_commands
from ngbkit.commands.parser import parse
from ngbkit.fleet.commands import deploy as deployment_arguments
from ngbkit.predict.labels.example_set import OPERATOR
from ngbkit.runs import recordings

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parents[1] / "recordings"
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "notebooks").glob("*.md"))]
DOCUMENTS = [path for path in TEXTS if parse_blocks(path)]
#: A block with this line learns from the dataset of earlier blocks, which here is too small to learn from.
LABELLED = "ngbkit.predict.fit(ds)"


@pytest.fixture(scope="session")
def few() -> ngbkit.predict.Examples:
    """Just enough of the stored labels to learn from."""
    labels = ngbkit.predict.load_examples(ROOT / "notebooks" / "data" / "labels.nc")
    plain = [index for index, rule in enumerate(labels.rules) if not rule and labels.families[index] != OPERATOR]
    return labels.take(np.array(plain[:10]))


@pytest.fixture
def folder(tmp_path: Path, mlp_file: Path, few: ngbkit.predict.Examples, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that documents name; sweeps in it are replayed."""
    for name in ("model", "before", "after"):
        shutil.copy(mlp_file, tmp_path / f"{name}.onnx")
    (tmp_path / "data").symlink_to(ROOT / "notebooks" / "data")
    few.save(tmp_path / "labels.nc")
    (tmp_path / "notebooks").mkdir()
    shutil.copy(mlp_file, tmp_path / "notebooks" / "model.onnx")
    nbformat.write(_build_notebook(), tmp_path / "notebooks" / "01-small.ipynb")
    nbformat.write(_build_notebook(measures=False), tmp_path / "study.ipynb")
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "id_ed25519")]
    subprocess.run(key, check=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(recordings.FOLDER, str(RECORDED))
    monkeypatch.setenv(recordings.MEASURE, os.environ.get(recordings.MEASURE, "never"))
    return tmp_path


def _build_notebook(*, measures: bool = True) -> nbformat.NotebookNode:
    """Build a notebook that measures and draws, or one of text alone."""
    code = ("%load_ext ngbkit\n%ngbench model.onnx -c identity,onnxruntime -r 10 -o ds", "ds.ngb.plot.speedup()")
    cells = [new_markdown_cell("# Small"), *map(new_code_cell, code if measures else ())]
    notebook = new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


@pytest.fixture
def reader(folder: Path, shell: InteractiveShell, few: ngbkit.predict.Examples) -> Reader:
    """A reader who runs every block."""

    def cell(text: str) -> None:
        if LABELLED in text:
            shell.user_ns["ds"] = few
        # "mine" is the compiler that the reader would write.
        result = shell.run_cell(text.replace('"mine"', '"identity"'))
        result.raise_error()

    def command(words: list[str]) -> None:
        if words[0] in BATCH_PROGRAMS:
            return
        if words[0] == "make":
            subprocess.run([*words[:1], "-n", *words[1:]], cwd=ROOT, capture_output=True, check=True)
            return
        if words[0] == "eval":
            path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(["bash", "-ec", f'eval "{words[1]}"'], env={**os.environ, "PATH": path}, check=True)
            return
        if words[0] in ("pip", "uv"):
            _check_install(words)
            return
        if words[0] == "python":
            (folder / ".local" / "state" / "ngbkit" / "tuning" / "cpu").mkdir(parents=True, exist_ok=True)
            subprocess.run([sys.executable, *(word.replace("~", ".") for word in words[1:])], check=True)
            return
        _prepare(folder)
        parsed = parse(cli.build_parser(load_commands()), words[1:])
        if _is_far(words):
            FAR[words[1]](parsed)
            return
        if {"always", "--again"} & {*words}:
            return  # measures the recordings of `--measure missing` again
        with pytest.MonkeyPatch.context() as patch:
            line = list(map(_resolve_run, words[1:]))
            if words[1] == "optimize":  # its candidates depend on the speed of its search
                patch.delenv(recordings.FOLDER)
                # Its network is rewritten and exported for a minute; that of the next line takes seconds.
                line = ["model.onnx" if word == "resnet18" else word for word in line]
            if words[1] == "capacity":  # p99 needs 459 requests a test: minutes, where other tests slow the server
                line += ["--quantile", "0.5", "--seconds", "0.3"]
            assert cli.OK == cli.main(line)

    def table(text: str) -> None:
        file = folder / devices.NAME
        file.write_text(text)
        file.chmod(0o600)
        assert {"cpu"} < set(devices.load())

    return Reader(cell=cell, command=command, table=table)


def _check_install(words: list[str]) -> None:
    """Check that the extras exist; other words are packages of the reader's own."""
    assert "install" in words
    for word in words:
        if extras := re.fullmatch(r"\.\[(.+)\]", word):
            assert set(extras[1].split(",")) <= set(metadata.metadata("ngbkit").get_all("Provides-Extra") or [])


def _check_sweep(parsed: argparse.Namespace) -> None:
    """Check that the sweep is valid, and its devices are those of the document."""
    sweep = arguments.to_sweep(parsed)
    devices.check(sweep.devices)
    assert len(sweep)


def _check_deploy(parsed: argparse.Namespace) -> None:
    """Check that the device is one of the document's, and another machine."""
    assert "local" != devices.get(parsed.device).launch
    deployment_arguments.to_call(parsed)


def _check_names(parsed: argparse.Namespace) -> None:
    """Check that the named devices exist, and some device is another machine."""
    devices.check(parsed.names)
    assert {"local"} != {device.launch for device in devices.load().values()}


#: The check of each command that would need another machine.
FAR: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "run": _check_sweep,
    "deploy": _check_deploy,
    "devices": _check_names,
}


def _is_far(words: list[str]) -> bool:
    """Check whether a command needs another machine."""
    return words[1] in FAR and (words[1] != "run" or "-d" in words)


def _resolve_run(word: str) -> str:
    """Replace the example id of a run by the id of the newest run."""
    return next(iter(runs.summaries())).id if word == "20261120" else word


def _prepare(folder: Path) -> None:
    """Make the files that a document presumes: datasets of others, copied from its own, and a tuned network."""
    dataset = folder / "out.nc"
    for name in ("laptop.nc", "orin.nc", "before.nc", "after.nc"):
        if dataset.exists() and not (folder / name).exists():
            shutil.copy(dataset, folder / name)
    state_dir = options.get_state_dir()
    if not (state_dir / "tuning").exists():
        keeping.tune(state_dir, "0123456789abcdef")


# The dataset that stands for the reader's has few networks.
@pytest.mark.filterwarnings("ignore:too few networks for intervals")
@pytest.mark.filterwarnings("ignore:beyond the labels")
@pytest.mark.filterwarnings("ignore:no prediction of")
@pytest.mark.filterwarnings("ignore:the network is beyond the labels")
@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_runs(path: Path, reader: Reader) -> None:
    """Blocks run in order, each with the variables and files of those before it."""
    reader.execute(parse_blocks(path))


@pytest.mark.parametrize(
    "line",
    [
        "ngbkit deploy orni",
        "ngbkit deploy cpu --remove",
        "ngbkit devices check orni",
        "ngbkit run resnet18 -d cpu,orni",
        "ngbkit run resnet81 -d cpu,orin",
        "ngbkit run resnet18 -c openvio -d cpu,orin",
    ],
)
def test_a_command_for_another_machine_must_fit_the_document(reader: Reader, line: str) -> None:
    """The devices, network and compilers of a document's remote command are checked."""
    devices_file = Block(document="a.md", line=1, text='[orin]\nlaunch = "ssh"\nhost = "orin"')
    with pytest.raises((ngbkit.errors.NgbkitError, AssertionError)):
        reader.execute([devices_file, Block(document="a.md", line=7, text=line)])


def test_blocks_are_found(tmp_path: Path) -> None:
    """Fenced and indented blocks are found once, and continued lines of a list are none."""
    shell = "    ngbkit runs   # why\n\n    ngbkit show \\\n        out.nc\n"
    text = f"# A\n\nWords:\n\n{shell}\n```python\nprint(1)\n\n    2\n```\n\n- a\n    b\n"
    (tmp_path / "a.md").write_text(text)
    document = parse_blocks(tmp_path / "a.md")

    assert [("shell", 5), ("python", 10)] == [(block.kind, block.line) for block in document]
    assert [["ngbkit", "runs"], ["ngbkit", "show", "out.nc"]] == list(document[0].split_commands())


def test_a_failing_block_is_reported(reader: Reader) -> None:
    """The error names its document and line."""
    with pytest.raises(Exception, match=r"a\.md, line 7"):
        reader.execute([Block(document="a.md", line=7, text="raise ValueError('no')")])
