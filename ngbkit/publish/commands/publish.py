"""``ngbkit publish``: build a site of notebooks."""

from __future__ import annotations

import argparse
from typing import Any

from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, QUIET, Call, Command
from ngbkit.errors import UsageError
from ngbkit.report import Report
from ngbkit.sweep.argument import argument
from ngbkit.user_text import format_size, parse_json


def publish(call: Call) -> Answer:
    """Build the site of a call."""
    from ngbkit import publish as publishing

    site = publishing.publish(**to_call(call.args), report=call.report)
    executed = ", ".join(site.executed) or "no notebook: none changed"
    summary = f"{site.site}: {site.figures} figures, {format_size(site.bytes)}; executed {executed}"
    return Answer(report=Report(sentences=[summary]))


COMMAND = Command(
    name="publish",
    help="Build a site of notebooks whose figures others can check.",
    arguments=(
        argument(
            "notebooks NOTEBOOKS", "a folder of notebooks, or notebooks of one folder", nargs="*", completes="path"
        ),
        argument("-o, --out DIR", "the folder of the site (default: site)", default="site"),
        argument(
            "--from-data",
            "never measure, which is the default: sweeps are read from data/recorded beside the notebooks, or from the "
            "runs that their cells made on this machine",
        ),
        argument("--re-run", "measure everything again, and record it"),
        argument("--missing", "measure and record the sweeps without a recording and without a run"),
        argument(
            "--parameter NOTEBOOK.NAME=VALUE",
            "a value for a name in the notebook's cell tagged `parameters`: gallery-figures.networks=4; once a name",
            action="append",
        ),
        argument("--sign KEY", "sign the site with this private SSH key, such as ~/.ssh/id_ed25519"),
    ),
    run=publish,
    shell=(QUIET,),
    needs=(*CLIENT_SIDE, "altair", "vl_convert"),
)


def to_call(args: argparse.Namespace) -> dict[str, Any]:
    """The keywords of `ngbkit.publish.publish`."""
    chosen = [name for name in ("from_data", "re_run", "missing") if getattr(args, name)]
    if len(chosen) > 1:
        raise UsageError("--from-data, --re-run and --missing exclude each other. Give one of them.")
    notebooks = args.notebooks or ["notebooks"]
    parameters: dict[str, dict[str, Any]] = {}
    for text in args.parameter or ():
        name, equals, value = text.partition("=")
        notebook, dot, variable = name.rpartition(".")
        if not (equals and dot and variable.isidentifier()):
            raise UsageError(
                f"invalid --parameter: got {text!r}; expected NOTEBOOK.NAME=VALUE, such as gallery-figures.networks=4."
            )
        parameters.setdefault(notebook, {})[variable] = _parse_value(value)
    measure = {"re_run": "always", "missing": "missing"}.get(chosen[0] if chosen else "", "never")
    return {
        "notebooks": notebooks[0] if len(notebooks) == 1 else notebooks,
        "out": args.out,
        "measure": measure,
        "parameters": parameters,
        "sign": args.sign,
    }


def _parse_value(text: str) -> Any:
    try:
        return parse_json(text)
    except UsageError:  # a word
        return text
