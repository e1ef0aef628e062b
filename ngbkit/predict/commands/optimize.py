"""``ngbkit optimize``: rewrite a network, report."""

from __future__ import annotations

import argparse
import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from ngbkit import options
from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import take_label
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command
from ngbkit.errors import UsageError
from ngbkit.sweep.argument import argument
from ngbkit.sweep.column import Column
from ngbkit.sweep.feeding import parse_batch_axes, parse_inputs
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.option import options_of
from ngbkit.sweep.parsing import parse_factors
from ngbkit.sweep.trials import split_labels
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    from ngbkit.predict.optimizer.costs import Cost
    from ngbkit.predict.optimizer.optimise import Optimised
    from ngbkit.predict.optimizer.variants import Outcome


def answer_optimize(call: Call) -> Answer:
    """Rewrite the network of a call for its runtime."""
    # By the package, which says how to install what a rewriting needs.
    from ngbkit.predict.optimizer import USUAL, optimize

    args, report = call.args, call.report
    optimised = optimize(
        args.network,
        take_label("compilers", args.compilers),
        cost=find_cost(args),
        batch_size=args.batch_sizes,
        factors=parse_factors(args.factor or ()),
        device=_take_device(args),
        inputs=parse_inputs(args.inputs or ()),
        batch_axis=parse_batch_axes(args.batch_axis or ()),
        rules=split_labels(args.rules or "all"),
        beam=replace(USUAL, seconds=args.seconds),
        simplifiers=split_labels(args.simplifiers or ""),
        out=args.out,
        report=report,
        repeats=args.repeats,
    )
    return build_answer(optimised)


COMMAND = Command(
    name="optimize",
    help="Rewrite a network for a runtime, and keep what is measured to be faster.",
    arguments=(
        argument(
            "network NETWORK",
            "what to rewrite: a timm name such as resnet18, an .onnx file, or a .py file that defines a model",
            completes="workload",
        ),
        argument(
            "-c, --compilers NAME",
            "for which runtime, one that reads ONNX, with its options (default: onnxruntime)",
            default="onnxruntime",
            completes="compiler",
        ),
        argument(
            "--cost FILE",
            "what leads the search: flops, which needs no measurement (the default), or a file that `ngbkit predict "
            "--fit FILE -o FILE` wrote",
            default="flops",
        ),
        argument("-b, --batch-sizes N", "samples in a call (default: 1)", type=int, default=1),
        argument(
            "--factor NAME=VALUE",
            "the value of a factor that the network takes, such as an open dimension of an ONNX file: sequence=128; "
            "once a factor",
            action="append",
            completes="factor",
        ),
        *(options_of(Grid)[name].argument for name in ("inputs", "batch_axis")),
        argument("-d, --devices NAME", "where to measure", completes="device"),
        argument(
            "--rules NAMES",
            "which rewritings may be applied, separated by commas: of ngbkit, such as merge-convs,fold-batchnorm; all "
            "of those (the default); of a plugin, such as onnxscript; or rules of onnxscript.rewriter of your own, as "
            "module:NAME or file.py:NAME",
        ),
        argument("--seconds SECONDS", "how long the search may take (default: 120)", type=float, default=120.0),
        argument("-r, --repeats N", "timed samples of each (default: 60)", type=int, default=60),
        argument(
            "--simplifiers NAMES",
            "other tools whose models are proved and measured in the same rounds, separated by commas, such as "
            "onnxslim,onnxsim,onnxoptimizer; all for every one",
            completes="simplifier",
        ),
        argument("-o, --out FILE", "write the ONNX file that is kept"),
    ),
    run=answer_optimize,
    shell=(JSON, QUIET),
    needs=CLIENT_SIDE,
)


def find_cost(args: argparse.Namespace) -> Cost:
    """The cost model that the arguments name."""
    from ngbkit import predict
    from ngbkit.predict.optimizer import operations, predicted

    if args.cost == "flops":
        return operations
    if not parse_path(args.cost).is_file():
        raise UsageError(
            f"invalid --cost: got {args.cost}, which is no file; expected flops, which needs no measurement, or a "
            "saved predictor. `ngbkit predict --fit labels.csv -o predictor.safetensors` fits one."
        )
    # A model of another device is no model of this one, however many it knows.
    label = Column.parse(take_label("compilers", args.compilers)).label
    return predicted(predict.load(args.cost), label, _take_device(args))


def _take_device(args: argparse.Namespace) -> str:
    return take_label("devices", args.devices or options.get_device())


def build_answer(optimised: Optimised) -> Answer:
    """The candidates, one row each, the one that is kept, and the models of other tools."""
    from ngbkit.predict.optimizer.beam_search import format_steps

    rows = [
        {
            "kept": "yes" if index == optimised.chosen else "",
            "steps": format_steps(candidate.steps),
            "predicted": f"{candidate.predicted:.3f}",
            **_format_outcome(candidate.outcome, candidate.error),
        }
        for index, candidate in enumerate(optimised.tried)
    ]
    report = to_json_value(
        {
            **{"network": optimised.name, "compiler": optimised.compiler, "device": optimised.device},
            **{"batch_size": optimised.batch_size, "factors": optimised.factors, "looked_at": optimised.looked_at},
            "chosen": optimised.chosen,
            **{"speedup": optimised.speedup, "tried": [asdict(candidate) for candidate in optimised.tried]},
            "simplified": [asdict(tool) for tool in optimised.simplified],
        }
    )
    if optimised.chosen is None and (rows or optimised.simplified):
        rows.append({"kept": "yes", "steps": "none: the original", "measured": "1.000"})
    rows += [
        {"steps": f"{tool.name} {tool.version}".strip(), **_format_outcome(tool.outcome, tool.error)}
        for tool in optimised.simplified
    ]
    empty = f"The cost model prefers none of {optimised.looked_at} rewritten networks: the original stays."
    return Answer.of_rows(rows, empty, json=report)


def _format_outcome(outcome: Outcome, error: float) -> dict[str, str]:
    measured = {"measured": outcome.problem or f"{outcome.speedup:.3f}"}
    interval = "" if outcome.problem else f"{outcome.low:.3f} to {outcome.high:.3f}"
    return {**measured, "95 %": interval, "apart": "" if math.isnan(error) else f"{error:.1e}"}
