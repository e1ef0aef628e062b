"""``ngbkit run`` and ``%ngbench``: measure networks, or estimate that; and what a user should know before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ngbkit import registry
from ngbkit.commands import arguments
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, Call, Command, Magic
from ngbkit.report import Report
from ngbkit.sweep.column import BASELINE, Column
from ngbkit.sweep.description import NO_BATCH, has_batch
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.low_precision import list_absent
from ngbkit.tabular import Row, Texts

if TYPE_CHECKING:
    from ngbkit.runs.run_guide import Outlook
    from ngbkit.sweep.grid import Grid

DETAILS = """
In a cell, `model` (a torch module, or a function of the factors that returns one) and `input_shape` (of one
sample) or `inputs` define a network; the cell runs on the device, once for each value of each factor. Several
networks are a dict, `models = {"small": small, "large": large}`: each key is one. The values of a factor are
numbers or texts, `--factor variant=plain,residual`.

::

    %ngbench resnet18 deit3_small_patch16_224 -c identity,onnxruntime,openvino -b 1,2,4,8 -r 50 -o ds

    %%ngbench -c identity,inductor,openvino -b 1,8 --factor width=64,96 --factor depth=1:6 -o ds
    import torch
    def model(width, depth):
        return torch.nn.Sequential(*[torch.nn.Conv2d(width, width, 3) for _ in range(depth)])
    input_shape = lambda width: (width, 56, 56)

    %%ngbench -c identity,inductor --together -o ds
    import torch
    small, large = torch.nn.Linear(64, 64), torch.nn.Linear(64, 1024)
    models = {"small": small, "large": large}
    input_shape = (64,)

    %%ngbench -c identity,onnxruntime,openvino --beside it2 -o it3
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(64, 1024), torch.nn.ReLU())
    input_shape = (64,)

$name and {name} insert variables, also those of a function; a list of networks is several networks. Without -o
the dataset is the value of the magic, for a function to assign. Ctrl-C stops the run, and its measurements
remain.
"""
_RESULTS = ("compiler", "latency", "low", "high", "measured", "lead", "conclusive")


def run(call: Call) -> Answer | None:
    """Measure the networks of a call, or estimate the duration and the results."""
    args = call.args
    sweep = arguments.to_sweep(args, call.list_networks(args.workloads))
    if args.beside:
        sweep = sweep.beside(call.read(args.beside), arguments.to_label(args.beside))
    if args.estimate:
        return answer_estimate(sweep.estimate(args.predictor, earlier=args.earlier))
    notices = list_notices(sweep, with_time=args.budget is None) if call.report else []
    return call.measure(lambda: arguments.to_run(sweep, args), notices)


COMMAND = Command(
    name="run",
    help="Measure networks with several compilers.",
    arguments=(
        *(arguments.WORKLOADS, *arguments.SWEEP, *arguments.BUDGET),
        *(arguments.AGAIN, arguments.BESIDE, arguments.ESTIMATE, arguments.NOTE),
    ),
    run=run,
    shell=arguments.OUTCOME,
    magic=Magic(
        name="ngbench",
        arguments=(*arguments.MODULE, arguments.OUT, arguments.BACKGROUND),
        details=DETAILS,
        takes_cell=True,
    ),
    needs=CLIENT_SIDE,
    in_python={"": "ngbkit.Sweep(…).run()"},
)


def answer_estimate(estimate: Outlook) -> Answer:
    """Answer with the duration of a sweep, and the likely fastest compiler of each of its groups."""
    best = estimate.list_best()
    table = Texts.of_rows(map(_describe, best), "No earlier run, nor a predictor, predicts the results.")
    return Answer(
        json=to_json_value({"seconds": estimate.seconds, "best": best}),
        report=Report(sentences=[str(estimate)], frames=[table]),
        value=estimate,
    )


def _describe(row: dict[str, Any]) -> Row:
    from ngbkit.metrics.estimate import format_time

    labels = {name: value for name, value in row.items() if name not in _RESULTS}
    return {
        **labels,
        "likely fastest": row["compiler"],
        "expected latency": format_time(row["latency"], row["low"], row["high"]),
        "lead": "" if row["lead"] is None else f"{row['lead']:.2f}",
    }


def list_notices(sweep: Grid, *, with_time: bool = True) -> list[str]:
    """List the number of trials with their expected time, and what is known to be missing, a line each."""
    forecasts = registry.load_all(registry.GUIDES).values() if with_time else ()
    times = [forecast.describe_duration(sweep) for forecast in forecasts]
    absent = list_absent(sweep.compilers, sweep.precisions)
    return [*times, *absent, *_list_calls(sweep), *_warn_of_baseline(sweep), *_warn_of_missing_compilers(sweep)]


def _list_calls(sweep: Grid) -> Iterator[str]:
    """Yield a notice for each network without a batch, where its description has its inputs."""
    for workload in sweep.workloads:
        if workload.inputs and not has_batch(workload.inputs):
            yield f"{workload.name}: {NO_BATCH}"


def _warn_of_baseline(sweep: Grid) -> Iterator[str]:
    """Warn of a comparison without the compiler that ratios are over."""
    names = [column.compiler for column in map(Column.read, sweep.compilers) if not column.release]
    if BASELINE not in names and len(sweep.compilers) > 1:
        yield f"no speed-ups: {BASELINE}, which they are over, is not among the compilers; add it: -c {BASELINE},…"


def _warn_of_missing_compilers(sweep: Grid) -> Iterator[str]:
    """Warn of compilers of which a package is missing or too old, where that is known without another machine."""
    from ngbkit.cluster import devices

    configured = devices.load()
    local = [label for label in sweep.devices if label in configured and configured[label].shares_packages]
    kinds = dict.fromkeys(workload.kind for workload in sweep.workloads)
    columns = [column for column in map(Column.read, sweep.compilers) if not column.release]
    loaded = {column.compiler: column.load_compiler() for column in columns if local}
    for name, compiler in loaded.items():
        problems = {kind: compiler.find_package_problem(kind) for kind in kinds if compiler.choose_form(kind)}
        for problem in filter(None, dict.fromkeys(problems.values())):
            names = [f"a {kind}" for kind, reason in problems.items() if reason == problem]
            scope = "" if len(names) == len(kinds) else f" of {' or '.join(names)}"
            yield f"no result of {name}{scope} on {', '.join(local)}: {problem}"
