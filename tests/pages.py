"""Pages that are written from the code: `python tests/pages.py` writes them, and `test_readme.py` compares."""

from __future__ import annotations

from pathlib import Path

from ngbkit.commands.command import load_magics
from ngbkit.sweep.argument import to_markdown

OPTIONS = Path(__file__).parents[1] / "notebooks" / "options.md"


def render_options() -> str:
    """The page of all arguments of the magics."""
    head = (
        "# Options\n\n"
        "Every argument of every magic, as `%ngbench?` and `ngbkit run --help` explain it. "
        "The shell has the same commands without the `%ng`; `%ngbench` is `ngbkit run` there.\n"
    )
    sections = (f"\n## `%{name}`\n\n{to_markdown(command.magic_arguments)}" for name, command in load_magics().items())
    return head + "".join(sections)


if __name__ == "__main__":
    OPTIONS.write_text(render_options(), encoding="utf-8")
