"""``ngbkit demo``: measure two small networks, print the results and draw them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from ngbkit.commands import arguments
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command
from ngbkit.commands.parser import build_parser, parse
from ngbkit.commands.run import COMMAND as RUN
from ngbkit.commands.shell import answer_data, find_exit_code, pointing_to
from ngbkit.commands.signals import ignore_interrupts
from ngbkit.sweep.argument import argument
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

SWEEP = "mobilenetv3_small_100 deit_tiny_patch16_224 -b 1,2 -c identity,onnxruntime,openvino"
"""A convolutional network and a transformer, small enough that two cores measure them in a minute."""
_START_S = 1.0


def show_demo(call: Call) -> Answer:
    """Measure the demo's sweep on this machine, and write its dataset and a figure."""
    from ngbkit.dataset import storage
    from ngbkit.runs import start

    args = call.args
    began = time.monotonic()
    words = [*SWEEP.split(), "-r", str(args.repeats)]
    folder = parse_path(args.out)
    run = start(arguments.to_sweep(parse(build_parser("ngbkit run", RUN.shell_arguments), words)))
    run.wait_for_change(_START_S)  # its engine starts, and needs no import of this process
    from ngbkit.figures.charts.overview import overview
    from ngbkit.figures.files import prepare_page, save

    try:
        call.wait(run)
    finally:  # of a run that was stopped too
        threading.Thread(target=prepare_page, daemon=True).start()  # in another process
        data = run.dataset()
        with ignore_interrupts(), pointing_to(run):
            file = storage.save(data, folder / "demo.nc", overwrite=True)
    with pointing_to(run):
        picture = save(overview(data), folder / "demo.html")
    files = f"{file} holds the dataset, {picture} the figure."
    lines = [describe_time(data, time.monotonic() - began), files]
    return answer_data(data, args, *lines, source=file, code=find_exit_code(run))


COMMAND = Command(
    name="demo",
    help="Measure two small networks with three compilers on this machine, and save the results and a figure.",
    arguments=(
        argument("-r, --repeats N", "timed samples a trial (default: 20)", type=int, default=20),
        argument("-o, --out DIR", "for demo.nc and demo.html (default: results)", default="results"),
    ),
    run=show_demo,
    shell=(JSON, QUIET),
    needs=(*CLIENT_SIDE, "altair", "vl_convert"),
)


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
