"""The shell, with the same verbs as the magics.

`ngbkit --help` lists them.

Tables go to stdout, progress and messages to stderr. It exits with 0; 1 where a run failed or no trial gave a result;
2 where what was asked for is not valid; 130 after Ctrl-C, which keeps what was measured; 141 where its reader left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import __version__
from ngbkit.commands import arguments, listing
from ngbkit.commands import deploy as deployment_arguments
from ngbkit.commands import publish as publish_arguments
from ngbkit.commands import selfcheck as selfcheck_arguments
from ngbkit.commands.arguments import Argument, Parser, argument
from ngbkit.commands.cache_arguments import CACHE
from ngbkit.commands.listing import Answer
from ngbkit.commands.optimize_arguments import OPTIMIZE
from ngbkit.commands.outcomes import (
    BROKEN_PIPE,
    FAILED,
    INTERRUPTED,
    INVALID,
    OK,
    carry_out,
    check_target,
    complain,
    exit_code,
    finish,
    naming,
    print_data,
    tell,
)
from ngbkit.errors import MissingDependencyError, NgbkitError, UsageError
from ngbkit.notebook.kernels import KERNELS, see_to_kernels
from ngbkit.sweep import parsing
from ngbkit.sweep.to_json import plain

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data
    from ngbkit.sweep.grid import Sweep

__all__ = ["BROKEN_PIPE", "FAILED", "INTERRUPTED", "INVALID", "OK", "main"]

_DEMO_FIGURES = ("throughput", "speedup", "ase", "bsr")
_DEMO = "resnet18 deit3_small_patch16_224 -b 1,2,4 -c identity,torchscript,onnxruntime,openvino"


_JSON = argument("--json", action="store_true", help="print JSON, for programs")
_QUIET = argument("--quiet", action="store_true", help="show no progress")
_OVERWRITE = argument("--overwrite", action="store_true", help="replace the file if it exists")
_RUN_ID = argument("run", metavar="RUN", help="its id, or how its id begins")
_SOURCE = argument("source", metavar="FILE_OR_RUN", help="a file that `run -o` wrote, or the id of a run")
_FIRST = argument("first", metavar="A", help="a file that `run -o` wrote, or the id of a run")
_SECOND = argument("second", metavar="B", help="another of the same sweep")
_METRIC = argument(
    "--metric", metavar="NAME", default="speedup", help="speedup (the default), throughput, rtr, ase, bsr"
)
_ALL = argument("--all", action="store_true", help="every trial, and not only those that changed")
_DRAWN = argument("--figure", metavar="FILE", help="write the two runs as a figure: .html, .svg, .png or .pdf")
_FORMAT = argument("--format", choices=("profiles",), default="profiles", help="what to write: profiles (the default)")
_PROFILES = argument("-o", "--out", metavar="FILE", help="a .csv or a .json file (default: JSON, printed)")
_FIGURES = "throughput, speedup, rtr, ase, bsr, latency, … (default: throughput)"
_FIGURE = argument("--figure", metavar="NAME", default="throughput", help=_FIGURES)
_FOLDER = argument("-o", "--out", metavar="DIR", default="results", help="for demo.nc and demo.html (default: results)")
_DEMO_REPEATS = argument(
    "-r", "--repeats", metavar="N", type=int, default=50, help="timed samples a trial (default: 50)"
)
_REPORT = " and then: ngbkit selfcheck --run {run}"
_OUTCOME = (arguments.FILE, _OVERWRITE, _JSON, _QUIET)


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line.

    Parameters
    ----------
    argv
        Its words. Default: those of this process.

    Returns
    -------
    int
        What the process is to exit with.
    """
    try:
        asked = arguments.parse(_parser(), sys.argv[1:] if argv is None else argv)
        code: int = asked.command(asked)
        sys.stdout.flush()
    except (UsageError, MissingDependencyError) as error:
        return complain(str(error), INVALID)
    except NgbkitError as error:
        return complain(str(error), FAILED)
    except BrokenPipeError:
        # Or Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt as interrupt:
        return complain(str(interrupt) or "stopped.", INTERRUPTED)
    return code


