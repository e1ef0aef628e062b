"""``ngbkit predict``: fit a predictor to labels, say how good it is, and predict networks."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING, Any, cast

from ngbkit import options
from ngbkit.commands.answer import Answer
from ngbkit.commands.arguments import take_label
from ngbkit.commands.command import CLIENT_SIDE, JSON, QUIET, Call, Command
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.report import Report
from ngbkit.sweep.argument import argument
from ngbkit.sweep.feeding import parse_batch_axes, parse_inputs
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.option import options_of
from ngbkit.sweep.parsing import parse_factors, parse_numbers
from ngbkit.user_text import format_share, parse_path

if TYPE_CHECKING:
    from ngbkit.predict import Examples, Predictor


def answer_predict(call: Call) -> Answer:
    """Fit or adapt a predictor to the labels that a call names, and suggest or predict its networks."""
    args = call.args
    _check(args)
    sizes = [size for text in args.batch_sizes or ["1"] for size in parse_numbers("batch size", text)]
    # What was fitted or adapted here has the runtime of the arguments, if they name one.
    is_as_saved = args.fit is None and args.adapt is None
    device, runtime = (_take_device(args), _take_compiler(args)) if is_as_saved else (None, None)
    answers: dict[str, Answer] = {}
    if args.fit is not None:
        answers["evaluation"], predictor = fit_labels(args, call.report)
        answers |= _build_choice(predictor)
    else:
        predictor = _load_predictor(args.predictor)
    if args.adapt is not None:
        answers["adaptation"], predictor = adapt_labels(predictor, args, call.report)
    if args.out is not None:
        predictor.save(args.out)
    if args.networks:
        sweep = Grid(
            args.networks,
            batch_sizes=cast(Sequence[int], sizes),
            factors=parse_factors(args.factor or ()),
            inputs=parse_inputs(args.inputs or ()),
            batch_axis=parse_batch_axes(args.batch_axis or ()),
        )
        if args.suggest is not None:
            answers["suggestions"] = suggest_networks(predictor, sweep, args)
        else:
            answers["predictions"] = predict_networks(predictor, sweep, device, runtime)
    return _join(answers)


def _check(args: argparse.Namespace) -> None:
    """Raise the error about arguments that exclude each other, before anything is fitted."""
    if (args.fit is None) == (args.predictor is None):
        got = "neither" if args.fit is None else "both"
        raise UsageError(
            f"got {got} of --predictor and --fit; expected one: a saved predictor, or labels to fit one to, such as "
            "`ngbkit predict --fit labels.csv -o predictor.safetensors`."
        )
    if args.suggest is not None and not args.networks:
        raise UsageError("no network to choose from; expected some, such as *.onnx.")
    if args.fit is not None:
        return
    if args.out is not None and args.adapt is None:
        raise UsageError(
            "unexpected argument --out: a saved predictor is not fitted again. It is for --fit FILE and --adapt FILE."
        )
    if not args.networks and args.adapt is None:
        raise UsageError("no network to predict; expected one or more, such as resnet34 or model.onnx.")


def _join(answers: Mapping[str, Answer]) -> Answer:
    """Join several answers to one: their objects by name, one below the other."""
    report = Report(
        sentences=[sentence for answer in answers.values() for sentence in answer.report.sentences],
        frames=[frame for answer in answers.values() for frame in answer.report.frames],
        notes=[note for answer in answers.values() for note in answer.report.notes],
    )
    return Answer(json={name: answer.json for name, answer in answers.items()}, report=report)


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
            "what to fit: linear, boosting, gnn or flops (default: the labels choose the cheapest as good as the best)",
            default="auto",
        ),
        argument(
            "--suggest N",
            "name the N of these networks whose latencies tell most about the others, to measure on a new device",
            type=int,
        ),
        argument(
            "--adapt FILE",
            "adapt the predictor to a few labels, as --fit: with -d NAME to a new device, else to a family of networks",
            action="append",
        ),
        argument(
            "-c, --compilers NAME",
            "with which compiler a CSV was measured that has no column for it (default: unnamed), or which one of the "
            "predictor's to predict (default: all)",
            completes="compiler",
        ),
        argument("-d, --devices NAME", "where, as --compilers (default: this machine's, or all)", completes="device"),
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
        argument("-o, --out FILE", "save what was fitted or adapted, such as predictor.safetensors"),
    ),
    run=answer_predict,
    shell=(JSON, QUIET),
    needs=CLIENT_SIDE,
)


def fit_labels(args: argparse.Namespace, report: Callable[[str], None] | None = None) -> tuple[Answer, Predictor]:
    """Fit a predictor to the labels that the arguments name, evaluate its kind on them, and save it."""
    from ngbkit import predict
    from ngbkit.predict.kinds.base import to_progress
    from ngbkit.predict.labels.loading import load_labels

    progress = to_progress(report)
    paths = [parse_path(file) for file in args.fit]
    runtime = None if args.adapt is not None else _find_runtime(args)
    examples = load_labels(paths, "--fit", runtime=runtime, report=progress)
    fitted = predict.fit(examples, args.kind, report=progress)
    scores = predict.evaluate(examples, dict.fromkeys([fitted.model.kind, "flops"]), seeds=(0,), report=progress)
    return build_evaluation(examples, fitted, predict.summary(scores).reset_index()), fitted


def _find_runtime(args: argparse.Namespace) -> tuple[str, str] | None:
    """Return what the arguments say that a CSV was measured with; None if they say nothing."""
    from ngbkit.predict.labels.labelling import UNNAMED

    device, compiler = _take_device(args), _take_compiler(args)
    if compiler is None and device is None:
        return None
    return device or options.get_device(), compiler or UNNAMED


def _take_compiler(args: argparse.Namespace) -> str | None:
    return None if args.compilers is None else take_label("compilers", args.compilers)


def _take_device(args: argparse.Namespace) -> str | None:
    return None if args.devices is None else take_label("devices", args.devices)


def adapt_labels(
    predictor: Predictor, args: argparse.Namespace, report: Callable[[str], None] | None = None
) -> tuple[Answer, Predictor]:
    """Adapt a predictor to the labels that the arguments name: a row per runtime, with the errors of leaving out."""
    from ngbkit.predict.kinds.base import to_progress
    from ngbkit.predict.labels.label_table import is_table
    from ngbkit.predict.labels.loading import load_similar

    progress = to_progress(report)
    paths = [parse_path(file) for file in args.adapt]
    runtime = _find_runtime(args) if any(map(is_table, paths)) else None
    labels = load_similar(paths, predictor.lowering, "--adapt", runtime=runtime, report=progress)
    device = _take_device(args)
    is_new = device not in (None, *(device for device, _ in predictor.runtimes))
    adapted = predictor.adapt(labels, device=device if is_new else None, report=progress)
    details = asdict(adapted.choice) if is_new and adapted.choice else {}
    limits = adapted.calibration.compute_error(0.95).tolist()
    report_rows, rows = [], []
    for column, (device, compiler) in enumerate(adapted.runtimes):
        width, count = math.expm1(limits[column]), adapted.calibration.count_networks(column)
        row = {"device": device, "compiler": compiler}
        report_rows.append({**row, "networks": count, **details, "interval": width})
        rows.append({**row, "networks": str(count), "95 % interval": _format_share(width, "too few", "±")})
    notes = [f"{adapted.choice}."] if is_new else []
    return Answer.of_rows(rows, json=to_json_value(report_rows), notes=notes), adapted


def suggest_networks(predictor: Predictor, sweep: Grid, args: argparse.Namespace) -> Answer:
    """A row per network to measure next, the most informative first."""
    table = predictor.suggest(sweep, args.suggest)
    names = [workload.name for workload in sweep.workloads]
    words = dict(zip(names, args.networks, strict=True)) if len(names) == len(args.networks) else {}
    selected = table.to_dict("records")
    rows = [
        {str(column): _format_label(value) for column, value in record.items() if column != "left"}
        | {"variance left": _format_share(record["left"])}
        for record in selected
    ]
    networks = " ".join(dict.fromkeys(quote(words.get(record["workload"], record["workload"])) for record in selected))
    source = args.predictor or args.out or "predictor.safetensors"
    adapt = f"`ngbkit predict --predictor {source} --adapt measured.nc -d DEVICE -o DEVICE.safetensors`"
    notes = [f"Measure them there, `ngbkit run {networks} -c COMPILER -d DEVICE -o measured.nc`, and adapt: {adapt}."]
    return Answer.of_rows(rows, json=to_json_value(selected), notes=notes)


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
    return Answer.of_rows(rows, "No network was held out.", json=to_json_value(report))


def _build_choice(predictor: Predictor) -> dict[str, Answer]:
    """Say which kind the labels chose, and by which errors; nothing of a kind that was named."""
    from ngbkit.predict.scoring.kind_choice import KindChoice

    choice = predictor.choice
    if not isinstance(choice, KindChoice):
        return {}
    return {"choice": Answer(json=asdict(choice), report=Report(sentences=[f"{choice}."]))}


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
    return Answer.of_rows(rows, "The predictor has no such runtime.", json=to_json_value(selected))


_RESULTS = ("latency", "ci_low", "ci_high", "throughput", "beyond")


def _format_prediction(record: Mapping[str, Any]) -> dict[str, str]:
    """Format a latency with its interval, and the reason for which there is none or a wider one."""
    from ngbkit.metrics.estimate import format_time

    beyond = f"beyond the labels: {record['beyond']}" if record["beyond"] else ""
    if not math.isfinite(record["latency"]):
        return {"latency": "none", "samples/s": "", "interval": beyond}
    rate, ends = record["throughput"], [record["ci_low"], record["ci_high"]]
    finite = all(map(math.isfinite, ends))
    return {
        "latency": format_time(record["latency"], *(ends if finite else ())),
        "samples/s": f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}",
        "interval": beyond if finite or beyond else "none: fitted to too few networks",
    }


def _load_predictor(file: str) -> Predictor:
    from ngbkit import predict

    path = parse_path(file)
    if not path.is_file():
        raise UsageError(
            f"invalid --predictor: got {file}, which is no file. `ngbkit predict --fit labels.csv -o {file}` fits it."
        )
    return predict.load(path)


def _format_label(value: Any) -> str:
    """Format a label of a row; the factor of another network is empty."""
    if isinstance(value, str):
        return value
    return f"{value:.12g}" if math.isfinite(value) else ""


def _format_share(share: float, unknown: str = "–", sign: str = "") -> str:
    return f"{sign}{format_share(share, '.1f')}" if math.isfinite(share) else unknown
