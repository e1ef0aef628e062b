"""The words of ``ngbkit publish`` and ``ngbkit verify``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ngbkit.commands.arguments import Argument, argument
from ngbkit.errors import UsageError

PUBLISH: tuple[Argument, ...] = (
    argument("notebooks", nargs="*", metavar="NOTEBOOKS", help="a folder of notebooks, or notebooks of one folder"),
    argument("-o", "--out", metavar="DIR", default="site", help="the folder of the site (default: site)"),
    argument(
        "--from-data",
        action="store_true",
        help="never measure, which is the default: sweeps come from data/recorded beside the notebooks",
    ),
    argument("--re-run", action="store_true", help="measure everything again, and record it"),
    argument("--missing", action="store_true", help="measure what has no recording, and record it"),
    argument(
        "--parameter",
        action="append",
        metavar="NOTEBOOK.NAME=VALUE",
        help="a value for a name in the notebook's cell tagged `parameters`: 03-figures.networks=4; once a name",
    ),
)

VERIFY: tuple[Argument, ...] = (
    argument("site", metavar="SITE", help="the folder of a site"),
    argument("--notebooks", metavar="DIR", help="the notebooks that it was built from (default: its own copies)"),
)


def to_call(asked: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `ngbkit.publish.publish`.

    Raises
    ------
    UsageError
        Words that do not go together, or a parameter that does not read.
    """
    chosen = [name for name in ("from_data", "re_run", "missing") if getattr(asked, name)]
    if len(chosen) > 1:
        raise UsageError("--from-data, --re-run and --missing exclude each other; give one of them.")
    given = asked.notebooks or ["notebooks"]
    parameters: dict[str, dict[str, Any]] = {}
    for text in asked.parameter or ():
        name, equals, value = text.partition("=")
        notebook, dot, variable = name.rpartition(".")
        if not (equals and dot and variable.isidentifier()):
            raise UsageError(
                f"--parameter {text!r} does not read; valid is NOTEBOOK.NAME=VALUE: 03-figures.networks=4."
            )
        parameters.setdefault(notebook, {})[variable] = _value(value)
    measure = {"re_run": "always", "missing": "missing"}.get(chosen[0] if chosen else "", "never")
    notebooks = given[0] if len(given) == 1 else given
    return {"notebooks": notebooks, "out": asked.out, "measure": measure, "parameters": parameters}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
