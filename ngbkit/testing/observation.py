"""The results of giving every case to a compiler, observed from child processes.

One child per compiler and form compiles them, as in a measurement: runtimes that share a process slow each other down,
and some pairs crash. A child writes JSON and NumPy files to a folder, so that nothing is pickled. If the environment
variable `FOLDER` names a folder, observations are cached there until something that they depend on changes.
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
from ngbkit.testing.child import RECOMPILED, RESULTS, SOURCES, load_arrays, resolve
from ngbkit.testing.networks import relative_rmse
from ngbkit.workloads.subprocesses import SAFE_PATH, build_python_path

FOLDER = "NGBKIT_OBSERVED"
"""The environment variable that names the folder of cached observations; without it, nothing is cached."""

_STATE = "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The result of compiling one case in a child.

    Parameters
    ----------
    network, batch_size, form, options
        The case.
    expected
        The outputs of the float64 reference.
    outputs
        The outputs of the first call, fetched immediately, and of the second; empty after an error.
    contract, facts, facts_problem
        Of the program; `facts_problem` is why its facts are not plain JSON.
    explained, explained_problem
        What the program's `explain` returned, or why that is not plain JSON.
    profile, profile_problem
        The record of its profile, or why there is none; empty without a profiler, with options, and at batch size 1.
    again, again_facts, again_error
        Outputs of the first call, facts and error of a second compile, in a new process with the first one's cache;
        only for the first case of a compiler that caches.
    stray
        Files that the children left in their home and temporary folder, outside the cache.
    error, refused
        ``Type: message`` of the exception, and whether the protocol classifies it as `unsupported`.
    detail
        The traceback.
    torch_imported
        Whether the child had imported torch by its end.
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
    profile: Mapping[str, Any] = field(default_factory=dict)
    profile_problem: str = ""
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
        """The largest relative RMSE of an output of the first call; infinite if the number of outputs is wrong."""
        first = self.outputs[0] if self.outputs else ()
        if not first or len(first) != len(self.expected):
            return float("inf")
        return max(map(relative_rmse, self.expected, first))


def observe(reference: str, accelerator: str = "cpu") -> tuple[Attempt, ...]:
    """Compile every case with a compiler for an accelerator, in child processes, once per process.

    The cases are two networks at batch size 3 in every form of the compiler, one of them at batch size 1, too, with
    every other choice of every option, several options at a time, and an ONNX graph with an unknown operator. For a
    compiler that caches, another child compiles the first case once more.

    Raises
    ------
    AssertionError
        A child crashed; the message includes the end of its log.
    """
    return _observe_forms(reference, accelerator)


@cache
def _observe_forms(reference: str, accelerator: str) -> tuple[Attempt, ...]:
    return tuple(
        attempt for form in resolve(reference).forms for attempt in _observe_form(reference, form, accelerator)
    )


def _observe_form(reference: str, form: Form, accelerator: str) -> tuple[Attempt, ...]:
    with tempfile.TemporaryDirectory(prefix="ngbkit-observed-") as folder:
        entry = _find_entry(f"{reference} {form} {accelerator}") if accelerator == "cpu" else None
        if entry is not None and _is_current(entry, entry / "out"):
            return tuple(_read_attempts(entry))
        root = Path(folder)
        _compile(reference, form, accelerator, root)
        if entry is not None:
            (root / _STATE).write_text(_describe_state(root / "out"))
            shutil.rmtree(entry, ignore_errors=True)
            shutil.copytree(root, entry, ignore=shutil.ignore_patterns("cache-*", "home"))
        return tuple(_read_attempts(root))


def _compile(reference: str, form: Form, accelerator: str, root: Path) -> None:
    """Compile every case in children, which write their results below `root`."""
    out, home, cases = root / "out", root / "home", root / "cases"
    shutil.copytree(_prepare_cases(), cases)
    for folder in (out, home):
        folder.mkdir()
    verbs = ("compile_all", "compile_again") if resolve(reference).caches else ("compile_all",)
    for verb in verbs:
        _run_child(verb, reference, form, str(cases), str(out), accelerator, home=home)
    stray = sorted(str(path.relative_to(home)) for path in home.rglob("*") if path.is_file())
    (root / "stray.json").write_text(json.dumps(stray))


def _read_attempts(root: Path) -> Iterator[Attempt]:
    """Yield the attempts whose results children wrote below `root`."""
    out, cases = root / "out", root / "cases"
    recompiled = json.loads((out / RECOMPILED).read_text()) if (out / RECOMPILED).exists() else {}
    stray = json.loads((root / "stray.json").read_text())
    for index, result in enumerate(json.loads((out / RESULTS).read_text())):
        if "contract" in result:
            result["contract"] = Contract(**result["contract"])
            result["outputs"] = _load_calls(out / f"{index}.npz")
        if str(index) in recompiled:
            result |= _load_recompiled(recompiled[str(index)], out / f"{index}-again.npz")
        expected = load_arrays(cases, result["network"], result["batch_size"], "output")
        yield Attempt(expected=expected, stray=stray, **result)


def _find_entry(name: str) -> Path | None:
    """Return the cache entry of that name, or None without a cache."""
    folder = os.environ.get(FOLDER)
    return Path(folder, hashlib.blake2b(name.encode(), digest_size=16).hexdigest()) if folder else None


def _is_current(entry: Path, out: Path) -> bool:
    """Return whether a cache entry is complete and its dependencies are unchanged."""
    return (entry / _STATE).exists() and (entry / _STATE).read_text() == _describe_state(out)


def _describe_state(out: Path) -> str:
    """Describe everything the results depend on: the code that the children ran, the packages, and the machine."""
    sources = json.loads((out / SOURCES).read_text())
    digests = {path: _hash_file(Path(path)) for path in sources}
    return json.dumps({"sources": digests, "packages": _list_packages(), "machine": _describe_machine()}, indent=1)


def _hash_file(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else ""


@cache
def _list_packages() -> list[str]:
    return sorted(f"{package.name} {package.version}" for package in metadata.distributions())


@cache
def _describe_machine() -> list[str]:
    """Describe the interpreter, the system, the chip with its features, and the C++ compiler."""
    chip = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith(("model name", "flags"))]
    cxx = shutil.which(os.environ.get("CXX") or "g++") or ""
    version = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False).stdout if cxx else ""
    return [sys.version, *os.uname(), *sorted(set(chip)), version]


def _load_recompiled(result: Mapping[str, Any], outputs: Path) -> dict[str, Any]:
    if "error" in result:
        return {"again_error": result["error"]}
    return {"again": _load_calls(outputs)[0], "again_facts": result.get("facts", {})}


def _load_calls(path: Path) -> list[list[np.ndarray]]:
    with np.load(path) as stored:
        return [[stored[name] for name in stored.files if name.startswith(f"{call}.")] for call in range(2)]


@cache
def _prepare_cases() -> Path:
    """Return the folder of the cases: their ONNX files, inputs and reference outputs, prepared once."""
    folder = Path(tempfile.mkdtemp(prefix="ngbkit-cases-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    entry = _find_entry(f"cases {_hash_package()} {_list_packages()} {_describe_machine()}")
    if entry is None:
        _run_child("prepare", str(folder))
        return folder
    # The workers of a test run would each prepare them.
    with open(entry.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not entry.is_dir():
            _run_child("prepare", str(folder))
            shutil.copytree(folder, partial := entry.with_suffix(".partial"))
            # Renamed as a whole; a folder of that name never changes.
            partial.rename(entry)
    return entry


@cache
def _hash_package() -> str:
    """Hash all code of ngbkit, the only code outside the packages that the cases depend on."""
    root = Path(__file__).parents[1]
    return "".join(_hash_file(path) for path in sorted(root.rglob("*.py")))


def _run_child(verb: str, *arguments: str, home: Path | None = None) -> None:
    # Files left in a private home are visible, and so are temporary files, whose folder is a variable too.
    folders = {} if home is None else dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(home))
    program = f"{SAFE_PATH}from ngbkit.testing.child import {verb}; {verb}(*sys.argv[1:])"
    # No time limit: a compile's duration depends on the machine, and the test runner ends a hang.
    process = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        # A compiler defined by a test module must be importable there too.
        env={**os.environ, **folders, "PYTHONPATH": build_python_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode:
        raise AssertionError(
            f"{verb} {' '.join(arguments[:2])} ended with {process.returncode}:\n{process.stderr[-4000:]}"
        )
