"""What some tests need of a machine beyond README's list, and the one door through which they say that it is missing.

``python3 tests/requirements.py`` prints the Debian packages that this machine lacks, for `.ci/run` to install.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

#: Name of the property of a test's report that holds the requirement it was skipped for.
PROPERTY = "missing requirement"
REQUIRE_ALL = "NGBKIT_REQUIRE_ALL"
# A user's PATH often lacks the folders of the system's own tools.
SYSTEM_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Something that a machine may lack.

    Parameters
    ----------
    name
        What it is called in a sentence.
    install
        The command that brings it.
    """

    name: str
    install: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program(Requirement):
    """A program of the system.

    Parameters
    ----------
    commands
        The names that it may have on PATH.
    package
        The Debian package that brings it.
    """

    commands: tuple[str, ...]
    package: str

    def path(self) -> str | None:
        """Where it is, or None."""
        return next(filter(None, (shutil.which(command, path=SYSTEM_PATH) for command in self.commands)), None)


def _program(name: str, package: str, *commands: str) -> Program:
    return Program(name=name, install=f"sudo apt install {package}", commands=commands, package=package)


BROWSER = _program("Chromium", "chromium", "chromium", "chromium-browser", "google-chrome")
CXX_COMPILER = _program("a C++ compiler", "g++", "g++", "clang++")
_SSH = _program("an ssh client", "openssh-client", "ssh")
_SSH_SERVER = _program("an ssh server", "openssh-server", "sshd")
_IP = _program("iproute2", "iproute2", "ip")
_UTIL_LINUX = ("unshare", "nsenter", "setpriv")
PROGRAMS: dict[str, Program] = {
    "ssh": _SSH,
    "sshd": _SSH_SERVER,
    "ip": _IP,
    **{name: _program(name, "util-linux", name) for name in _UTIL_LINUX},
}
"""The programs of remote hosts, by their command."""

ROOT = Requirement(name="root", install="sudo make test")
OTHER_PYTHON = Requirement(name="a Python of another version", install=".venv/bin/uv python install 3.12")


def require_program(program: Program) -> str:
    """The path of a program; the test is skipped where the machine lacks it."""
    path = program.path()
    if path is None:
        skip(program)
    return path


def require(requirement: Requirement, present: object) -> None:
    """Skip the test unless the machine has what it needs."""
    if not present:
        skip(requirement)


def skip(requirement: Requirement) -> NoReturn:
    """Skip the test for want of a requirement, or fail it where nothing may be missing."""
    import pytest  # not at the top: `.ci/run` asks for packages before there is an environment

    reason = f"needs {requirement.name}; get it by: {requirement.install}"
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{reason} ({REQUIRE_ALL}=1 allows no skip)")
    skipped = pytest.skip.Exception(reason)
    skipped.requirement = requirement  # type: ignore[attr-defined]  # for `summarize`
    raise skipped


def summarize(requirements: Iterable[Sequence[str]]) -> str:
    """One line on the tests that were left out, from the name and the command of each requirement; or nothing."""
    counts = Counter(map(tuple, requirements))
    parts = [f"{count} without {name} ({install})" for (name, install), count in sorted(counts.items())]
    return f"Tests left out, and the command that brings what they need: {', '.join(parts)}" if parts else ""


def run(program: Sequence[str]) -> str:
    """What a program prints; it must not fail."""
    done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(program)} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    lacking = {program.package for program in (BROWSER, CXX_COMPILER, *PROGRAMS.values()) if program.path() is None}
    print(*sorted(lacking))
