"""The observation of a build, in a process of its own: it sees what Python does, and what other code does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ngbkit.workloads.content.loading import keep_fresh

PROGRAM = """
import json, sys
from pathlib import Path
import numpy, torch
from ngbkit.workloads.content.loading import Loading
loading = Loading.start([Path("own").absolute()])
exec(sys.argv[1])
manifest = loading.stop()
print(json.dumps(manifest.to_json()))
"""


def observe(folder: Path, code: str) -> dict[str, object]:
    """Observe code in a folder that has a module and some files."""
    (folder / "libs").mkdir()
    (folder / "own").mkdir()
    (folder / "libs" / "helper.py").write_text("WIDTH = 4\n")
    (folder / "numbers.bin").write_bytes(bytes(64))
    command = [sys.executable, "-c", PROGRAM, code]
    process = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=300)
    manifest: dict[str, object] = json.loads(process.stdout.splitlines()[-1])
    return manifest


@pytest.mark.parametrize(
    "code",
    [
        "open('numbers.bin', 'rb').read()",
        "numpy.memmap('numbers.bin')",
        "torch.from_file('numbers.bin', size=4)",
        "torch.UntypedStorage.from_file('numbers.bin', False, 8)",
        "__import__('os').open('numbers.bin', 0)",
        "__import__('ctypes').CDLL(None).open(b'numbers.bin', 0)",
        "thread = __import__('threading').Thread(target=lambda: open('numbers.bin')); thread.start(); thread.join()",
    ],
)
def test_every_file_has_a_hash(tmp_path: Path, code: str) -> None:
    """A file that any code opens has its hash in the manifest."""
    manifest = observe(tmp_path, code)

    assert [] == manifest["problems"]
    assert str(tmp_path / "numbers.bin") in str(manifest["files"])


@pytest.mark.parametrize("module", ["xarray", "xarray.ngbtest_absent"])
def test_a_module_that_another_finder_looks_for_is_found(tmp_path: Path, module: str) -> None:
    """ngbkit's finders, two of which look for xarray, each ask those after it, and never one another in a circle."""
    manifest = observe(tmp_path, f"from importlib.util import find_spec; find_spec({module!r})")

    assert module in str(manifest["modules"])


def test_modules_folders_and_missing_files_are_seen(tmp_path: Path) -> None:
    """Modules have their places, listed folders their names, missing files no hash; own files are left out."""
    code = """
sys.path.insert(0, "libs")
import helper, os
try:
    import ngbtest_absent
except ImportError:
    pass
os.listdir("libs")
os.makedirs("libs/__pycache__", exist_ok=True)
os.listdir("libs/__pycache__")
for name in ("missing.json", "own/cache"):
    try:
        open(name)
    except OSError:
        pass
open("written.txt", "w").close()
open("written.txt").close()
"""
    manifest = observe(tmp_path, code)
    files, modules = manifest["files"], manifest["modules"]
    assert isinstance(files, dict)
    assert isinstance(modules, dict)

    assert [str(tmp_path / "libs" / "helper.py")] == modules["helper"][1]
    assert [] == modules["ngbtest_absent"][1]
    assert str(tmp_path / "libs" / "helper.py") in files
    assert "" == files[str(tmp_path / "missing.json")][0]
    assert {str(tmp_path / "libs")} == set(manifest["folders"])  # type: ignore[call-overload]
    assert not {str(tmp_path / "own" / "cache"), str(tmp_path / "written.txt")} & set(files)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("__import__('subprocess').run([sys.executable, '-c', ''])", "it runs "),
        ("__import__('socket').socket().connect_ex(('127.0.0.1', 9))", "it connects to another machine or program"),
        ("__import__('os').mkfifo('fifo'); __import__('os').open('fifo', 2)", "fifo, which is no file"),
    ],
)
def test_what_no_file_shows_is_a_problem(tmp_path: Path, code: str, problem: str) -> None:
    """A build that runs a program, connects, or reads from something else than a file cannot be known by its files."""
    assert any(problem in text for text in observe(tmp_path, code)["problems"])  # type: ignore[attr-defined]


def test_byte_code_of_a_fresh_source_is_not_stored(tmp_path: Path) -> None:
    """A source that changes twice in a second is read again, and not the byte code of its first version."""
    command = f"import sys; from {keep_fresh.__module__} import keep_fresh; keep_fresh(); import fresh; print(fresh.X)"
    outputs = []
    for value in (1, 2):
        (tmp_path / "fresh.py").write_text(f"X = {value}\n")
        process = subprocess.run(
            [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
        )
        outputs.append(process.stdout.strip())

    assert ["1", "2"] == outputs
    assert not (tmp_path / "__pycache__").exists()