def _parser() -> Parser:
    parser = Parser(prog="ngbkit", description=str(import_module("ngbkit").__doc__).partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"ngbkit {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (command, table) in _COMMANDS.items():
        summary = str(command.__doc__).partition("\n")[0]
        own = commands.add_parser(name, help=summary, description=summary)
        for one in table:
            own.add_argument(*one.flags, **one.keywords)
        own.set_defaults(command=command, parser=own)
    return parser


def _run(asked: argparse.Namespace) -> int:
    """Measure networks with several compilers."""
    _require_client_side()
    check_target(asked)
    sweep = arguments.to_sweep(asked)
    if asked.estimate:
        return _estimate(sweep, asked)
    return carry_out(arguments.to_run(sweep, asked), asked)


def _estimate(sweep: Sweep, asked: argparse.Namespace) -> int:
    found = sweep.estimate(asked.predictor)
    rows: list[dict[str, Any]] = found.best().to_dict(orient="records")  # type: ignore[assignment]  # names are texts
    if asked.json:
        print(json.dumps(plain({"seconds": found.seconds, "best": rows}), indent=2))
    else:
        print(found)
        print(Answer(json=[], rows=rows, empty="Nothing is known that the results could be predicted from.").to_text())
    return OK


def _resume(asked: argparse.Namespace) -> int:
    """Go on with a run: only what is missing is measured."""
    from ngbkit.runs import find, read_sweep, resume

    _require_client_side()
    check_target(asked)
    engines = arguments.to_engines(asked.cluster, read_sweep(find(asked.run)).devices)
    return carry_out(resume(asked.run, retry=parsing.read_statuses(asked.retry), engines=engines), asked)


def _answer(asked: argparse.Namespace, answer: Answer) -> int:
    print(json.dumps(answer.json, indent=2) if asked.json else answer.to_text())
    return OK


def _runs(asked: argparse.Namespace) -> int:
    """List the runs there were, or say why trials of one failed."""
    return _answer(asked, listing.see_to_runs(asked))


def _devices(asked: argparse.Namespace) -> int:
    """List the devices that can be measured on, check them, or write a devices file to begin with."""
    rows = listing.see_to_devices(asked.action, asked.names)
    _answer(asked, Answer(json=rows, rows=rows, empty="There is no device."))
    return OK if all(row.get("fit", True) for row in rows) else FAILED


def _compilers(asked: argparse.Namespace) -> int:
    """List the compilers: what is here, and what is missing and the command for it; or all about some of them."""
    return _answer(asked, listing.see_to_compilers(asked))


def _cache(asked: argparse.Namespace) -> int:
    """List what a device keeps between runs, clean it, or carry what tuning found to another device."""
    from ngbkit.commands.cache import see_to_caches

    return _answer(asked, see_to_caches(asked))


def _show(asked: argparse.Namespace) -> int:
    """Print the results of a file or of a run."""
    _require_client_side()
    print_data(_read(asked.source), asked.json, [asked.figure])
    return OK


def _compare(asked: argparse.Namespace) -> int:
    """Say what changed from one run of a sweep to another, on this machine or on two."""
    _require_client_side()
    from ngbkit.figures.comparison import compare

    found = compare(_read(asked.first), _read(asked.second), asked.metric)
    if asked.figure:
        from ngbkit import figures

        figures.save(found.plot(), asked.figure)
    if asked.json:
        print(json.dumps(found.to_json(), indent=2))
        return OK
    trials = found.trials if asked.all else found.trials[found.trials["is"] != "same"]
    empty = "Nothing changed beyond uncertainty."
    print(Answer(json=[], rows=found.rows(trials), empty=empty).to_text())
    print("\n".join(["", *found.unlike, str(found)]))
    return OK


def _export(asked: argparse.Namespace) -> int:
    """Write latency and throughput profiles for planners, as CSV or JSON."""
    _require_client_side()
    from ngbkit.metrics import profiles

    data = _read(asked.source)
    if asked.out is None:
        print(json.dumps(profiles.to_json(data), indent=1))
    else:
        profiles.write(data, asked.out, overwrite=asked.overwrite)
    return OK


def _read(source: str) -> Data:
    """The dataset of a file, or of a run."""
    from ngbkit import runs
    from ngbkit.dataset import storage

    is_file = source.endswith(".nc") or Path(source).is_file()
    return storage.load(source) if is_file else runs.load_dataset(runs.find(source))


def _kernels(asked: argparse.Namespace) -> int:
    """List the Jupyter kernels of ngbkit, install one for each device, or remove them."""
    return _answer(asked, see_to_kernels(asked))


def _optimize(asked: argparse.Namespace) -> int:
    """Rewrite a network for a runtime, and keep what is measured to be faster."""
    _require_client_side()
    from ngbkit.optimizer import see_to_optimizing

    return _answer(asked, see_to_optimizing(asked, None if asked.quiet else tell))


def _publish(asked: argparse.Namespace) -> int:
    """Build a site of notebooks whose figures others can check."""
    _require_client_side("altair", "vl_convert", "papermill", "sphinx", "myst_nb")
    from ngbkit.publish import publish

    done = publish(**publish_arguments.to_call(asked), tell=None if asked.quiet else tell)
    executed = ", ".join(done.executed) or "no notebook: none has changed"
    print(f"{done.site}: {done.figures} figures, {done.bytes / 1e6:.1f} MB; executed {executed}")
    return OK


def _verify(asked: argparse.Namespace) -> int:
    """Say which figures of a site do not agree with their data, their sweep or their code."""
    _require_client_side()
    from ngbkit.publish import verify

    count, findings = verify(asked.site, asked.notebooks)
    rows = [{"figure": one.figure, "what": one.what, "said": one.said} for one in findings]
    if asked.json:
        print(json.dumps({"figures": count, "findings": rows}, indent=2))
    else:
        print(
            Answer(json=[], rows=rows, empty=f"All {count} figures agree with their data, sweeps and code.").to_text()
        )
    return FAILED if findings else OK


def _selfcheck(asked: argparse.Namespace) -> int:
    """Say whether this machine is fit to measure on: its noise, and what can be told apart in it."""
    _require_client_side()
    from ngbkit.runs import selfcheck
    from ngbkit.runs.selfcheck import disturbances

    say = None if asked.quiet else tell
    if asked.disturbances:
        effects = disturbances.measure(**selfcheck_arguments.to_disturbances(asked), tell=say)
        print(disturbances.to_json(effects) if asked.json else disturbances.to_text(effects))
        return OK
    wanted = selfcheck_arguments.to_call(asked)
    found = selfcheck.run(**wanted, wait=lambda run: finish(run, asked.quiet, _REPORT), tell=say)
    print(json.dumps(found.to_json(), indent=2) if asked.json else found.to_text())
    return OK


def _demo(asked: argparse.Namespace) -> int:
    """Measure a ResNet and a DeiT with four compilers on this machine, and keep the results and a figure."""
    _require_client_side("altair", "vl_convert")
    from ngbkit import figures
    from ngbkit.dataset import storage
    from ngbkit.runs import start

    line = ["run", *_DEMO.split(), "-r", str(asked.repeats)]
    run = start(arguments.to_sweep(arguments.parse(_parser(), line)))
    data = finish(run, asked.quiet)
    folder = Path(asked.out)
    with naming(run):
        kept = storage.save(data, folder / "demo.nc", overwrite=True)
        drawn = figures.save(figures.overview(data), folder / "demo.html")
    print_data(data, asked.json, _DEMO_FIGURES)
    if not asked.json:
        print(f"\n{kept} holds the dataset, {drawn} the figure.")
    return exit_code(run)


def _deploy(asked: argparse.Namespace) -> int:
    """Install ngbkit on a device, in an environment of its own there."""
    from ngbkit.cluster import devices
    from ngbkit.cluster.deployment.deploy import deploy
    from ngbkit.cluster.deployment.remote import nobody

    say = tell if sys.stderr.isatty() else nobody
    done = deploy(devices.get(asked.device), **deployment_arguments.to_call(asked), say=say)
    print(json.dumps(done.to_json(), indent=2) if asked.json else done.to_text())
    return OK


def _undeploy(asked: argparse.Namespace) -> int:
    """Remove from a device all that ngbkit has put there."""
    from ngbkit.cluster import devices
    from ngbkit.cluster.deployment.undeploy import undeploy

    print(undeploy(devices.get(asked.device), discard=asked.discard).to_text())
    return OK


_COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], int], tuple[Argument, ...]]] = {
    "run": (_run, (arguments.WORKLOADS, *arguments.SWEEP, *arguments.BUDGET, *_OUTCOME)),
    "resume": (_resume, (_RUN_ID, *arguments.RESUME, *_OUTCOME)),
    "runs": (_runs, (*listing.RUNS, _JSON)),
    "show": (_show, (_SOURCE, _FIGURE, _JSON)),
    "compare": (_compare, (_FIRST, _SECOND, _METRIC, _ALL, _DRAWN, _JSON)),
    "export": (_export, (_SOURCE, _FORMAT, _PROFILES, _OVERWRITE)),
    "devices": (_devices, (*listing.DEVICES, _JSON)),
    "deploy": (_deploy, (*deployment_arguments.DEPLOY, _JSON)),
    "undeploy": (_undeploy, deployment_arguments.UNDEPLOY),
    "compilers": (_compilers, (*listing.COMPILERS, _JSON)),
    "kernels": (_kernels, (*KERNELS, _JSON)),
    "cache": (_cache, (*CACHE, _JSON)),
    "optimize": (_optimize, (*OPTIMIZE, _JSON, _QUIET)),
    "publish": (_publish, (*publish_arguments.PUBLISH, _QUIET)),
    "verify": (_verify, (*publish_arguments.VERIFY, _JSON)),
    "selfcheck": (_selfcheck, (*selfcheck_arguments.TABLE, _JSON, _QUIET)),
    "demo": (_demo, (_DEMO_REPEATS, _FOLDER, _JSON, _QUIET)),
}


def _require_client_side(*more: str) -> None:
    """Refuse, before anything is measured, to go on without what shows and keeps the results."""
    for package in ("xarray", "pandas", "h5netcdf", "h5py", "rich", *more):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingDependencyError(package, "notebook") from error
