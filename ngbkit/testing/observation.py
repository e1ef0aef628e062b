"""What happens when a compiler is given every case, seen from child processes.

One child a compiler and form compiles them, as when it is measured: runtimes that share a process slow each other
down, and some pairs crash. A child leaves JSON and NumPy files in a folder, so that nothing is pickled. Where the
environment variable `FOLDER` names a folder, they are kept there, for as long as nothing changes that they depend on.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.compilers.base import Form
from ngbkit.sweep.records import Contract
from ngbkit.testing.child import FOUND, FOUND_AGAIN, SOURCES, load_arrays, resolve
from ngbkit.testing.networks import relative_rmse

FOLDER = "NGBKIT_OBSERVED"
"""The environment variable that names the folder in which observations are kept; without it, none are."""

_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a child found when it compiled one case.

    Parameters
    ----------
    network, batch_size, form, options
        What was compiled.
    expected
        The outputs of the float64 reference.
    outputs
        The outputs of the first call, fetched at once, and of the second; empty where it did not come so far.
    contract, facts, facts_problem
        Of the program; `facts_problem` says why its facts are not plain JSON.
    explained, explained_problem
        What the program told when it was asked to explain itself, or why that is not plain JSON.
    again, again_facts, again_error
        Outputs of the first call, facts and error of a second compile, in a new process, with the cache that the first
        one left; only for the plain cases at the first batch size of a compiler that caches.
    stray
        Files that the children left in their home and their folder for temporary files: none of them is in the cache.
    error, refused
        ``Type: message`` of what was raised, and whether the protocol makes that an `unsupported`.
    detail
        The traceback.
    torch_imported
        Whether the child had torch in it at the end.
    """

    network: str
    batch_size: int
    form: Form
    options: Mapping[str, Any]
    expected: Sequence[np.ndarray] = ()
    outputs: Sequence[Sequence[np.ndarray]] = ()
    contract: Contract | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    facts_problem: str = ""
    explained: Mapping[str, Any] = field(default_factory=dict)
    explained_problem: str = ""
    again: Sequence[np.ndarray] = ()
    again_facts: Mapping[str, Any] = field(default_factory=dict)
    again_error: str = ""
    stray: Sequence[str] = ()
    error: str = ""
    refused: bool = False
    detail: str = ""
    torch_imported: bool = False

    def __str__(self) -> str:
        options = json.dumps(dict(self.options)) if self.options else ""
        return f"{self.network} batch {self.batch_size} from {self.form} {options}".strip()

    @property
    def rmse(self) -> float:
        """The largest relative RMSE of an output of the first call; infinite where outputs are missing or too many."""
        first = self.outputs[0] if self.outputs else ()
        if not first or len(first) != len(self.expected):
            return float("inf")
        return max(map(relative_rmse, self.expected, first))


def observe(reference: str, accelerator: str = "cpu") -> tuple[Attempt, ...]:
    """Compile every case with that compiler for that accelerator, in child processes, once in this process.

    The cases are three networks at batch sizes 1 and 3 in every form of the compiler, every other choice of every
    option on one of them, and an ONNX graph with an operator that nobody knows. A compiler that caches gets
    another child, which compiles the plain ones once more.

    Raises
    ------
    AssertionError
        A child crashed; the message carries the end of its log.
    """
    return _all(reference, accelerator)


@cache
def _all(reference: str, accelerator: str) -> tuple[Attempt, ...]:
    return tuple(attempt for form in resolve(reference).forms for attempt in _observed(reference, form, accelerator))


def _observed(reference: str, form: Form, accelerator: str) -> tuple[Attempt, ...]:
    with tempfile.TemporaryDirectory(prefix="ngbkit-observed-") as folder:
        shelf = _shelf(f"{reference} {form} {accelerator}") if accelerator == "cpu" else None
        if shelf is not None and _is_current(shelf, shelf / "out"):
            return tuple(_read(shelf))
        place = Path(folder)
        _compile(reference, form, accelerator, place)
        if shelf is not None:
            (place / _STATE).write_text(_state(place / "out"))
            shutil.rmtree(shelf, ignore_errors=True)
            shutil.copytree(place, shelf, ignore=shutil.ignore_patterns("cache-*", "home"))
        return tuple(_read(place))


