"""Tab in a shell, by the protocol of argcomplete."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngbkit import cli

CLI = Path(cli.__file__)
MAIN = CLI.parent / "__main__.py"


LINES = {
    "ngbkit comp": ["compare", "compilers"],
    "ngbkit run --tuning-s": ["--tuning-seconds"],
    "ngbkit run resnet18 -c openv": ["openvino"],
    "ngbkit run resnet18 -c identity,openv": ["identity,openvino"],
    "ngbkit run resnet18 -c 'openvino{pre": ["openvino{precision:"],
    "ngbkit run resnet18 -c 'identity,openvino{\"pre": ['identity,openvino{"precision":'],
    "ngbkit run resnet18 -c 'openvino{streams:1,precision:b": ["openvino{streams:1,precision:bf16"],
    "ngbkit run 'resnet18{img": ["resnet18{img_size:"],
    'ngbkit run \'resnet18{"img_size":': ['resnet18{"img_size":224'],
    "ngbkit run resnet18 -d 'cpu{": [],
    "ngbkit run resnet18 --compilers=openv": ["--compilers=openvino"],
    "ngbkit run deit3_base_patch16_22": ["deit3_base_patch16_224"],
    "ngbkit run resnet18 -b ": [],
    "ngbkit runs --resume 2030": ["20300101-000000-abcd"],
    "ngbkit show 2030": ["20300101-000000-abcd"],
    "ngbkit show a": ["a.nc"],
    "ngbkit show a.nc --rows s": ["samples"],
    "ngbkit devices ch": ["check"],
    "ngbkit run resnet18 -d c": ["cpu"],
    "ngbkit publish noteb": ["notebooks/"],
    "ngbkit run resnet18 -o a.": ["a.nc"],
}

# argcomplete takes over file descriptors, and ends its process: each line has a fork of one process.
PROGRAM = """
import json, os, sys
from ngbkit import cli, registry
from ngbkit.runs import folders, run_index

folders.list_ids = lambda: ["20300101-000000-abcd", "20290101-000000-abcd"]
folders.has_metadata = lambda name: True
run_index.recall = lambda names: {}
list_names = registry.list_names
COMPILERS = ["identity", "onnxruntime", "openvino"]
registry.list_names = lambda group: COMPILERS if group == registry.COMPILERS else list_names(group)
for number, line in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        os.environ |= {"COMP_LINE": line, "COMP_POINT": str(len(line.encode()))}
        os.environ["_ARGCOMPLETE_STDOUT_FILENAME"] = os.path.abspath(f"../{number}")
        sys.exit(cli.main([]))
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, line
"""


def run_python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with this ngbkit."""
    path = os.pathsep.join(filter(None, [str(CLI.parents[1]), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The completions of each line at its end, in a folder of files, as the shell's function asks for them."""
    folder = tmp_path_factory.mktemp("shell") / "work"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "a.nc").touch()
    settings = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SUPPRESS_SPACE": "1", "_ARGCOMPLETE_IFS": "|"}
    done = run_python("-c", PROGRAM, json.dumps(list(LINES)), cwd=folder, **settings)
    assert 0 == done.returncode, done.stderr
    texts = [(folder.parent / str(number)).read_text() for number in range(len(LINES))]
    return {line: sorted(filter(None, text.split("|"))) for line, text in zip(LINES, texts, strict=True)}


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_completed(line: str, completions: dict[str, list[str]]) -> None:
    """Tab completes commands, options, their values and files."""
    values = [value for value in completions[line] if not value.startswith("-") or line.split()[-1].startswith("-")]

    assert LINES[line] == values


def test_the_shell_finds_the_marker() -> None:
    """argcomplete's global completion looks for it in the first kilobyte of the program and of its module."""
    for file in (CLI, MAIN):
        assert "PYTHON_ARGCOMPLETE_OK" in file.read_text()[:1024]


def test_without_argcomplete_tab_does_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tab prints nothing and executes no command if argcomplete is missing."""
    monkeypatch.setitem(sys.modules, "argcomplete", None)
    monkeypatch.setenv("_ARGCOMPLETE", "1")

    assert 0 == cli.main(["runs"])
    assert ("", "") == capsys.readouterr()


def test_a_command_does_not_import_argcomplete(tmp_path: Path) -> None:
    """A command that is not completed does not import argcomplete."""
    program = "import sys; from ngbkit import cli; cli.main(['runs']); sys.exit('argcomplete' in sys.modules)"

    assert importlib.util.find_spec("argcomplete")
    assert 0 == run_python("-c", program, cwd=tmp_path).returncode
