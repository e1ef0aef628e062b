"""What stands in a code block of the README and of the pages can be done, in the order in which it stands there.

Its sweeps are those that the document names, replayed from recordings, since a reader would wait for minutes; `make
recordings` measures what has none. What needs a machine that is not here is only asked for: its devices have to be
those of the document, and its sweep has to be one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import keeping
import nbformat
import numpy as np
import pytest
from documents import Block, Reader, blocks
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import ngbkit
from ngbkit import cli, options, runs
from ngbkit.cluster import devices
from ngbkit.commands import arguments
from ngbkit.commands import deploy as deployment_arguments
from ngbkit.predictor import examples
from ngbkit.runs import recordings

ROOT = Path(__file__).parents[2]
RECORDED = Path(__file__).parents[1] / "recordings"
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "notebooks").glob("*.md"))]
DOCUMENTS = [path for path in TEXTS if blocks(path)]
#: A block that says so stands on what others in the document made of larger networks.
LABELLED = "ngbkit.predictor.fit(ds)"


@pytest.fixture(scope="session")
def few() -> ngbkit.predictor.Examples:
    """Enough of the stored labels to learn something from."""
    known = examples.load(ROOT / "notebooks" / "data" / "05-labels.nc")
    plain = [index for index, rule in enumerate(known.rules) if not rule and known.families[index] != examples.OPERATOR]
    return known.take(np.array(plain[:10]))


@pytest.fixture
def place(tmp_path: Path, mlp_file: Path, few: ngbkit.predictor.Examples, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that documents name, in which sweeps are replayed."""
    shutil.copy(mlp_file, tmp_path / "model.onnx")
    examples.save(few, tmp_path / "labels.nc")
    (tmp_path / "notebooks").mkdir()
    nbformat.write(_notebook(), tmp_path / "notebooks" / "01-small.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(recordings.FOLDER, str(RECORDED))
    monkeypatch.setenv(recordings.MEASURE, os.environ.get(recordings.MEASURE, "never"))
    return tmp_path


def _notebook() -> nbformat.NotebookNode:
    """One that measures, and draws."""
    measuring = "%load_ext ngbkit\n%ngbench ../model.onnx -c identity,onnxruntime -r 10 -o ds"
    notebook = new_notebook(
        cells=[new_markdown_cell("# Small"), *map(new_code_cell, (measuring, "ds.ngb.plot.speedup()"))]
    )
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


@pytest.fixture
def reader(place: Path, shell: InteractiveShell, few: ngbkit.predictor.Examples) -> Reader:
    """Somebody who types it all in."""

    def cell(text: str) -> None:
        if LABELLED in text:
            shell.user_ns["ds"] = few
        # The compiler that somebody else has yet to write.
        result = shell.run_cell(text.replace('"mine"', '"identity"'))
        result.raise_error()

    def command(words: list[str]) -> None:
        if words[0] == "make":
            subprocess.run([*words[:1], "-n", *words[1:]], cwd=ROOT, capture_output=True, check=True)
            return
        _prepare(place)
        parsed = arguments.parse(cli._parser(), words[1:])
        if _is_far(words):
            FAR[words[1]](parsed)
            return
        with pytest.MonkeyPatch.context() as patch:
            if words[1] == "optimize":  # what it measures depends on how far its search came
                patch.delenv(recordings.FOLDER)
            assert cli.OK == cli.main([_own_run(word) for word in words[1:]])

    def table(text: str) -> None:
        file = place / devices.NAME
        file.write_text(text)
        file.chmod(0o600)
        assert {"cpu"} < set(devices.load())

    return Reader(cell=cell, command=command, table=table)


def _check_sweep(parsed: argparse.Namespace) -> None:
    """The sweep is one, and its devices are those of the document."""
    sweep = arguments.to_sweep(parsed)
    devices.check(sweep.devices)
    assert len(sweep)


def _check_deploy(parsed: argparse.Namespace) -> None:
    """The device is one of the document's, and another machine."""
    assert "local" != devices.get(parsed.device).launch
    if "extras" in parsed:
        deployment_arguments.to_call(parsed)


def _check_names(parsed: argparse.Namespace) -> None:
    """There are other devices than this machine, those that are named among them."""
    devices.check(parsed.names)
    assert {"local"} != {device.launch for device in devices.load().values()}


#: By command what is looked at where another machine would have to answer.
FAR: Mapping[str, Callable[[argparse.Namespace], None]] = {
    "run": _check_sweep,
    "deploy": _check_deploy,
    "undeploy": _check_deploy,
    "devices": _check_names,
}


def _is_far(words: list[str]) -> bool:
    """Whether a command asks for another machine."""
    return words[1] in FAR and (words[1] != "run" or "-d" in words)


def _own_run(word: str) -> str:
    """What a document calls a run by a date is the newest run here."""
    return next(iter(runs.summaries())).id if word == "20261120" else word


def _prepare(place: Path) -> None:
    """What a document says that somebody has: files of others, which are copies of its own, and a tuned network."""
    own = place / "out.nc"
    for name in ("laptop.nc", "orin.nc", "before.nc", "after.nc"):
        if own.exists() and not (place / name).exists():
            shutil.copy(own, place / name)
    state_dir = options.state_dir()
    if not (state_dir / "tuning").exists():
        keeping.tune(state_dir, "0123456789abcdef")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_block_can_be_done(path: Path, reader: Reader) -> None:
    """In order, each with what those before it left."""
    code = blocks(path)

    assert len(code) == reader.try_all(code)


@pytest.mark.parametrize(
    "line",
    [
        "ngbkit deploy orni",
        "ngbkit undeploy cpu",
        "ngbkit devices check orni",
        "ngbkit run resnet18 -d cpu,orni",
        "ngbkit run resnet81 -d cpu,orin",
        "ngbkit run resnet18 -c openvio -d cpu,orin",
    ],
)
def test_a_command_for_another_machine_must_fit_the_document(reader: Reader, line: str) -> None:
    """Its devices, its network and its compilers."""
    table = Block(document="a.md", line=1, text='[orin]\nlaunch = "ssh"\nhost = "orin"')
    with pytest.raises((ngbkit.errors.NgbkitError, AssertionError)):
        reader.try_all([table, Block(document="a.md", line=7, text=line)])


def test_blocks_are_found(tmp_path: Path) -> None:
    """Fenced and indented ones, each once, and no continued line of a list."""
    shell = "    ngbkit runs   # why\n\n    ngbkit show \\\n        out.nc\n"
    text = f"# A\n\nWords:\n\n{shell}\n```python\nprint(1)\n\n    2\n```\n\n- a\n    b\n"
    (tmp_path / "a.md").write_text(text)
    found = blocks(tmp_path / "a.md")

    assert [("shell", 5), ("python", 10)] == [(one.kind, one.line) for one in found]
    assert [["ngbkit", "runs"], ["ngbkit", "show", "out.nc"]] == list(found[0].commands())


def test_a_block_that_cannot_be_done_is_told(reader: Reader) -> None:
    """With its document and its line."""
    with pytest.raises(Exception, match=r"a\.md, line 7"):
        reader.try_all([Block(document="a.md", line=7, text="raise ValueError('no')")])
