"""Requirements of some tests beyond README's list, and the only functions that skip a test for want of one.

``python3 tests/requirements.py`` prints the Debian packages that this machine lacks, for `.ci/run` to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

#: Name of the property of a test's report that holds the requirement it was skipped for.
PROPERTY = "missing requirement"
REQUIRE_ALL = "NGBKIT_REQUIRE_ALL"
# A user's PATH often lacks the folders of the system's own tools.
SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Something that a machine may lack."""

    name: str  # in a sentence
    install: str  # the command that installs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Requirement):
    """A program of the system."""

    commands: tuple[str, ...]  # its possible names on PATH
    package: str  # the Debian package that contains it

    def find(self) -> str | None:
        """Find its path on this machine; None where it is missing."""
        return next(filter(None, (shutil.which(command, path=SYSTEM_PATH) for command in self.commands)), None)


def _build_program(name: str, package: str, *commands: str) -> Program:
    return Program(name=name, install=f"sudo apt install {package}", commands=commands, package=package)


BROWSER = _build_program("Chromium", "chromium", "chromium", "chromium-browser", "google-chrome")
CXX_COMPILER = _build_program("a C++ compiler", "g++", "g++", "clang++")
_SSH = _build_program("an ssh client", "openssh-client", "ssh")
_SSH_SERVER = _build_program("an ssh server", "openssh-server", "sshd")
_IP = _build_program("iproute2", "iproute2", "ip")
_UTIL_LINUX = ("unshare", "nsenter", "setpriv")
PROGRAMS: dict[str, Program] = {
    "ssh": _SSH,
    "sshd": _SSH_SERVER,
    "ip": _IP,
    **{name: _build_program(name, "util-linux", name) for name in _UTIL_LINUX},
}
"""The programs of remote hosts, by their command."""

ROOT = Requirement(name="root", install="sudo make test")
OTHER_PYTHON = Requirement(name="a Python of another version", install=".venv/bin/uv python install 3.12")


def require_program(program: Program) -> str:
    """Return the path of a program; skip the test where the machine lacks it."""
    path = program.find()
    if path is None:
        skip(program)
    return path


def require(requirement: Requirement, present: object) -> None:
    """Skip the test unless its requirement is present."""
    if not present:
        skip(requirement)


def skip(requirement: Requirement) -> NoReturn:
    """Skip the test for want of a requirement, or fail it where no test may be skipped."""
    import pytest  # not at the top: `.ci/run` lists packages before the environment exists

    reason = f"needs {requirement.name}; get it by: {requirement.install}"
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{reason} ({REQUIRE_ALL}=1 allows no skip)")
    skipped = pytest.skip.Exception(reason)
    skipped.requirement = requirement  # type: ignore[attr-defined]  # for `summarize`
    raise skipped


def summarize(requirements: Iterable[Sequence[str]]) -> str:
    """Summarize the skipped tests in one line, from the name and the command of each requirement; or nothing."""
    counts = Counter(map(tuple, requirements))
    parts = [f"{count} without {name} ({install})" for (name, install), count in sorted(counts.items())]
    return f"Skipped tests, and the commands that install what they need: {', '.join(parts)}" if parts else ""


def run(command: Sequence[str], environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program that must not fail, by default in this environment and folder; return its output."""
    process = subprocess.run(
        command, env=environment, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if process.returncode:
        output = f"{process.stdout}{process.stderr}"
        raise RuntimeError(f"{' '.join(command)} failed with exit code {process.returncode}: {output}")
    return process.stdout


if __name__ == "__main__":
    missing = {program.package for program in (BROWSER, CXX_COMPILER, *PROGRAMS.values()) if program.find() is None}
    print(*sorted(missing))
