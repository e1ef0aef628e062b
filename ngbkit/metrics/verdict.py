"""Renders the conclusions of a run for a page: the verdict, and the rest folded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ngbkit.errors import translate_commands
from ngbkit.tabular import quote_code

if TYPE_CHECKING:
    from ngbkit.metrics.conclusions import Conclusions

_FOLD = "<details><summary>more</summary><small>{}</small></details>"


def to_html(conclusions: Conclusions, remarks: Sequence[str] = ()) -> str:
    """Render a verdict, with the details and further remarks folded below it; empty without any."""
    verdict = join_lines(conclusions.verdict)
    details = join_lines([*conclusions.details, *remarks])
    return (f"<p>{verdict}</p>" if verdict else "") + (_FOLD.format(details) if details else "")


def join_lines(lines: Sequence[str]) -> str:
    """Join sentences as lines of HTML, with the commands in them as magics."""
    return "<br>".join(quote_code(translate_commands(line, "magic")) for line in lines)
