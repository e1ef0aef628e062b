"""The releases of a distribution on the index that uv's settings name, as uv resolves them: an offline folder too."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ngbkit.device.releases import find_uv
from ngbkit.errors import UsageError

# uv's complaint where a range has no release, or none for a Python.
_NO_SOLUTION = "No solution found"
# A release that has wheels has some for one of these.
_OTHER_PYTHONS = ("3.8", "3.10", "3.12", "3.14")
_WORDS = (
    "--no-deps",
    "--no-header",
    "--no-annotate",
    "--prerelease",
    "disallow",
    "--only-binary",
    ":all:",
    "-q",
    "--color",
    "never",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedReleases:
    """Releases from an earlier to a later one, both included, and those between them that cannot be installed here."""

    releases: tuple[str, ...]
    skipped: dict[str, str]


def list_indexed_releases(distribution: str, first: str, last: str) -> IndexedReleases:
    """List the releases between two, without previews and without those that were yanked.

    ``1.19`` is the release 1.19 (or 1.19.0) as it is behind an ``@``, or the newest 1.19.x where there is none.
    UsageError: there are no such two, in this order, or uv cannot read its index.
    """
    first, last = _find_release(distribution, first), _find_release(distribution, last)
    if not _resolve(f"{distribution}>{first},<={last}"):
        raise UsageError(
            f"invalid releases: got {distribution} {first} and {last}; expected an earlier and a later one, such as "
            "1.19..1.23."
        )
    between = partial(_iterate_releases, distribution, first, last)
    with ThreadPoolExecutor() as pool:
        installable, *elsewhere = pool.map(lambda python: list(between(python)), ("", *_OTHER_PYTHONS))
    installable.reverse()
    reason = f"it has no wheel for Python 3.{sys.version_info[1]} on {platform.machine()}"
    others = dict.fromkeys(release for releases in elsewhere for release in reversed(releases))
    skipped = {release: reason for release in others if release not in installable}
    return IndexedReleases(releases=(first, *installable, last), skipped=skipped)


def _find_release(distribution: str, release: str) -> str:
    """Find the release that a text names; UsageError if there is none."""
    for requirement in (f"=={release}", f"=={release}.*"):
        if version := _resolve(distribution + requirement):
            return version
    nearest = [_resolve(f"{distribution}<={release}"), _resolve(f"{distribution}>={release}", "--resolution=lowest")]
    listed = " and ".join(dict.fromkeys(filter(None, nearest)))
    raise UsageError(
        f"invalid release: got {distribution} {release}, which the index has not for Python 3.{sys.version_info[1]}. "
        + (f"The nearest are {listed}." if listed else "Check the index of uv.")
    )


def _iterate_releases(distribution: str, first: str, last: str, python: str) -> Iterator[str]:
    """Yield the releases between two for a Python, by default this one, the latest first."""
    words = ("--python-version", python) if python else ()
    while last := _resolve(f"{distribution}>{first},<{last}", *words):
        yield last


def _resolve(requirement: str, *words: str) -> str:
    """Resolve a requirement to the highest release; empty without any, UsageError if the index cannot be read."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-index-") as scratch:
        request = Path(scratch, "request.in")
        request.write_text(f"{requirement}\n")
        done = subprocess.run(
            [find_uv(), "pip", "compile", "--python", sys.executable, *_WORDS, *words, str(request)],
            cwd=scratch,  # without the settings of a project of the user
            env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode and _NO_SOLUTION not in done.stderr:
        line = " ".join((done.stderr.partition("cause: ")[2] or done.stderr).split())
        raise UsageError(
            f"cannot list the releases of {requirement}: {line[:300]}. Name them: --releases 1.19.2,1.20.1,1.21.0."
        )
    return "" if done.returncode else done.stdout.strip().partition("==")[2]
