"""What Binder builds: checked by repo2docker without building it, and by the shell without Binder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_repo2docker_takes_all_of_it() -> None:
    """A typo in runtime.txt would be another Python, and no error."""
    python = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    words = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    said = done.stdout + done.stderr
    packages = (BINDER / "apt.txt").read_text().split()

    assert f"Building conda environment for python={python}" in said
    assert [] == [name for name in ("postBuild", "start", "requirements.txt") if f"binder/{name}" not in said]
    assert re.search(rf"apt-get install .*{re.escape(' '.join(packages))}", said)


def test_all_that_the_project_needs_is_pinned() -> None:
    """Once for each Python, at a version that pyproject.toml takes."""
    lines = [line for line in (BINDER / "requirements.txt").read_text().splitlines() if line and line[0] not in "#- "]
    pins: dict[str, list[Requirement]] = {}
    for pin in map(Requirement, lines):
        pins.setdefault(_plain(pin.name), []).append(pin)
    extras = PROJECT["project"]["optional-dependencies"]
    all_of = re.search(r"\[(.*)\]", extras["all"][0])[1].split(",")  # type: ignore[index]
    asked = [*PROJECT["project"]["dependencies"], *(one for extra in all_of for one in extras[extra])]
    wanted = [Requirement(one) for one in (*asked, *PROJECT["dependency-groups"]["dev"])]
    wanted = [one for one in wanted if one.name != "ngbkit" and (one.marker is None or one.marker.evaluate())]
    fitting = {
        one.name: [
            pin
            for pin in pins.get(_plain(one.name), [])
            if (pin.marker is None or pin.marker.evaluate()) and next(iter(pin.specifier)).version in one.specifier
        ]
        for one in wanted
    }

    assert wanted
    assert {} == {name: found for name, found in fitting.items() if len(found) != 1}


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_can_be_run(name: str) -> None:
    """By their owner, and the shell reads them."""
    script = BINDER / name
    read = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)

    assert script.stat().st_mode & 0o100
    assert "" == read.stderr


def test_start_gives_way_to_what_it_is_told() -> None:
    """With its words, and its status."""
    words = [BINDER / "start", "bash", "-c", 'printf "%s" "$1"; exit 3', "-", "as it came"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (3, "as it came") == (done.returncode, done.stdout)


def test_it_opens_on_the_quick_start() -> None:
    """What postBuild makes the first page of is there."""
    config = json.loads(re.search(r"printf '(.*)\\n'", (BINDER / "postBuild").read_text())[1])  # type: ignore[index]
    page = config["LabApp"]["default_url"].removeprefix("/lab/tree/")

    assert (ROOT / page).is_file()
    assert page.startswith("notebooks/01-")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
