# PYTHON_ARGCOMPLETE_OK
"""The shell, with the same commands as the magics.

`ngbkit --help` lists them.

Tables go to stdout, progress and messages to stderr. It exits with 0; 1 where a run failed, no trial gave a result, or
a gate failed; 2 where the arguments are not valid; 130 after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP, which keep
what was measured; 141 where its reader left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ngbkit import __version__
from ngbkit.commands import arguments, capacity, deploy, estimate, gate, gate_report, listing, publish, selfcheck
from ngbkit.commands.arguments import Parser
from ngbkit.commands.cache import CACHE, answer_cache
from ngbkit.commands.choose import CHOOSE, answer_choose
from ngbkit.commands.demo import DEMO, show_demo
from ngbkit.commands.inputs import INPUTS, answer_inputs
from ngbkit.commands.listing import Answer
from ngbkit.commands.notices import list_notices
from ngbkit.commands.optimize import OPTIMIZE, answer_optimize
from ngbkit.commands.predict import PREDICT, answer_predict
from ngbkit.commands.reporting import (
    BROKEN_PIPE,
    FAILED,
    INTERRUPTED,
    INVALID,
    OK,
    check_target,
    choose_figures,
    finish,
    print_data,
    print_error,
    print_progress,
    read_data,
    report_run,
    show_warnings,
)
from ngbkit.commands.signals import stop_in_order
from ngbkit.commands.streams import hold_output, open_streams
from ngbkit.errors import MissingDependencyError, NgbkitError, UsageError
from ngbkit.files import explain_errors
from ngbkit.notebook.kernels import KERNELS, answer_kernels
from ngbkit.sweep.argument import Argument, argument
from ngbkit.user_text import read_docstring

if TYPE_CHECKING:
    from ngbkit.api import Sweep

__all__ = ["BROKEN_PIPE", "FAILED", "INTERRUPTED", "INVALID", "OK", "main"]


_JSON = argument("--json", action="store_true", help="print JSON, for programs")
_QUIET = argument("--quiet", action="store_true", help="show no progress")
_OVERWRITE = argument("--overwrite", action="store_true", help="replace the file if it exists")
_RUN_ID = argument("run", metavar="RUN", completes="run", help="its id, or the beginning of it")
_SOURCE = argument(
    "source", metavar="FILE_OR_RUN", completes="result", help="a file that `run -o` wrote, or the id of a run"
)
_FIRST = argument("first", metavar="A", completes="result", help="a file that `run -o` wrote, or the id of a run")
_SECOND = argument("second", metavar="B", completes="result", help="another of the same sweep")
_METRIC = argument(
    "--metric", metavar="NAME", default="speedup", help="speedup (the default), throughput, rtr, ase, bsr"
)
_ALL = argument("--all", action="store_true", help="every trial, and not only those that changed")
_DRAWN = argument("--figure", metavar="FILE", help="write the two runs as a figure: .html, .svg, .png or .pdf")
_FORMAT = argument(
    "--format",
    choices=("profiles", "trials", "samples"),
    default="profiles",
    help="what to write: profiles for planners (the default); trials, one per row with all that was measured; or "
    "samples, every one",
)
_EXPORTED = argument(
    "-o",
    "--out",
    metavar="FILE",
    help="a .csv or .parquet file, or .json for profiles (default: printed, profiles as JSON and others as CSV)",
)
_FIGURES = "speedup, throughput, rtr, ase, bsr, latency, … (default: speedup, then throughput)"
_FIGURE = argument("--figure", metavar="NAME", help=_FIGURES)
_OUTCOME = (arguments.FILE, _OVERWRITE, _JSON, _QUIET)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line, by default that of this process; return the exit code."""
    open_streams()
    if "_ARGCOMPLETE" in os.environ:  # Tab was pressed in a shell
        from ngbkit.commands.shell_completion import complete_line

        complete_line(_parser(), {name: table for name, (_, table) in _COMMANDS.items()})
        return OK
    with stop_in_order() as handler:
        try:
            with show_warnings(), hold_output(), explain_errors():
                args = arguments.parse(_parser(), sys.argv[1:] if argv is None else argv)
                code: int = args.command(args)
        except (UsageError, MissingDependencyError) as error:
            return print_error(str(error), INVALID)
        except NgbkitError as error:
            return print_error(str(error), FAILED)
        except BrokenPipeError:
            return BROKEN_PIPE
        except KeyboardInterrupt as interrupt:
            code = INTERRUPTED if handler.number is None else 128 + handler.number
            return print_error(str(interrupt) or "stopped.", code)
    return code