def _compile(reference: str, form: Form, accelerator: str, place: Path) -> None:
    """Have children compile every case, and leave what they find in `place`."""
    out, home, cases = place / "out", place / "home", place / "cases"
    shutil.copytree(_prepared(), cases)
    for folder in (out, home):
        folder.mkdir()
    verbs = ("compile_all", "compile_again") if resolve(reference).caches else ("compile_all",)
    for verb in verbs:
        _run_child(verb, reference, form, str(cases), str(out), accelerator, home=home)
    stray = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    (place / "stray.json").write_text(json.dumps(stray))


def _read(place: Path) -> Iterator[Attempt]:
    """The attempts that children left in `place`."""
    out, cases = place / "out", place / "cases"
    again = json.loads((out / FOUND_AGAIN).read_text()) if (out / FOUND_AGAIN).exists() else {}
    stray = json.loads((place / "stray.json").read_text())
    for index, found in enumerate(json.loads((out / FOUND).read_text())):
        if "contract" in found:
            found["contract"] = Contract(**found["contract"])
            found["outputs"] = _load_calls(out / f"{index}.npz")
        if str(index) in again:
            found |= _found_again(again[str(index)], out / f"{index}-again.npz")
        expected = load_arrays(cases, found["network"], found["batch_size"], "output")
        yield Attempt(expected=expected, stray=stray, **found)


def _shelf(name: str) -> Path | None:
    """Where the observations of that name are kept, if they are."""
    folder = os.environ.get(FOLDER)
    return Path(folder, hashlib.blake2b(name.encode(), digest_size=16).hexdigest()) if folder else None


def _is_current(shelf: Path, out: Path) -> bool:
    """Whether what is kept there is whole, and what it depends on is as it was."""
    return (shelf / _STATE).exists() and (shelf / _STATE).read_text() == _state(out)


def _state(out: Path) -> str:
    """All that depends on the code that the children ran, on the packages and on the machine's tools, now."""
    sources = json.loads((out / SOURCES).read_text())
    digests = {path: _digest(Path(path)) for path in sources}
    return json.dumps({"sources": digests, "packages": _packages(), "machine": _machine()}, indent=1)


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""


@cache
def _packages() -> list[str]:
    return sorted(f"{package.name} {package.version}" for package in metadata.distributions())


@cache
def _machine() -> list[str]:
    """The interpreter, the system, the chip with what it can do, and the C++ compiler."""
    chip = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))]
    cxx = shutil.which(os.environ.get("CXX") or "g++") or ""
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout if cxx else ""
    return [sys.version, *os.uname(), *sorted(set(chip)), version]


def _found_again(found: Mapping[str, Any], outputs: Path) -> dict[str, Any]:
    if "error" in found:
        return {"again_error": found["error"]}
    return {"again": _load_calls(outputs)[0], "again_facts": found.get("facts", {})}


def _load_calls(path: Path) -> list[list[np.ndarray]]:
    with np.load(path) as stored:
        return [[stored[name] for name in stored.files if name.startswith(f"{call}.")] for call in range(2)]


@cache
def _prepared() -> Path:
    """The folder of the cases: their ONNX files, inputs and reference outputs, made once."""
    folder = Path(tempfile.mkdtemp(prefix="ngbkit-cases-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shelf = _shelf(f"cases {_digest_package()} {_packages()} {_machine()}")
    if shelf is None:
        _run_child("prepare", str(folder))
        return folder
    # The workers of a test run would each prepare them.
    with open(shelf.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shelf.is_dir():
            _run_child("prepare", str(folder))
            shutil.copytree(folder, partial := shelf.with_suffix(".partial"))
            # Whole or not at all: nothing ever changes in a folder of that name.
            partial.rename(shelf)
    return shelf


@cache
def _digest_package() -> str:
    """A hash of all code of ngbkit: the cases depend on no other code that a digest of packages leaves out."""
    root = Path(__file__).parents[1]
    return "".join(_digest(path) for path in sorted(root.rglob("*.py")))


def _run_child(verb: str, *arguments: str, home: Path | None = None) -> None:
    # What is left in a home of its own can be seen, and so can temporary files, for which there is a variable as well.
    places = {} if home is None else dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(home))
    program = f"import sys; from ngbkit.testing.child import {verb}; {verb}(*sys.argv[1:])"
    # No time limit: how long a compiler may take depends on the machine. A hang is the test runner's to end.
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        # A compiler that a test module defines must be found there too.
        env={**os.environ, **places, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{verb} {' '.join(arguments[:2])} ended with {done.returncode}:\n{done.stderr[-4000:]}")
