"""What stands in a code block of the README and of the pages can be done, in the order in which it stands there.

A reader would wait for minutes: what is measured here are small networks under the names of large ones, a few samples
each. What needs a machine that is not here is only asked for, and its devices have to be those of the document.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from documents import Block, Reader, blocks
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import ngbkit
from ngbkit import arguments, cli, runs
from ngbkit.cluster import devices
from ngbkit.predictor import examples
from ngbkit.sweep import Sweep
from ngbkit.workloads.base import Workload

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "notebooks").glob("*.md"))]
DOCUMENTS = [path for path in TEXTS if blocks(path)]
#: What another machine takes, or a tuned network, and is tested where that is made.
ASKED_ONLY = ("deploy", "undeploy", "devices")
#: A block that says so stands on what others in the document made of larger networks.
LABELLED = "ngbkit.predictor.fit(ds)"


@pytest.fixture(scope="session")
def few() -> ngbkit.predictor.Examples:
    """Enough of the stored labels to learn something from."""
    known = examples.load(ROOT / "notebooks" / "data" / "05-labels.nc")
    plain = [at for at, rule in enumerate(known.rules) if not rule and known.families[at] != examples.OPERATOR]
    return known.take(np.array(plain[:16]))


@pytest.fixture
def place(tmp_path: Path, mlp_file: Path, few: ngbkit.predictor.Examples, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that documents name, and sweeps that take no time."""
    shutil.copy(mlp_file, tmp_path / "model.onnx")
    examples.save(few, tmp_path / "labels.nc")
    (tmp_path / "notebooks").mkdir()
    nbformat.write(_notebook(), tmp_path / "notebooks" / "01-small.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Sweep, "__init__", _hasty(Sweep.__init__, ngbkit.workloads.onnx.file(mlp_file)))
    return tmp_path


def _notebook() -> nbformat.NotebookNode:
    """One that measures, and draws."""
    measuring = "%load_ext ngbkit\n%ngbench ../model.onnx -c identity,onnxruntime -r 10 -o ds"
    found = new_notebook(
        cells=[new_markdown_cell("# Small"), *map(new_code_cell, (measuring, "ds.ngb.plot.speedup()"))]
    )
    found.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return found


def _hasty(init: Callable[..., None], small: Workload) -> Callable[..., None]:
    """A sweep that asks for less."""

    def changed(self: Sweep, workloads: Any, *args: Any, **asked: Any) -> None:
        given = [workloads] if isinstance(workloads, (str, Workload)) else list(workloads)
        less = [replace(small, name=_name(one)) if _is_large(one) else one for one in given]
        if asked.get("factors"):
            asked["factors"] = {name: list(values)[:1] for name, values in asked["factors"].items()}
        if asked.get("repeats"):
            asked |= {"repeats": min(asked["repeats"], 8), "min_rounds": 8}
        init(self, less, *args, **asked)

    return changed


def _is_large(one: str | Workload) -> bool:
    return one.source in ("timm", "blocks") if isinstance(one, Workload) else not Path(one).exists()


def _name(one: str | Workload) -> str:
    return one.name if isinstance(one, Workload) else one


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
        asked = arguments.parse(cli._parser(), words[1:])
        labels = [*words[words.index("-d") + 1].split(",")] if "-d" in words else []
        devices.check(labels)
        if words[1] in ASKED_ONLY or words[1:3] in (["cache", "export"], ["cache", "import"]) or labels:
            assert callable(asked.command)
            return
        assert cli.OK == cli.main([_here(word) for word in words[1:]])

    def table(text: str) -> None:
        file = place / devices.NAME
        file.write_text(text)
        file.chmod(0o600)
        assert {"cpu"} < set(devices.load())

    return Reader(cell=cell, command=command, table=table)


def _here(word: str) -> str:
    """What a document calls a run by a date, and a network that would take long to search through."""
    known: Mapping[str, Callable[[], str]] = {
        "20261120": lambda: next(iter(runs.summaries())).id,
        "resnet18": lambda: "model.onnx",
    }
    return known[word]() if word in known else word


def _prepare(place: Path) -> None:
    """Files that a document says somebody else has: copies of the one that it made itself."""
    made = place / "out.nc"
    for name in ("laptop.nc", "orin.nc", "before.nc", "after.nc"):
        if made.exists() and not (place / name).exists():
            shutil.copy(made, place / name)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
@pytest.mark.timeout(900)
def test_every_block_can_be_done(path: Path, reader: Reader) -> None:
    """In order, each with what those before it left."""
    found = blocks(path)

    assert len(found) == reader.try_all(found)


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