def _parser() -> Parser:
    parser = Parser(prog="ngbkit", description=read_docstring(import_module("ngbkit")).partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"ngbkit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (command, table) in _COMMANDS.items():
        summary = read_docstring(command).partition("\n")[0]
        subparser = commands.add_parser(name, help=summary, description=summary)
        for declared in table:
            subparser.add_argument(*declared.flags, **declared.keywords)
        subparser.set_defaults(command=command, parser=subparser)
    return parser


def _run(args: argparse.Namespace) -> int:
    """Measure networks with several compilers."""
    _require_client_side()
    check_target(args)
    sweep = arguments.to_sweep(args)
    if args.estimate:
        return _estimate(sweep, args)
    for notice in [] if args.quiet else list_notices(sweep, with_time=args.budget is None):
        print_progress(f"ngbkit: {notice}")
    return report_run(arguments.to_run(sweep, args), args)


def _estimate(sweep: Sweep, args: argparse.Namespace) -> int:
    estimated = sweep.estimate(args.predictor, earlier=args.earlier)
    print(json.dumps(estimate.answer_estimate(estimated).json, indent=2) if args.json else estimate.to_text(estimated))
    return OK


def _resume(args: argparse.Namespace) -> int:
    """Go on with a run: only what is missing is measured."""
    _require_client_side()
    check_target(args)
    settling = arguments.to_settling(args, args.run)
    if settling is not None:
        print_progress(f"ngbkit: {settling.description}")
        if not settling.trial_ids:
            return OK
    return report_run(arguments.to_resumed_run(args.run, args, settling), args)


def _answer(args: argparse.Namespace, answer: Answer) -> int:
    print(json.dumps(answer.json, indent=2) if args.json else answer.to_text())
    return OK


def _runs(args: argparse.Namespace) -> int:
    """List earlier runs, or say why trials of one failed."""
    return _answer(args, listing.answer_runs(args))


def _devices(args: argparse.Namespace) -> int:
    """List the devices, check them, or write a first devices file."""
    rows = listing.answer_devices(args.action, args.names)
    _answer(args, Answer(json=rows, rows=rows, empty="There is no device."))
    return OK if all(row.get("fit", True) for row in rows) else FAILED


def _compilers(args: argparse.Namespace) -> int:
    """List the compilers: the installed ones, and the command that installs each other; or all details of some."""
    return _answer(args, listing.answer_compilers(args))


def _inputs(args: argparse.Namespace) -> int:
    """Show what networks take before measuring: the batch, factors, and the values of each input."""
    return _answer(args, answer_inputs(args))


def _cache(args: argparse.Namespace) -> int:
    """List what a device keeps between runs, clean it, or carry results of tuning to another device."""
    return _answer(args, answer_cache(args))


def _show(args: argparse.Namespace) -> int:
    """Print the results of a file or of a run."""
    _require_client_side()
    data = read_data(args.source)
    print_data(data, args.json, [args.figure] if args.figure else choose_figures(data))
    return OK


def _compare(args: argparse.Namespace) -> int:
    """Say what changed from one run of a sweep to another, on this machine or on two."""
    _require_client_side()
    from ngbkit.figures.comparison import compare

    gate_report.check_formats(args)
    comparison = compare(read_data(args.first), read_data(args.second), args.metric)
    if args.figure:
        from ngbkit import figures

        figures.save(comparison.plot(), args.figure)
    if args.fail_on is not None:
        gate = comparison.gate(*filter(None, [args.margin]), across_devices=args.across_devices)
        return gate_report.report_gate(gate, args, comparison.unlike)
    if args.json:
        print(json.dumps(comparison.to_json(), indent=2))
        return OK
    trials = comparison.trials if args.all else comparison.trials[comparison.trials["is"] != "same"]
    empty = "Nothing changed beyond uncertainty."
    answer = Answer(json=[], rows=comparison.rows(trials), empty=empty)
    print(f"{comparison}\n\n{answer.to_markdown() if args.markdown else answer.to_text()}")
    if comparison.unlike:
        print("\n".join(["", *comparison.unlike]))
    return OK


def _choose(args: argparse.Namespace) -> int:
    """Choose the compiler, batch size and device of the highest throughput whose latency keeps a deadline."""
    _require_client_side()
    return _answer(args, answer_choose(args, read_data))


def _capacity(args: argparse.Namespace) -> int:
    """Say which rate of requests each network serves within a deadline, simulated or also by a real load."""
    _require_client_side()
    report = None if args.quiet else print_progress
    capacities = capacity.compute_capacities(args, read_data(args.source), report)
    print(json.dumps(capacities.to_json(), indent=2) if args.json else capacities)
    return OK


def _gate(args: argparse.Namespace) -> int:
    """Measure two versions of a network in turns, and exit with 1 if the later one is slower."""
    _require_client_side()
    return gate.measure_gate(args)


def _export(args: argparse.Namespace) -> int:
    """Write profiles for planners, all trials or all samples, as CSV, Parquet or JSON."""
    _require_client_side()
    from ngbkit.metrics import frames, profiles

    check_target(args)
    data = read_data(args.source)
    build = frames.BUILDERS.get(args.format)
    if args.out is None:
        print(build(data).to_csv(index=False).rstrip() if build else json.dumps(profiles.to_json(data), indent=1))
    elif build:
        frames.write(build(data), args.out, overwrite=args.overwrite)
    else:
        profiles.write(data, args.out, overwrite=args.overwrite)
    return OK


def _kernels(args: argparse.Namespace) -> int:
    """List the Jupyter kernels of ngbkit, install one for each device, or remove them."""
    return _answer(args, answer_kernels(args))


def _optimize(args: argparse.Namespace) -> int:
    """Rewrite a network for a runtime, and keep what is measured to be faster."""
    _require_client_side()
    return _answer(args, answer_optimize(args, None if args.quiet else print_progress))


def _predict(args: argparse.Namespace) -> int:
    """Predict the latency of networks; or fit a predictor to labels, such as a CSV, and say how good it is."""
    _require_client_side()
    answers = answer_predict(args, None if args.quiet else print_progress)
    if args.json:
        print(json.dumps({name: answer.json for name, answer in answers.items()}, indent=2))
    else:
        print("\n\n".join(answer.to_text() for answer in answers.values()))
    return OK


def _publish(args: argparse.Namespace) -> int:
    """Build a site of notebooks whose figures others can check."""
    _require_client_side("altair", "vl_convert")
    from ngbkit.publish import publish as build_site

    site = build_site(**publish.to_call(args), tell=None if args.quiet else print_progress)
    executed = ", ".join(site.executed) or "no notebook: none changed"
    print(f"{site.site}: {site.figures} figures, {site.bytes / 1e6:.1f} MB; executed {executed}")
    return OK


def _verify(args: argparse.Namespace) -> int:
    """Say which figures of a site do not agree with their data, their sweep or their code."""
    _require_client_side()
    from ngbkit.publish import verify

    count, findings = verify(args.site, args.notebooks)
    rows = [{"figure": finding.figure, "what": finding.what, "said": finding.said} for finding in findings]
    if args.json:
        print(json.dumps({"figures": count, "findings": rows}, indent=2))
    else:
        print(
            Answer(json=[], rows=rows, empty=f"All {count} figures agree with their data, sweeps and code.").to_text()
        )
    return FAILED if findings else OK


def _selfcheck(args: argparse.Namespace) -> int:
    """Say whether this machine is fit to measure on: its noise, and the smallest difference that it can show."""
    _require_client_side()
    from ngbkit.runs import selfcheck as checks
    from ngbkit.runs.selfcheck import disturbances

    report = None if args.quiet else print_progress
    if args.disturbances:
        effects = disturbances.measure(**selfcheck.to_disturbances(args), tell=report)
        print(disturbances.to_json(effects) if args.json else disturbances.to_text(effects))
        return OK
    if args.history:
        selfcheck.check_history(args)
        history = checks.compare_runs()
        print(json.dumps(history.to_json(), indent=2) if args.json else history.to_text())
        return OK
    keywords = selfcheck.to_call(args)
    result = checks.run(**keywords, wait=lambda run: finish(run, args.quiet, selfcheck.REPORT), tell=report)
    print(json.dumps(result.to_json(), indent=2) if args.json else result.to_text())
    return OK


def _demo(args: argparse.Namespace) -> int:
    """Measure two small networks with three compilers on this machine, and save the results and a figure."""
    _require_client_side("altair", "vl_convert")
    return show_demo(args, lambda line: arguments.parse(_parser(), line))


def _deploy(args: argparse.Namespace) -> int:
    """Install ngbkit on a device, in an environment of its own there."""
    from ngbkit.cluster import devices
    from ngbkit.cluster.deployment.deploy import deploy as deploy_to
    from ngbkit.cluster.deployment.remote import discard_line

    report = print_progress if sys.stderr.isatty() else discard_line
    done = deploy_to(devices.get(args.device), **deploy.to_call(args), report=report)
    print(json.dumps(done.to_json(), indent=2) if args.json else done.to_text())
    return OK


def _undeploy(args: argparse.Namespace) -> int:
    """Remove everything of ngbkit from a device."""
    from ngbkit.cluster import devices
    from ngbkit.cluster.deployment.undeploy import undeploy

    print(undeploy(devices.get(args.device), discard=args.discard).to_text())
    return OK


_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], tuple[Argument, ...]]] = {
    "run": (_run, (arguments.WORKLOADS, *arguments.SWEEP, *arguments.BUDGET, arguments.ESTIMATE, *_OUTCOME)),
    "resume": (_resume, (_RUN_ID, *arguments.RESUME, arguments.SETTLE, *_OUTCOME)),
    "runs": (_runs, (*listing.RUNS, _JSON)),
    "show": (_show, (_SOURCE, _FIGURE, _JSON)),
    "choose": (_choose, (_SOURCE, *CHOOSE, _JSON)),
    "capacity": (_capacity, (_SOURCE, *capacity.OPTIONS, _JSON, _QUIET)),
    "compare": (_compare, (_FIRST, _SECOND, _METRIC, *gate_report.VERDICT, _ALL, _DRAWN, _JSON)),
    "gate": (_gate, (*gate.GATE, *_OUTCOME)),
    "export": (_export, (_SOURCE, _FORMAT, _EXPORTED, _OVERWRITE)),
    "devices": (_devices, (*listing.DEVICES, _JSON)),
    "deploy": (_deploy, (*deploy.DEPLOY, _JSON)),
    "undeploy": (_undeploy, deploy.UNDEPLOY),
    "compilers": (_compilers, (*listing.COMPILERS, _JSON)),
    "inputs": (_inputs, (*INPUTS, _JSON)),
    "kernels": (_kernels, (*KERNELS, _JSON)),
    "cache": (_cache, (*CACHE, _JSON)),
    "optimize": (_optimize, (*OPTIMIZE, _JSON, _QUIET)),
    "predict": (_predict, (*PREDICT, _JSON, _QUIET)),
    "publish": (_publish, (*publish.PUBLISH, _QUIET)),
    "verify": (_verify, (*publish.VERIFY, _JSON)),
    "selfcheck": (_selfcheck, (*selfcheck.TABLE, _JSON, _QUIET)),
    "demo": (_demo, (*DEMO, _JSON, _QUIET)),
}


def _require_client_side(*more: str) -> None:
    """Refuse, before anything is measured, to go on without the packages that show and save the results."""
    for package in ("xarray", "pandas", "h5netcdf", "h5py", "rich", *more):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingDependencyError(package, "notebook") from error
