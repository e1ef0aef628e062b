"""Environments of releases: a compiler's distribution at one version, installed once in the state folder by uv.

    environments/<hash>/                    a virtual environment, complete once it has its description
        environment.json                    its requirements, packages, Python, and what it took
        bin/python                          children of that release are forked from it

The hash is of all that is asked for, so that sweeps and devices of a state folder share it. ngbkit itself is not in it:
see `ngbkit.device.release_sources`.
"""

from __future__ import annotations

import json
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Compiler
from ngbkit.device import release_files
from ngbkit.device.lock import acquire_lock
from ngbkit.device.release_files import DESCRIPTION
from ngbkit.errors import MissingDependencyError, UnsupportedError
from ngbkit.files import write_atomically
from ngbkit.options import LAYOUT, get_state_dir, make_private
from ngbkit.sweep.column import Column
from ngbkit.user_text import parse_json
from ngbkit.validation import Count, Seconds, parse
from ngbkit.workloads.base import hash_json

# What a child imports beside its compiler.
_HARNESS = ("attrs", "numpy", "psutil")
# The minor versions of the Pythons that ngbkit runs on.
_MINORS = range(10, 14)
_POLL_S, _REPORT_S = 0.1, 5.0
# uv's message about a release that exists for other Pythons only.
_TAGS = re.compile(r"following Python ABI tags?: (.*)")
_NO_WHEEL = "has no wheels with a matching Python"
_NO_RELEASE = ("there is no version of", "was not found in the package registry")
_SEND = "A device without a network gets wheels by `ngbkit deploy DEVICE --releases COLUMN --wheelhouse`."


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseEnvironment:
    """An installed release, with all packages of its environment."""

    # The distribution at its release comes first.
    requirements: tuple[str, ...]
    # The version of its Python, which is another one where this one has no wheel of that release.
    python: str
    packages: Mapping[str, str]
    # The duration of the installation, and the size of all files.
    seconds: Seconds
    size_bytes: Count
    # Of the places, the sizes and the times of its files.
    digest: str


def list_requirements(compiler: Compiler, release: str) -> tuple[str, ...]:
    """List what the environment of a compiler's release has, that release first."""
    needs_numpy_1 = compiler.numpy_2 and _parse_numbers(release) < _parse_numbers(compiler.numpy_2)
    harness = ["numpy<2" if name == "numpy" and needs_numpy_1 else name for name in _HARNESS]
    return (f"{compiler.distribution}=={release}", *sorted({*harness, *compiler.beside}))


def _parse_numbers(release: str) -> tuple[int, ...]:
    """Parse the numbers of a release, without what marks a preview or a build."""
    return tuple(map(int, re.split(r"[^0-9.]", release)[0].strip(".").split(".")))


def locate_environment(state_dir: Path, requirements: Sequence[str]) -> Path:
    """Locate the environment with these requirements for this interpreter, whether it exists or not."""
    python = [platform.python_implementation(), *sys.version_info[:2], platform.machine()]
    return state_dir / LAYOUT.environments / hash_json({"python": python, "requirements": list(requirements)})[:20]


def is_environment(interpreter: str) -> bool:
    """Return whether an interpreter is that of an installed release."""
    return (Path(interpreter).parents[1] / DESCRIPTION).is_file() if interpreter else False


def read_environment(folder: Path) -> ReleaseEnvironment | None:
    """Read the description of an environment; None if it is not complete."""
    with suppress(OSError, ValueError):
        environment: ReleaseEnvironment = parse(ReleaseEnvironment, parse_json((folder / DESCRIPTION).read_text()))
        return environment if environment.requirements else None
    return None


def _read_intact(folder: Path, requirements: Sequence[str]) -> ReleaseEnvironment | None:
    """Read the description of an environment whose interpreter and files are still as they were installed."""
    environment = read_environment(folder)
    is_intact = (
        environment is not None
        and environment.requirements == tuple(requirements)
        and environment.python == release_files.read_python(folder)
        and environment.digest == release_files.digest_files(folder)
    )
    return environment if is_intact else None


