"""``ngbkit predict`` and ``%ngpredict``: fit a predictor to labels, say how good it is, and predict networks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from ngbkit import options
from ngbkit.commands.answer import Answer
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command, Magic
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.argument import argument
from ngbkit.sweep.feeding import parse_batch_axes, parse_inputs
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.option import options_of
from ngbkit.sweep.parsing import parse_factors, parse_numbers
from ngbkit.user_text import parse_path

if TYPE_CHECKING:
    from ngbkit.predictor import Examples, Predictor

Report = Callable[[str], None]


def answer_predict(call: Call) -> Answer:
    """Fit and evaluate a predictor if --fit names labels, and predict the networks of a call."""
    args = call.args
    if (args.fit is None) == (args.predictor is None):
        got = "neither" if args.fit is None else "both"
        raise UsageError(
            f"got {got} of --predictor and --fit; expected one: a saved predictor, or labels to fit one to, such as "
            "`ngbkit predict --fit labels.csv -o predictor.safetensors`."
        )
    sizes = [size for text in args.batch_sizes or ["1"] for size in parse_numbers("batch size", text)]
    answers: dict[str, Answer] = {}
    if args.fit is not None:
        answers["evaluation"], predictor = fit_labels(args, call.report)
    else:
        if args.out is not None:
            raise UsageError("unexpected argument --out: a saved predictor is not fitted again. It is for --fit FILE.")
        if not args.networks:
            raise UsageError("no network to predict; expected one or more, such as resnet34 or model.onnx.")
        if args.lowered:
            raise UsageError("unexpected argument --lowered: a saved predictor has its graphs. It is for --fit FILE.")
        predictor = _load_predictor(args.predictor)
    if args.networks:
        # What was fitted here has the runtime of the arguments, if they name one.
        device, runtime = (args.device, args.runtime) if args.fit is None else (None, None)
        sweep = Grid(
            args.networks,
            batch_sizes=cast(Sequence[int], sizes),
            factors=parse_factors(args.factor or ()),
            inputs=parse_inputs(args.inputs or ()),
            batch_axis=parse_batch_axes(args.batch_axis or ()),
        )
        answers["predictions"] = predict_networks(predictor, sweep, device, runtime)
    *previous, answer = answers.values()
    json = {name: answer.json for name, answer in answers.items()}
    return replace(answer, json=json, previous=previous[0] if previous else None)


DETAILS = """
::

    %ngpredict --fit labels.csv -o predictor.safetensors
    %ngpredict resnet34 model.onnx -b 1,8 --predictor predictor.safetensors
