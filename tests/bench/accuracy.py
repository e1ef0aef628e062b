"""Measures the accuracy of predictors on unseen networks: every kind, every split, three seeds, in one table.

It fits to notebooks/data/labels.nc, which `labels.py` and `profiles.py` measured. It resumes after any interruption:
results are saved in the folder, in one of its own for each content of a file of labels. Two processes with
different splits may run in parallel. With `--curve`, it measures the learning curve instead: the error against the
number of networks, and a guess of it with ten times as many.

With `--intervals`, it scores 95 % intervals beyond the labels: where a family, an operator or sizes are left out. Each
such part has `LEAST` networks or more, and leaves `REST` or more. A row per runtime and sort of part: the parts; the
share of the networks that are refused; the share of the others whose latency is inside the interval, by network and by
part; the median factor between an interval's end and the prediction; and the share that is flagged.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from operator_sum import OperatorSum
from scipy.stats import norm
from studies.learning_curve import extrapolate, learning_curve

from ngbkit import predict
from ngbkit.files import hash_file
from ngbkit.predict.kinds.base import ignore_progress
from ngbkit.predict.scoring import scores
from ngbkit.predict.scoring.applicability import read_composition
from ngbkit.predict.scoring.splits import Split

LABELS = Path(__file__).parents[2] / "notebooks" / "data" / "labels.nc"
#: Of each sort of part that `--intervals` leaves out: the most parts, their fewest networks, and the fewest others.
MOST, LEAST, REST = 12, 4, 10
KINDS = ("flops", OperatorSum.kind, "linear", "boosting", "gnn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=Path, nargs="+", default=[LABELS])
    parser.add_argument("--splits", default="random,family", help="separated by commas (default: all)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="separated by commas (default: all)")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas (default: 0,1,2)")
    parser.add_argument("--folder", type=Path, default=Path("results/accuracy"), help="folder of finished results")
    parser.add_argument("--adapt", type=int, default=0, help="networks of each left-out family to adapt to")
    parser.add_argument("--max-error", type=float, help="the largest error of a label that is scored, such as 0.06")
    parser.add_argument("--curve", action="store_true", help="measure the learning curve of each split instead")
    parser.add_argument("--table", type=Path, help="a CSV to write the learning curves to as well")
    parser.add_argument("--intervals", action="store_true", help="score intervals beyond the labels instead")
    args = parser.parse_args()
    if args.intervals:
        warnings.simplefilter("ignore")
        print(f"{'kind':10} {'runtime':22} {'left out':9} parts refused coverage by part factor flagged")
    curves = []
    for labels in args.labels:
        examples = predict.load_examples(labels)
        if args.intervals:
            for kind in args.kinds.split(","):
                print_intervals(examples, kind)
            continue
        folder = args.folder / f"{labels.stem}-{hash_file(labels)[:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        if not args.curve:
            print(describe_examples(examples), end="\n\n", flush=True)
        for split in args.splits.split(","):
            table = pd.concat(
                load_or_score(examples, kind, split, int(seed), folder, args)
                for kind in args.kinds.split(",")
                for seed in args.seeds.split(",")
            )
            curves += [table] if args.curve else []
            title = f"{split}, adapted to {args.adapt} networks of each family" if args.adapt else split
            text = format_curve(table, split) if args.curve else format_table(predict.summary(table), title)
            print(text, end="\n\n", flush=True)
    if args.table:
        pd.concat(curves).to_csv(args.table, index=False)


def load_or_score(
    examples: predict.Examples, kind: str, split: Split, seed: int, folder: Path, args: argparse.Namespace
) -> pd.DataFrame:
    """Return the scores of one kind, split and seed, from the file of an earlier call if there is one."""
    adapted = f"-adapted{args.adapt}" if args.adapt else ""
    scored = f"-{args.max_error:g}" if args.max_error else ""
    file = folder / f"{'curve-' if args.curve else ''}{split}-{kind}-{seed}{adapted}{scored}.csv"
    if not file.exists():
        settings: dict[str, Any] = {"split": split, "seeds": [seed], "max_error": args.max_error}
        if args.curve:
            table = learning_curve(examples, [kind], **settings)
        else:
            table = predict.evaluate(examples, [kind], adapt=args.adapt, **settings)
        table.to_csv(file, index=False)
    return pd.read_csv(file)


def format_curve(curve: pd.DataFrame, split: str) -> str:
    """Format a learning curve as text: a row per kind and runtime, a column per number of networks."""
    keys = ["kind", "compiler"]
    errors = curve.groupby([*keys, "networks"], sort=False)["mape"].agg(["mean", "min", "max"])
    cells = [f"{mean:.1%} ({low:.1%} to {high:.1%})" for mean, low, high in errors.itertuples(index=False)]
    guess = extrapolate(curve).set_index(keys)
    table = pd.Series(cells, errors.index).unstack("networks").reindex(guess.index)
    table = table.assign(floor=guess["floor"].map("{:.1%}".format), ten_times=guess["mape"].map("{:.1%}".format))
    title = f"learning curve, split: {split} (MAPE by networks in training, and of all seeds; ten_times is a guess)"
    return f"{title}\n{table.to_string()}"


def describe_examples(examples: predict.Examples) -> str:
    """Describe the examples in a few lines."""
    singles = int(examples.isolated.sum())
    variants = sum(bool(rule) for rule in examples.rules)
    errors_by_runtime = []
    for column, (_, compiler) in enumerate(examples.runtimes):
        errors = np.full(1, np.nan) if examples.errors is None else examples.errors[:, column]
        errors = errors[np.isfinite(errors)]
        if len(errors):
            errors_by_runtime.append(f"{compiler} {np.median(errors):.1%} of {len(errors)}")
    return (
        f"{len(examples)} graphs: {len(examples) - singles - variants} networks of "
        f"{len(set(examples.families))} families, {variants} of their variants, {singles} single operators\n"
        f"median error of a latency measured in several runs: {', '.join(errors_by_runtime) or 'unknown'}\n"
        f"pairs of variants that differ significantly by more than 3 %: {', '.join(format_pairs(examples)) or 'none'}"
    )


def format_pairs(examples: predict.Examples) -> Iterator[str]:
    """Yield the number of significant pairs by runtime, and how many noise alone would make significant."""
    if examples.errors is None:
        return
    noise = np.where(np.array([bool(rule) for rule in examples.rules])[:, None], np.nan_to_num(examples.errors), 0.0)
    for column, (_, compiler) in enumerate(examples.runtimes):
        finite = np.flatnonzero(np.isfinite(examples.seconds[:, column]))
        parents = [examples.parents[index] for index in finite]
        seconds, errors = examples.seconds[finite, column], noise[finite, column]
        _, count = scores.sign_accuracy(seconds, seconds, parents, errors=errors)
        spread = [np.hypot(errors[index], errors[other]) for index, other in scores.list_pairs(parents)]
        spread = [error for error in spread if error > 0]
        chance = sum(2 * norm.sf((np.log1p(0.03) + 1.96 * error) / error) for error in spread)
        if count:
            yield f"{compiler} {count} (by chance at most {chance:.0f})"


def format_table(table: pd.DataFrame, split: str) -> str:
    """Format a table as text, with shares in per cent."""
    shares = ("mape", "median_error", "within_5", "within_10", "floor", "sign")
    formats = dict.fromkeys(shares, "{:.1%}") | {"tau": "{:.3f}", "rho": "{:.3f}", "ratio": "{:.2f}", "pairs": "{:.0f}"}
    text = table.droplevel(["split", "device"]).to_string(
        formatters={name: form.format for name, form in formats.items()}
    )
    return f"split: {split}\n{text}"


def print_intervals(examples: predict.Examples, kind: str) -> None:
    """Print a row for each runtime and sort of part that is left out."""
    for runtime in split_runtimes(examples):
        rows_by_sort: dict[str, list[np.ndarray]] = {}
        for sort, test in list_parts(runtime):
            rows_by_sort.setdefault(sort, []).append(score_part(runtime, test, kind))
        for sort, parts in rows_by_sort.items():
            label = "{1} on {0}".format(*runtime.runtimes[0])
            answered = [part[part[:, 0] == 0, 1].mean() for part in parts if (part[:, 0] == 0).any()]
            described = describe_part(np.concatenate(parts), float(np.mean(answered or [np.nan])))
            print(f"{kind:10} {label:22} {sort:9} {len(parts):5} {described}", flush=True)


def split_runtimes(examples: predict.Examples) -> Iterator[predict.Examples]:
    """Yield the examples of each runtime that has enough, without variants."""
    original = np.array([not rule for rule in examples.rules])
    for column in range(len(examples.runtimes)):
        rows = np.flatnonzero(original & np.isfinite(examples.seconds[:, column]))
        part = examples.take(rows)
        if (~part.isolated).sum() >= 3 * REST:
            errors = None if part.errors is None else part.errors[:, [column]]
            yield replace(
                part,
                runtimes=(examples.runtimes[column],),
                seconds=part.seconds[:, [column]],
                errors=errors,
                operator_seconds=None,
            )


def list_parts(examples: predict.Examples) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a sort, and the indices of the networks to leave out."""
    networks = np.flatnonzero(~examples.isolated)
    families = np.array(examples.families)
    contents = {int(index): read_composition(examples.graphs[index]) for index in networks}
    names, counts = np.unique(families[networks], return_counts=True)
    for name in names[np.argsort(-counts, kind="stable")][: min(MOST, (counts >= LEAST).sum())]:
        yield "family", networks[families[networks] == name]
    classes = sorted({name for content in contents.values() for name in content.shares})
    members = {name: np.array([i for i in networks if name in contents[int(i)].shares]) for name in classes}
    chosen = [name for name in classes if LEAST <= len(members[name]) <= len(networks) - REST]
    generator = np.random.default_rng(0)
    for name in generator.permutation(chosen)[:MOST]:
        yield "operator", members[name]
    sizes = np.array([contents[int(index)].cost for index in networks])
    order = networks[np.argsort(sizes)]
    for part in np.array_split(order, 5):
        yield "sizes", part


