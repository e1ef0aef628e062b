"""``ngbkit gate``: two versions of networks, of a compiler or of an environment, measured in turns and judged.

Of many releases of a compiler it finds the one since which a network is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ngbkit import __version__, validation
from ngbkit.api import Sweep, build_gate_sweep
from ngbkit.commands import arguments
from ngbkit.commands.answer import FAILED, OK, Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command
from ngbkit.commands.shell import ShellCall, print_progress
from ngbkit.commands.signals import ignore_interrupts
from ngbkit.errors import UsageError
from ngbkit.hardware import environment
from ngbkit.sweep.argument import Argument, argument
from ngbkit.sweep.option import parse_options
from ngbkit.sweep.parsing import restore_quotes
from ngbkit.sweep.trials import split_labels
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    from ngbkit.metrics.gates.gate import Gate

FAIL_ON = argument(
    "--fail-on CAUSES",
    "exit with 1 if a trial is slower by more than the margin and beyond chance, or no longer runs: slower; also if "
    "one is not conclusive: slower,inconclusive",
)
MARGIN = argument("--margin SHARE", "the slowdown that is accepted, with --fail-on (default: 1%%)")
VERDICT: tuple[Argument, ...] = (FAIL_ON, MARGIN)

_DESCRIBE = "import json; from ngbkit.hardware import environment; print(json.dumps(environment.describe()))"
_DESCRIBE_S = 120.0
# What reports on a gate that was stopped, and resumed.
_JUDGED = "ngbkit gate {run}"

# The sides of a gate take turns.
_FIXED = {"together": True}
# Options that a search among releases has not: it measures many gates, each in a run.
_OF_TWO_SIDES = ("before_python", "after_python", "race", "out")


def measure_gate(call: Call) -> Answer:
    """Measure both sides of a call in turns, write their dataset, and judge them; or search the releases of a call."""
    from ngbkit.metrics.gates.sides import judge_sides

    args = call.args
    args.fail_on = "slower" if args.fail_on is None else args.fail_on
    check_formats(args)
    if args.releases is not None:
        return _search_releases(call)
    margin = [] if args.margin is None else [args.margin]
    if len(args.networks) == 1 and args.compilers is None:  # one network is compared by the releases that -c names
        try:
            data = call.read(args.networks[0])
        except UsageError as error:
            raise UsageError(f"{error} A network needs a second side, or two releases: -c onnxruntime@…,…") from None
        return answer_gate(judge_sides(data, *margin), args)
    notes = compare_interpreters(args.before_python, args.after_python)
    sweep = _build_sweep(args)
    run = sweep.start(again=True, engines=arguments.to_engines(args.cluster, sweep.devices))
    shell = ShellCall(args)
    try:
        data = shell.wait(run, _JUDGED)
    finally:
        with ignore_interrupts():
            shell.save(run)
    shell.warn(run)
    return answer_gate(judge_sides(data, *margin), args, notes)


def _search_releases(call: Call) -> Answer:
    """Find the release since which the network of a call is slower; a search that was stopped continues."""
    from ngbkit.metrics.gates.gate import parse_fail_on
    from ngbkit.runs.bisection.bisecting import bisect

    args = call.args
    if option := next((name for name in _OF_TWO_SIDES if getattr(args, name)), ""):
        raise UsageError(
            f"invalid options: got --releases and --{option.replace('_', '-')}, which is of a gate with two sides. "
            "Give one of them."
        )
    vars(args).update(together=False, workloads=[])
    keywords = parse_options(Sweep, args)
    networks = [restore_quotes(label) for side in args.networks for label in split_labels(side)]
    compilers = keywords.pop("compilers", ())
    if len(networks) != 1 or len(compilers) != 1:
        raise UsageError(
            f"invalid gate: got {len(networks)} networks and the compilers {', '.join(compilers) or 'none'}; with "
            "--releases expected one of each, such as `ngbkit gate resnet18 -c onnxruntime --releases 1.19..1.23`."
        )
    bisection = bisect(
        networks[0],
        compilers[0],
        args.releases,
        margin=args.margin,
        wait=call.wait,
        report=str if call.report is None else lambda line: print_progress(f"ngbkit: {line}"),
        engines=arguments.to_engines(args.cluster, keywords.get("devices", ())),
        **keywords,
    )
    fails = bisection.is_slower or (
        bisection.verdict == "not conclusive" and "inconclusive" in parse_fail_on(args.fail_on)
    )
    return Answer(json=bisection.to_json(), report=bisection.to_report(), code=FAILED if fails else OK)


COMMAND = Command(
    name="gate",
    help="Measure two versions of a network or of a compiler in turns, and exit with 1 if the later one is slower; or "
    "find the release since which it is.",
    arguments=(
        argument(
            "networks BEFORE AFTER",
            "a network as it was and as it is now: before.onnx after.onnx; several with commas, in the same order; or "
            "one, for two releases: net.onnx -c onnxruntime@1.22.1,onnxruntime@1.23.2; or, to judge again, the file or "
            "the run of an earlier gate, such as one that was resumed",
            nargs="*",
            completes="workload",
        ),
        argument(
            "--releases RELEASES",
            "find the release of one compiler since which one network is slower: the releases to choose from, with "
            "commas, the fast one first; or 1.19..1.23 for all of the index between both, without previews",
        ),
        FAIL_ON,
        MARGIN,
        argument(
            "--before-python PATH",
            "run BEFORE with the packages of this interpreter, which has ngbkit too (default: this one)",
            completes="path",
        ),
        argument("--after-python PATH", "run AFTER with those of this one (default: this one)", completes="path"),
        *(declared for declared in arguments.SWEEP if declared.dest not in _FIXED),
    ),
    run=measure_gate,
    shell=arguments.OUTCOME,
    needs=CLIENT_SIDE,
)


def check_formats(args: argparse.Namespace) -> None:
    """Refuse, before anything is measured or read, options that are invalid or that nothing would use."""
    from ngbkit.metrics.gates.gate import parse_fail_on

    if args.margin is not None:
        validation.check("margin", validation.Margin, args.margin)
        if args.fail_on is None:
            raise UsageError(
                "invalid options: got --margin without --fail-on, which it belongs to. Add --fail-on slower."
            )
    if args.fail_on is not None:
        parse_fail_on(args.fail_on)


def answer_gate(gate: Gate, args: argparse.Namespace, notes: Sequence[str] = ()) -> Answer:
    """Answer with a gate, notes on its sides, and the exit code that ``--fail-on`` asks for."""
    from ngbkit.metrics.gates.gate import parse_fail_on

    fail_on = parse_fail_on(args.fail_on)
    passes, outcome = gate.passes(fail_on), gate.describe_outcome(fail_on)
    if passes and gate.count("not conclusive"):
        print_progress(
            f"ngbkit: warning: {gate.count('not conclusive')} of {len(gate.trials)} trials are not conclusive: they "
            "may be slower by more than the margin or not. More repeats settle more; --fail-on slower,inconclusive "
            "fails on them."
        )
    facts = {"notes": list(notes), "passes": passes, "unjudged": gate.list_unjudged_compilers()}
    report = replace(gate.to_report(), notes=[*gate.warnings, *notes, outcome])
    return Answer(json={**gate.to_json(), **facts}, report=report, code=OK if passes else FAILED)


def compare_interpreters(before: str | None, after: str | None) -> list[str]:
    """List how the packages of two interpreters differ; UsageError if one does not start or has another ngbkit."""
    if before is None and after is None:
        return []
    return environment.find_differences(
        *(environment.describe() if python is None else _describe_interpreter(python) for python in (before, after))
    )


def _describe_interpreter(python: str) -> dict[str, Any]:
    variables = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    settings: dict[str, Any] = {"env": variables, "capture_output": True, "text": True, "check": True}
    try:
        done = subprocess.run([python, "-c", _DESCRIBE], timeout=_DESCRIBE_S, **settings)
        described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        log = str(getattr(error, "stderr", None) or error).strip().splitlines()
        raise UsageError(
            f"invalid interpreter: {python} does not describe its packages ({log[-1] if log else 'no output'}). Name "
            "the python of an environment with ngbkit installed, such as .venv/bin/python."
        ) from None
    version = described.get("packages", {}).get("ngbkit", __version__)
    if version != __version__:
        raise UsageError(
            f"invalid interpreter: {python} has ngbkit {version}; expected {__version__}, the one that measures. "
            "Install the same in both environments."
        )
    return described


def _build_sweep(args: argparse.Namespace) -> Sweep:
    from ngbkit.cluster import devices

    vars(args).update(_FIXED, workloads=[])
    keywords = parse_options(Sweep, args)
    if len(args.networks) not in (1, 2):
        raise UsageError(
            f"invalid gate: got {args.networks}; expected two sides, such as `ngbkit gate before.onnx after.onnx`, or "
            "an earlier gate."
        )
    sides = [[restore_quotes(label) for label in split_labels(side)] for side in args.networks]
    pythons = {
        f"{side}_python": path and str(parse_path(path).absolute())
        for side, path in (("before", args.before_python), ("after", args.after_python))
    }
    sweep = build_gate_sweep(sides[0], sides[1] if len(sides) == 2 else None, **pythons, **keywords)
    if args.cluster in (None, ""):
        devices.check(sweep.devices)
    return sweep