"""
COMMAND = Command(
    name="predict",
    help="Predict the latency of networks; or fit a predictor to labels, such as a CSV, and say how good it is.",
    arguments=(
        argument(
            "networks NETWORK",
            "what to predict: a timm name such as resnet34, an .onnx file, or a .py file that defines a model",
            nargs="*",
            completes="workload",
        ),
        argument("--predictor FILE", "a saved predictor: a file that --fit, or predictor.save(), wrote"),
        argument(
            "--fit FILE",
            "fit one first, to labels: a CSV of files and milliseconds, examples, or the dataset of a run; several "
            "--fit are merged",
            action="append",
        ),
        argument(
            "--kind NAME",
            "what to fit: gnn (the default), boosting, linear or flops; or auto, the cheapest as good as the best",
            default="gnn",
        ),
        argument("--runtime NAME", "what a CSV was measured with, where it has no column for that (default: unnamed)"),
        argument(
            "--lowered",
            "fit to the operators that the runtime executes after its own optimisation, which ONNX Runtime and "
            "OpenVINO tell; for labels of one runtime",
        ),
        argument("-d, --device NAME", "where, as --runtime (default: this machine's)", completes="device"),
        argument(
            "-b, --batch-sizes SIZES",
            "samples in one call: 1,4,8 or a range with both its ends, 1:4 (default: 1)",
            action="append",
        ),
        argument(
            "--factor NAME=VALUES",
            "values of a factor that a network takes, such as an open dimension of an ONNX file: sequence=64,128 or a "
            "range with both its ends, 1:4; once a factor",
            action="append",
            completes="factor",
        ),
        *(options_of(Grid)[name].argument for name in ("inputs", "batch_axis")),
        argument("-o, --out FILE", "save what --fit fitted, such as predictor.safetensors"),
    ),
    run=answer_predict,
    shell=(JSON, QUIET),
    magic=Magic(name="ngpredict", details=DETAILS),
    needs=CLIENT_SIDE,
)


def fit_labels(args: argparse.Namespace, report: Report | None = None) -> tuple[Answer, Predictor]:
    """Fit a predictor to the labels that the arguments name, evaluate its kind on them, and save it."""
    from ngbkit import predictor
    from ngbkit.predictor.kinds.base import to_progress
    from ngbkit.predictor.labels.loading import load_labels

    runtime = None
    if args.runtime is not None or args.device is not None:
        from ngbkit.predictor.labels.labelling import UNNAMED

        runtime = (args.device or options.get_device(), args.runtime or UNNAMED)
    progress = to_progress(report)
    paths = [parse_path(file) for file in args.fit]
    examples = load_labels(paths, "--fit", runtime=runtime, lowered=args.lowered, report=progress)
    fitted = predictor.fit(examples, args.kind, report=progress)
    scores = predictor.evaluate(examples, dict.fromkeys([fitted.model.kind, "flops"]), seeds=(0,), report=progress)
    if args.out is not None:
        fitted.save(args.out)
    return build_evaluation(examples, fitted, predictor.summary(scores).reset_index()), fitted


def build_evaluation(examples: Examples, predictor: Predictor, scores: Any) -> Answer:
    """A row per kind and runtime: errors on networks that were held out, beside the noise of their labels."""
    noise = examples.noise.set_index(["device", "compiler"])
    limits = predictor.calibration.compute_error(0.95).tolist()
    report = []
    for score in scores.to_dict("records"):
        runtime = score["device"], score["compiler"]
        is_fitted = score["kind"] == predictor.model.kind
        width = math.expm1(limits[predictor.runtimes.index(runtime)]) if is_fitted else None
        row = {name: value for name, value in score.items() if name not in ("split", "seeds", "sign")}
        report.append(row | {"graphs": int(noise.loc[runtime, "graphs"]), "interval": width})
    rows = [
        {
            **{"model": row["kind"], "device": row["device"], "compiler": row["compiler"], "networks": row["graphs"]},
            **{"error": _format_share(row["mape"]), "noise": _format_share(row["floor"], "unknown")},
            **{"within 10 %": _format_share(row["within_10"]), "tau": f"{row['tau']:.3f}"},
            "95 % interval": "" if row["interval"] is None else _format_share(row["interval"], "too few", "±"),
        }
        for row in report
    ]
    return Answer(json=to_json_value(report), rows=rows, empty="No network was held out.")


def predict_networks(predictor: Predictor, sweep: Grid, device: str | None, runtime: str | None) -> Answer:
    """A row per network, factors, batch size and runtime, with the interval in which 95 % of networks are."""
    for column, name in (("device", device), ("compiler", runtime)):
        names = {labels[column == "compiler"] for labels in predictor.runtimes}
        if name is not None and name not in names:
            raise UnknownNameError(f"{column} of this predictor", name, names)
    table = predictor.predict(sweep)
    selected = [
        {str(column): value for column, value in record.items()}
        for record in table.to_dict("records")
        if device in (None, record["device"]) and runtime in (None, record["compiler"])
    ]
    rows = [
        {
            **{column: _format_label(value) for column, value in record.items() if column not in _RESULTS},
            **_format_prediction(record),
        }
        for record in selected
    ]
    return Answer(json=to_json_value(selected), rows=rows, empty="The predictor has no such runtime.")


_RESULTS = ("latency", "ci_low", "ci_high", "throughput", "beyond")


def _format_prediction(record: Mapping[str, Any]) -> dict[str, str]:
    """Format a latency with its interval, and the reason for which there is none or a wider one."""
    from ngbkit.metrics.estimate import format_time

    beyond = f"beyond the labels: {record['beyond']}" if record["beyond"] else ""
    if not math.isfinite(record["latency"]):
        return {"latency": "none", "samples/s": "", "interval": beyond}
    finite = math.isfinite(record["ci_high"])
    return {
        "latency": format_time(record["latency"], *_list_ends(record)),
        "samples/s": _format_rate(record["throughput"]),
        "interval": beyond if finite or beyond else "none: fitted to too few networks",
    }


def _list_ends(record: Mapping[str, Any]) -> list[float]:
    """List the ends of an interval that has both; none of an infinite one."""
    ends = [record["ci_low"], record["ci_high"]]
    return ends if all(map(math.isfinite, ends)) else []


def _load_predictor(file: str) -> Predictor:
    from ngbkit import predictor

    path = parse_path(file)
    if not path.is_file():
        raise UsageError(
            f"invalid --predictor: got {file}, which is no file. `ngbkit predict --fit labels.csv -o {file}` fits it."
        )
    return predictor.load(path)


def _format_label(value: Any) -> str:
    """Format a label of a row; the factor of another network is empty."""
    if isinstance(value, str):
        return value
    return f"{value:.12g}" if math.isfinite(value) else ""


def _format_share(share: float, unknown: str = "–", sign: str = "") -> str:
    return f"{sign}{share:.1%}".replace("%", " %") if math.isfinite(share) else unknown


def _format_rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
