"""The command that shows what ngbkit is: it measures two small networks, prints the results and draws them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ngbkit.commands import arguments
from ngbkit.commands.reporting import find_exit_code, finish, pointing_to, print_data
from ngbkit.commands.signals import ignore_interrupts
from ngbkit.sweep.argument import Argument, argument
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

SWEEP = "mobilenetv3_small_100 deit_tiny_patch16_224 -b 1,2 -c identity,onnxruntime,openvino"
"""A convolutional network and a transformer, small enough that two cores measure them in a minute."""
DEMO: tuple[Argument, ...] = (
    argument("-r", "--repeats", metavar="N", type=int, default=20, help="timed samples a trial (default: 20)"),
    argument("-o", "--out", metavar="DIR", default="results", help="for demo.nc and demo.html (default: results)"),
)
_FIGURES = ("speedup", "throughput", "ase", "bsr")


def show_demo(args: argparse.Namespace, parse: Callable[[list[str]], argparse.Namespace]) -> int:
    """Measure the demo's sweep on this machine, print its tables, and write its dataset and a figure."""
    from ngbkit import figures
    from ngbkit.dataset import storage
    from ngbkit.runs import start

    began = time.monotonic()
    run = start(arguments.to_sweep(parse(["run", *SWEEP.split(), "-r", str(args.repeats)])))
    folder = parse_path(args.out)
    try:
        finish(run, args.quiet)
    finally:  # of a run that was stopped too
        data = run.dataset()
        with ignore_interrupts(), pointing_to(run):
            file = storage.save(data, folder / "demo.nc", overwrite=True)
    with pointing_to(run):
        picture = figures.save(figures.overview(data), folder / "demo.html")
    print_data(data, args.json, _FIGURES)
    if not args.json:
        print(f"\n{describe_time(data, time.monotonic() - began)}")
        print(f"{file} holds the dataset, {picture} the figure.")
    return find_exit_code(run)


def describe_time(data: Data, seconds: float) -> str:
    """Describe in a sentence how the time of a run was spent."""
    import numpy as np

    from ngbkit.dataset.assembly import nodes

    parts = list(nodes(data).values())
    timed = sum(float((part["latency"] * part["calls_per_sample"]).sum()) for part in parts)
    timed += sum(float(part["anchor_latency"].sum()) for part in parts if "anchor_latency" in part)
    compiling = sum(
        float(np.nansum(part[name])) for part in parts for name in ("compile_time", "compile_time_warm") if name in part
    )
    return (
        f"This took {seconds:.0f} s: {timed:.0f} s of timed calls, {compiling:.0f} s of compiling, and "
        f"{max(0.0, seconds - timed - compiling):.0f} s of starting processes, exporting, checking, warming "
        "up and drawing."
    )
