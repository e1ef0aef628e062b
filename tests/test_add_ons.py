"""Without the folder of an add-on, ngbkit works: its commands, magics and actions are not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rooms import ADD_ONS, ROOMS, ROOT

from ngbkit import cli, registry

LISTED = """
import json
import ngbkit
from ngbkit import cli, registry
from ngbkit.commands.command import load_commands, load_magics

commands = load_commands()
cli.build_parser(commands).format_help()
panels = registry.load_all(registry.PANELS)
print(json.dumps({"file": ngbkit.__file__, "names": [*commands, *load_magics(), *panels]}))
"""


def copy_without(add_ons: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Copy the checkout without these rooms and their tests; return the environment of processes that use the copy."""
    copied = {"ngbkit": set(add_ons), "tests": {*add_ons, "notebooks"}, "notebooks": set(), "kernels": set()}
    for name, left_out in copied.items():
        (folder / name).mkdir()
        for path in (ROOT.parent / name).iterdir():
            if path.name not in left_out:
                (folder / name / path.name).symlink_to(path)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (folder / name).symlink_to(ROOT.parent / name)
    return {**os.environ, "PYTHONPATH": str(folder)}


@pytest.mark.guard
@pytest.mark.parametrize("add_on", ADD_ONS)
def test_ngbkit_works_without_an_add_on(add_on: str, tmp_path: Path) -> None:
    """Nothing fails or warns without its folder, and none of its names is there."""
    environment = copy_without((add_on,), tmp_path)
    words = [sys.executable, "-W", "error::ngbkit.errors.NgbkitWarning", "-c", LISTED]
    answer = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    listed = json.loads(answer.stdout)
    groups = [registry.list_entry_points(group) for group in (registry.COMMANDS, registry.PANELS)]
    missing = {name for group in groups for name, each in group.items() if each.module.startswith(f"ngbkit.{add_on}.")}

    assert str(tmp_path / "ngbkit" / "__init__.py") == listed["file"]
    assert missing
    assert set() == missing & set(listed["names"])


def test_an_estimate_without_its_add_on_is_refused(tmp_path: Path) -> None:
    """The error says what is missing, and nothing is measured."""
    words = [sys.executable, "-m", "ngbkit", "run", "resnet18", "--estimate"]
    environment = copy_without(("predict",), tmp_path)
    answer = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert cli.INVALID == answer.returncode
    assert "this ngbkit lacks its add-on predict" in answer.stderr


def test_the_tests_of_the_core_pass_without_add_ons(tmp_path: Path) -> None:
    """The core's tests import without any add-on; where commands of add-ons would be found, the quick ones pass."""
    environment = copy_without(ADD_ONS, tmp_path)
    core = [f"tests/{room}" for room in sorted(ROOMS - {*ADD_ONS}) if (tmp_path / "tests" / room).exists()]
    quick = ["--quick", *(f"tests/{room}" for room in ("commands", "notebook", "runs", "cluster"))]
    for words in (["--collect-only", *core], quick):
        line = [sys.executable, "-m", "pytest", "-q", *words]
        answer = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)

        assert 0 == answer.returncode, answer.stdout[-4000:]
