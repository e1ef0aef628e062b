"""The image of Binder: checked by repo2docker without building it, and by the shell without Binder."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from ngbkit.runs import recordings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
BINDER = ROOT / "binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_repo2docker_reads_every_file() -> None:
    """A typo in runtime.txt would select another Python without an error."""
    python = (BINDER / "runtime.txt").read_text().strip().removeprefix("python-")
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", str(ROOT)]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    output = process.stdout + process.stderr

    assert f"Building conda environment for python={python}" in output
    assert [] == [name for name in ("postBuild", "start", "requirements.txt") if f"binder/{name}" not in output]


def test_every_dependency_is_pinned() -> None:
    """The constraints pin each dependency once per Python, at a version that pyproject.toml allows."""
    pins: dict[str, list[Requirement]] = {}
    for pin in _read_requirements(ROOT / "constraints.txt"):
        pins.setdefault(_normalize(pin.name), []).append(pin)
    extras = PROJECT["project"]["optional-dependencies"]

    def expand(name: str) -> list[Requirement]:
        """The requirements of an extra, and of the extras that it includes."""
        parts = [Requirement(text) for text in extras[name]]
        inner = [
            requirement
            for part in parts
            if part.name == "ngbkit"
            for extra in part.extras
            for requirement in expand(extra)
        ]
        return [*parts, *inner]

    texts = [*PROJECT["project"]["dependencies"], *map(str, [*expand("all"), *expand("testing")])]
    requirements = [Requirement(text) for text in (*texts, *PROJECT["dependency-groups"]["dev"])]
    requirements = [req for req in requirements if req.name != "ngbkit" and _is_active(req)]
    matching = {
        req.name: [
            pin
            for pin in pins.get(_normalize(req.name), [])
            if _is_active(pin) and next(iter(pin.specifier)).version in req.specifier
        ]
        for req in requirements
    }

    assert requirements
    assert {} == {name: matches for name, matches in matching.items() if len(matches) != 1}


def test_binder_installs_what_the_quick_start_needs() -> None:
    """JupyterLab and two compilers at the pinned versions, and neither torch nor what developers use (`make pins`)."""
    installed = {_normalize(pin.name): str(pin.specifier) for pin in _read_requirements(BINDER / "requirements.txt")}
    pinned = {
        (_normalize(pin.name), str(pin.specifier))
        for pin in _read_requirements(ROOT / "constraints.txt")
        if pin.marker is None or pin.marker.evaluate({"python_version": "3.12", "python_full_version": "3.12.0"})
    }

    assert {"jupyterlab", "onnxruntime", "openvino", "xarray"} <= installed.keys()
    assert not {"torch", "timm", "mypy", "ruff", "jupyter-repo2docker"} & installed.keys()
    assert installed.items() <= pinned


@pytest.mark.parametrize("name", ["postBuild", "start"])
def test_scripts_can_be_run(name: str) -> None:
    """The scripts are executable by their owner and valid for the shell."""
    script = BINDER / name
    process = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)

    assert script.stat().st_mode & 0o100
    assert "" == process.stderr


def test_start_runs_its_command() -> None:
    """The start script passes the arguments to its command and returns its exit code."""
    command = [BINDER / "start", "bash", "-c", 'printf "%s" "$1"; exit 3', "-", "as it came"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (3, "as it came") == (process.returncode, process.stdout)


def test_start_replays_recordings() -> None:
    """The start script replays the recordings of the notebooks."""
    command = [BINDER / "start", "bash", "-c", f'printf %s "${recordings.FOLDER}"']
    process = subprocess.run(command, capture_output=True, text=True, check=True)

    assert Path(process.stdout).resolve() == ROOT / "notebooks" / "data" / "recorded"


def test_it_opens_on_the_quick_start() -> None:
    """The first page that postBuild configures exists."""
    config = json.loads(re.search(r"printf '(.*)\\n'", (BINDER / "postBuild").read_text())[1])  # type: ignore[index]
    page = config["LabApp"]["default_url"].removeprefix("/lab/tree/")

    assert (ROOT / page).is_file()
    assert page.startswith("notebooks/01-")


def _read_requirements(file: Path) -> list[Requirement]:
    return [Requirement(line) for line in file.read_text().splitlines() if line and line[0] not in "#- "]


def _is_active(requirement: Requirement) -> bool:
    return requirement.marker is None or requirement.marker.evaluate()


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
