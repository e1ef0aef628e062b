"""The README: its commands, options and code work."""

from __future__ import annotations

import re
from pathlib import Path

import pages
import pytest

from ngbkit import cli

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "README.md").read_text()


def test_the_two_commands_come_first() -> None:
    """They are visible without scrolling."""
    head = TEXT.splitlines()[:15]

    assert [True, True] == [any(command in line for line in head) for command in ("make demo", "make test")]


def test_the_page_of_options_is_that_of_the_code() -> None:
    """If this fails: `make pages`."""
    assert pages.render_options() == pages.OPTIONS.read_text(encoding="utf-8")
    assert pages.OPTIONS.relative_to(ROOT).as_posix() in TEXT


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))
def test_python_runs(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each block runs unchanged, and prints something."""
    exec(compile(block, "README.md", "exec"), {})

    assert capsys.readouterr().out


def test_every_command_of_the_shell_exists() -> None:
    """Those in the list of commands, and in the examples."""
    listed = set(re.search(r"`ngbkit ((?:\w+ \| )+\w+)`", TEXT)[1].split(" | "))  # type: ignore[index]
    used = set(re.findall(r"^    ngbkit (\w+)", TEXT, re.MULTILINE))

    assert set(cli._COMMANDS) == listed
    assert used <= listed
