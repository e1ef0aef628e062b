"""Arguments that several commands share, and the sweep, the run and the engines that parsed arguments ask for."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from ngbkit.api import Sweep
from ngbkit.commands.command import JSON, OVERWRITE, QUIET
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import Argument, argument
from ngbkit.sweep.option import arguments_of, parse_options
from ngbkit.sweep.parsing import parse_compilers
from ngbkit.workloads.base import Workload

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine
    from ngbkit.runs import Run

OUT = argument("-o, --out NAME", "bind the dataset to this variable", completes="variable")
FILE = argument("-o, --out FILE", "write the dataset to this file, such as results/out.nc")
OUTCOME = (FILE, OVERWRITE, JSON, QUIET)
SOURCE = argument("source FILE_OR_RUN", "a file that `run -o` wrote, or the id of a run", completes="result")
DATA = argument("source NAME", "the variable of the dataset", completes="variable")
UNLIKE = argument(
    "--unlike mask|allow",
    "whether columns that were timed under another contract than the baseline, such as one that overlaps requests, "
    "are left out of ratios, or compared and marked (default: mask)",
)
BACKGROUND = argument("--background", "return the live run at once and measure in the background")
CLUSTER = argument(
    "--cluster ID",
    "measure on the engines of a running ipyparallel cluster: its id, its connection file, or $rc in a notebook, for "
    "a variable with a client, a cluster or a view",
    completes="path",
)
WORKLOADS, *_OPTIONS = arguments_of(Sweep)
SWEEP: tuple[Argument, ...] = (*_OPTIONS, CLUSTER)
"""The options of a sweep, each declared in `ngbkit.sweep.grid`, and the cluster to measure on."""

MODULE: tuple[Argument, ...] = (
    argument(
        "--input-shape SHAPE",
        "shape of one sample, for a module of the notebook: 3,224,224; once an input",
        action="append",
    ),
    argument("--name LABEL", "name of that module, or of the cell's model, in the results"),
)

BUDGET: tuple[Argument, ...] = (
    argument(
        "--budget TIME",
        "time budget, such as 20min or 1.5h, or a share of the trials, such as 10%%: measure the trials that tell "
        "most about the best compiler, and predict the others",
    ),
    argument("--predictor FILE", "a saved predictor, from which a budget or an estimate starts", completes="path"),
    argument(
        "--earlier FILE",
        "a dataset of measurements of these devices, or of ones like them, from which a budget or an estimate starts; "
        "the latest runs are known without it",
        completes="path",
    ),
)
AGAIN = argument("--again", "measure every trial, also those that earlier runs of the device know")
BESIDE = argument(
    "--beside RUN",
    "measure the networks of an earlier run again, in turns with the new ones, and compare both: a file that `run -o` "
    "wrote, the id of a run, or a variable of a notebook",
    completes="result",
)
ESTIMATE = argument("--estimate", "measure nothing; estimate the duration and the likely results")
NOTE = argument("--note TEXT", "a note on this run, for the list of runs")


def to_sweep(args: argparse.Namespace, workloads: Iterable[str | Workload] | None = None) -> Sweep:
    """The sweep that the parsed arguments `SWEEP` ask for; `workloads` replace those that were named."""
    keywords = parse_options(Sweep, args)
    keywords["workloads"] = keywords.get("workloads", []) if workloads is None else list(workloads)
    sweep = Sweep(**keywords)
    if args.cluster in (None, ""):
        from ngbkit.cluster import devices

        devices.check(sweep.devices)
    return sweep


def take_label(name: str, text: str) -> str:
    """Take the label that an option names, in a command that has one of them where `ngbkit run` has several."""
    labels = parse_compilers(text)
    if len(labels) != 1:
        raise UsageError(f"invalid {name}: got {text!r}; expected one.")
    return labels[0]


def to_label(source: str) -> str:
    """Return the label of a dataset that a word names: the variable, the file without its ending, or the run."""
    return PurePath(source).name.removesuffix(".nc")


def to_run(sweep: Sweep, args: argparse.Namespace) -> Run:
    """Start the run of a sweep, with the budget and on the cluster that parsed arguments name."""
    engines = to_engines(args.cluster, sweep.devices)
    return sweep.start(
        budget=args.budget,
        predictor=args.predictor,
        earlier=args.earlier,
        again=args.again,
        engines=engines,
        note=args.note or "",
    )


def to_engines(cluster: Any, devices: Sequence[str]) -> dict[str, Engine]:
    """An engine of the user's own cluster for each device; none where no cluster is named."""
    if cluster is None or cluster == "":
        return {}
    from ngbkit.cluster.attach import attach_each

    return attach_each(cluster, devices)