def list_environments(state_dir: Path) -> list[Path]:
    """List the folders of the complete environments."""
    folders = (state_dir / LAYOUT.environments).glob("[!.]*")
    return sorted(folder for folder in folders if (folder / DESCRIPTION).is_file())


def list_releases(compiler: Compiler) -> list[str]:
    """List the releases of a compiler that are installed in the state folder of this process."""
    described = filter(None, map(read_environment, list_environments(get_state_dir())))
    names = (environment.requirements[0].partition("==") for environment in described)
    return [release for name, _, release in names if compiler.distribution == name]


def describe_releases(state_dir: Path, labels: Iterable[str]) -> dict[str, Any]:
    """Describe the installed environment of each label with a release."""
    described: dict[str, Any] = {}
    for column in map(Column.read, labels):
        if column.release:
            requirements = list_requirements(column.load_compiler(), column.release)
            environment = read_environment(locate_environment(state_dir, requirements))
            described |= {} if environment is None else {column.label: asdict(environment)}
    return described


def install(
    state_dir: Path,
    requirements: Sequence[str],
    *,
    variables: Mapping[str, str],
    interrupt: int,
    report: Callable[[str], None],
    again: bool = False,
) -> ReleaseEnvironment:
    """Install an environment, or find it installed and intact unless `again` is true; `report` receives the progress.

    uv gets the `variables`. UnsupportedError: it cannot be installed here, with the reason and the remedy. OSError: the
    state folder is not writable. InterruptedError: the descriptor
    `interrupt` has become readable.
    """
    folder = locate_environment(state_dir, requirements)
    if not again and (environment := _read_intact(folder, requirements)) is not None:
        with suppress(OSError):  # a folder that others write
            os.utime(folder)
        return environment
    make_private(folder.parent)
    lock = folder.with_name(f".{folder.name}.lock")

    def report_holder(holder: str) -> None:
        report(f"waiting for {holder}, which installs it")

    with acquire_lock(lock, f"that installs {requirements[0]}", interrupt, report_holder):
        # Another plan has perhaps installed it meanwhile.
        environment = None if again else _read_intact(folder, requirements)
        return environment or _Installation(folder, tuple(requirements), variables, interrupt, report).carry_out()


