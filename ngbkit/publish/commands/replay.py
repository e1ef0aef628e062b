"""``ngbkit replay``: execute the notebooks of a site from their recordings, or measure their sweeps again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ngbkit import validation
from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.report import Report
from ngbkit.runs.recordings import FOLDER, MEASURE
from ngbkit.sweep.argument import argument
from ngbkit.sweep.json_values import to_json_value
from ngbkit.tabular import Texts

if TYPE_CHECKING:
    from ngbkit.metrics.reproduction import ReproducedFinding


def replay(call: Call) -> Answer:
    """Replay the site of a call, or measure its sweeps again."""
    args = call.args
    if args.repeats is not None and not args.again:
        raise UsageError("invalid options: got -r without --again, which it belongs to. Add --again.")
    if args.again:
        return _measure(call)
    from ngbkit.publish import replaying

    folder, figures = replaying.replay(
        args.source, args.out, only=args.notebooks, signer=args.signer, report=call.report
    )
    rows = [
        {"figure": each.figure, "title": each.title, "verdict": each.verdict, "reason": each.reason} for each in figures
    ]
    differing = [row for row in rows if row["verdict"] != "same"]
    step = f"`{_format_line(args.source, args.out)}` measures the same sweeps on this machine, and says which "
    report = Report(
        sentences=[f"{folder.root / replaying.EXECUTED}: the executed notebooks", replaying.summarize(figures)],
        frames=[Texts.of_rows(differing)] if differing else [],
        notes=[f"{step}findings hold here.", f"In JupyterLab the notebooks in {folder.notebooks} are replayed too."],
    )
    code = FAILED if differing else OK
    return Answer(json={"folder": str(folder.root), "figures": rows}, report=report, code=code)


COMMAND = Command(
    name="replay",
    help="Execute the notebooks of a published site again, with your rights: from its recordings, or measured here.",
    arguments=(
        argument("source SITE", "archive.zip of a site, or the folder of a site", completes="path"),
        argument("notebooks NOTEBOOK", "which notebooks of it (default: all)", nargs="*"),
        argument("--signer FILE", "the author's public SSH keys, such as key.pub: the site must be signed by one"),
        argument("-o, --out DIR", "a new folder, or that of an earlier replay (default: replayed)", default="replayed"),
        argument(
            "--again",
            "measure the same sweeps on this machine, and say which findings hold here; exits with 1 if one does not",
        ),
        argument("-r, --repeats N", "with --again, timed samples a trial (default: as published)", type=int),
    ),
    run=replay,
    shell=(JSON, QUIET),
    needs=(*CLIENT_SIDE, "altair", "vl_convert"),
)


def _measure(call: Call) -> Answer:
    """Measure the sweeps of a site on this machine, and judge its findings."""
    from ngbkit.metrics.reproduction import FAILS, summarize
    from ngbkit.publish import remeasurement
    from ngbkit.publish.replaying import ReplayFolder

    args = call.args
    if os.environ.get(MEASURE) == "never":
        raise UsageError(f"invalid call: got --again and {MEASURE}=never, which forbids measuring. Unset one of them.")
    if args.repeats is not None:
        validation.check("-r", validation.PositiveCount, args.repeats)
    report = call.report or (lambda _line: None)
    folder = ReplayFolder.open(args.source, args.out)
    notes = folder.check(args.signer)
    for note in notes:
        report(note)
    findings: dict[str, list[ReproducedFinding]] = {}
    sweeps = remeasurement.list_sweeps(folder, folder.select(args.notebooks), args.repeats)
    for each in sweeps:
        notes += [f"{each.name}: {note}" for note in each.notes]
        if each.sweep is None:
            continue
        report(f"measuring {each.name}")
        try:
            with _measuring_in(folder.notebooks):
                data = call.wait(remeasurement.start(folder, each), _format_line(args.source, args.out))
        except NgbkitError as error:
            notes.append(f"{each.name} was not measured: {error}")
            continue
        findings[each.name] = remeasurement.judge(folder, each, data)
    page = remeasurement.write_report(folder, findings, notes)
    rows = [finding for part in findings.values() for finding in part]
    tables = {name: [each.to_row(remeasurement.NAMES) for each in part] for name, part in findings.items()}
    fails = any(finding.verdict == FAILS for finding in rows)
    return Answer.of_rows(
        [row for table in tables.values() for row in table],
        "Nothing was compared.",
        json={"folder": str(folder.root), "findings": to_json_value(tables), "notes": notes},
        notes=[*notes, summarize(rows), f"{page} is this table as a page; `ngbkit runs` lists the runs."],
        code=FAILED if fails or len(findings) < max(1, len(sweeps)) else OK,
    )


def _format_line(source: str, out: str) -> str:
    """Format the line that measures a site again, or goes on with that."""
    return shlex.join(["ngbkit", "replay", source, "-o", out, "--again"])


@contextmanager
def _measuring_in(folder: Path) -> Iterator[None]:
    """Measure in the folder of the notebooks, whose cells import the modules beside them, whatever its recordings."""
    previous, variables = Path.cwd(), {name: os.environ.pop(name, None) for name in (FOLDER, MEASURE)}
    os.chdir(folder)
    os.environ[MEASURE] = "always"
    try:
        yield
    finally:
        os.chdir(previous)
        del os.environ[MEASURE]
        os.environ.update({name: value for name, value in variables.items() if value is not None})