def score_part(examples: predict.Examples, test: np.ndarray, kind: str) -> np.ndarray:
    """Return a row per network: refused, covered, flagged, the logarithm of the factor, and that of the error."""
    rest = np.setdiff1d(np.arange(len(examples)), test)
    if (~examples.take(rest).isolated).sum() < REST:
        return np.empty((0, 5))
    fitted = predict.fit(examples.take(rest), kind, report=ignore_progress)
    graphs = [examples.graphs[index] for index in test]
    seconds, low, high = (values[:, 0] for values in fitted.seconds(graphs))
    measured = examples.seconds[test, 0]
    with np.errstate(invalid="ignore", divide="ignore"):
        columns: list[Any] = [
            ~np.isfinite(seconds),
            (low <= measured) & (measured <= high),
            fitted.find_beyond(graphs)[:, 0],
            np.maximum(np.log(high / seconds), np.log(seconds / low)),
            np.log(seconds / measured),
        ]
    return np.stack(columns, axis=1).astype(float)


def describe_part(part: np.ndarray, by_part: float) -> str:
    answered = part[part[:, 0] == 0]
    if not len(part):
        return "none is large enough"
    if not len(answered):
        return "100 % refused"
    factor, flagged = np.exp(np.median(answered[:, 3])), answered[:, 2].mean()
    return f"{part[:, 0].mean():7.1%} {answered[:, 1].mean():8.1%} {by_part:7.1%} {factor:6.2f} {flagged:7.1%}"


if __name__ == "__main__":
    main()
