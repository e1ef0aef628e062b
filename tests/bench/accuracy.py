"""Measures the accuracy of predictors on unseen networks: every kind, every split, three seeds, in one table.

It fits to notebooks/data/labels.nc, which `labels.py` and `profiles.py` measured. It resumes after any interruption:
results are saved in the folder, in one of its own for each content of a file of labels. Two processes with
different splits may run in parallel. With `--curve`, it measures the learning curve instead: the error against the
number of networks, and a guess of it with ten times as many.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from operator_sum import OperatorSum
from scipy.stats import norm
from studies.learning_curve import extrapolate, learning_curve

from ngbkit import predict
from ngbkit.files import hash_file
from ngbkit.predict.scoring import scores
from ngbkit.predict.scoring.splits import Split

LABELS = Path(__file__).parents[2] / "notebooks" / "data" / "labels.nc"
KINDS = ("flops", OperatorSum.kind, "linear", "boosting", "gnn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=Path, nargs="+", default=[LABELS])
    parser.add_argument("--splits", default="random,family,rule", help="separated by commas (default: all)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="separated by commas (default: all)")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas (default: 0,1,2)")
    parser.add_argument("--folder", type=Path, default=Path("results/accuracy"), help="folder of finished results")
    parser.add_argument("--adapt", type=int, default=0, help="networks of each left-out family to adapt to")
    parser.add_argument("--max-error", type=float, help="the largest error of a label that is scored, such as 0.06")
    parser.add_argument("--curve", action="store_true", help="measure the learning curve of each split instead")
    parser.add_argument("--table", type=Path, help="a CSV to write the learning curves to as well")
    args = parser.parse_args()
    curves = []
    for labels in args.labels:
        examples = predict.load_examples(labels)
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


if __name__ == "__main__":
    main()