@dataclass(slots=True)
class _Installation:
    """The installation of one environment."""

    folder: Path
    requirements: tuple[str, ...]
    variables: Mapping[str, str]
    interrupt: int
    report: Callable[[str], None]

    def carry_out(self) -> ReleaseEnvironment:
        """Install for this Python, or else for the nearest one that has a wheel of the release."""
        start = time.monotonic()
        partial = self.folder.with_name(f".{self.folder.name}.partial")
        try:
            problem = self._install(partial, sys.executable)
            for minor in _list_other_minors(problem):
                if not self._install(partial, f"3.{minor}"):
                    problem = ""
                    break
            if problem:
                raise UnsupportedError(self._explain(problem))
            if damaged := release_files.find_damaged_file(partial):
                text = f"{damaged} is not as in its wheel. Check the disk"
                raise UnsupportedError(f"{self.requirements[0]} cannot be installed here: {text}.")
            environment = ReleaseEnvironment(
                requirements=self.requirements,
                python=release_files.read_python(partial),
                packages=release_files.list_packages(partial),
                seconds=time.monotonic() - start,
                size_bytes=sum(path.lstat().st_size for path in partial.rglob("*")),
                digest=release_files.digest_files(partial),
            )
            with write_atomically(partial / DESCRIPTION) as draft:
                draft.write_text(json.dumps(asdict(environment)))
            release_files.remove(self.folder)
            partial.replace(self.folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return environment

    def _install(self, partial: Path, python: str) -> str:
        """Create an environment of a Python with all requirements; return uv's complaint, empty if it succeeds."""
        shutil.rmtree(partial, ignore_errors=True)
        words = ("pip", "install", "--python", str(release_files.locate_interpreter(partial)), *self.requirements)
        links = ("--find-links", str(self._shelf)) if self._shelf.is_dir() else ()
        if problem := self._run("venv", "--python", python, str(partial)):
            return problem
        # A device without a network may wait long for an index.
        if links and not self._run(*words, *links, "--no-index"):
            return ""
        problem = self._run(*words, *links)
        # Who damages an environment damages the cache that it has its files from, to which they are hard links.
        if not problem and release_files.find_damaged_file(partial):
            problem = self._run(*words, *links, "--reinstall", "--no-cache")
        return problem

    @property
    def _shelf(self) -> Path:
        """The folder of the wheels that a deployment brought."""
        return self.folder.parents[1] / LAYOUT.releases

    def _explain(self, problem: str) -> str:
        """Explain uv's complaint in a sentence, with the nearest releases where there is no such one."""
        distribution, _, release = self.requirements[0].partition("==")
        python = f"Python 3.{sys.version_info[1]} on {platform.machine()}"
        if _NO_WHEEL in problem:
            minors = " or ".join(f"3.{minor}" for minor in _list_other_minors(problem))
            remedy = f"Install Python {minors}, which uv could not download" if minors else "Choose another release"
            return f"{distribution} {release} has no wheel for {python}. {remedy}."
        if any(f"{text} {distribution}" in problem or f"{distribution} {text}" in problem for text in _NO_RELEASE):
            nearest = dict.fromkeys(filter(None, [self._resolve("<=", "highest"), self._resolve(">=", "lowest")]))
            remedy = f"The nearest are {' and '.join(nearest)}." if nearest else "Check its index."
            return f"{distribution} has no release {release} for {python}. {remedy}{self._shelf.is_dir() * f' {_SEND}'}"
        line = " ".join(problem.partition("cause: ")[2].split()) or problem.strip()
        return f"{distribution} {release} cannot be installed here: {line[:400].rstrip('. ')}. {_SEND}"

    def _resolve(self, sign: str, resolution: str) -> str:
        """Find the nearest release on one side; empty without any."""
        distribution, _, release = self.requirements[0].partition("==")
        with tempfile.TemporaryDirectory() as scratch:
            request, answer = Path(scratch, "request.in"), Path(scratch, "answer.txt")
            request.write_text(f"{distribution}{sign}{release}\n")
            words = ("--no-deps", "--no-header", "--no-annotate", "--resolution", resolution, "--output-file")
            problem = self._run("pip", "compile", *words, str(answer), str(request))
            return "" if problem else answer.read_text().strip().partition("==")[2]

    def _run(self, *words: str) -> str:
        """Run uv; return what it printed if it failed, and empty text if it succeeded."""
        start = reported = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [find_uv(), *words, "--no-progress", "--color", "never"],
                cwd=self.folder.parent,  # without the settings of a project of the user
                env={**self.variables},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                while process.poll() is None:
                    if select.select([self.interrupt], [], [], _POLL_S)[0]:
                        raise InterruptedError("stopped while a release was installed")
                    if time.monotonic() - reported > _REPORT_S:
                        reported = time.monotonic()
                        self.report(f"{reported - start:.0f} s")
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            text = output.read().decode(errors="replace")
        return (text.strip() or f"uv ended with {process.returncode}") if process.returncode else ""


def find_uv() -> str:
    """Find uv, which the extra ``releases`` installs; MissingDependencyError without it."""
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv")
    if program is None:
        raise MissingDependencyError("uv", "releases")
    return program


def _list_other_minors(problem: str) -> list[int]:
    """List the Pythons for which uv's complaint says that there are wheels, the nearest first."""
    tags = _TAGS.search(problem)
    return sorted(_parse_minors(tags[1]), key=lambda minor: abs(minor - sys.version_info[1])) if tags else []


def _parse_minors(tags: str) -> list[int]:
    return [minor for minor in map(int, re.findall(r"\bcp3([0-9]+)\b", tags)) if minor in _MINORS]
