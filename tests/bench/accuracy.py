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
    parser.add_argument("--kinds", help="separated by commas (default: all that the labels allow)")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas (default: 0,1,2)")
    parser.add_argument("--folder", type=Path, default=Path("results/accuracy"), help="folder of finished results")
    parser.add_argument("--out", type=Path, help="a text file to write the tables to as well")
    parser.add_argument(
        "--adapt", type=int, default=0, help="networks of each left-out family to adapt to, with --splits family"
    )
    parser.add_argument(
        "--max-error", type=float, help="networks with a larger error of their label, such as 0.06, are not scored"
    )
    parser.add_argument("--curve", action="store_true", help="measure the learning curve of each split instead")
    parser.add_argument("--table", type=Path, help="a CSV to write the learning curves to as well")
    args = parser.parse_args()
    texts = []
    for labels in args.labels:
        texts += measure(labels, args)
    if args.out:
        args.out.write_text("\n\n".join(texts) + "\n")


def measure(labels: Path, args: argparse.Namespace) -> list[str]:
    """Measure what the arguments ask for on the labels of a file, print it, and return its texts."""
    folder = args.folder / f"{labels.stem}-{hash_file(labels)[:8]}"
    folder.mkdir(parents=True, exist_ok=True)
    examples_ = predict.load_examples(labels)
    splits, kinds = args.splits.split(","), args.kinds.split(",") if args.kinds else list(KINDS)
    seeds = [int(seed) for seed in args.seeds.split(",")]
    if args.curve:
        curves = {split: measure_curve(examples_, kinds, split, seeds, folder, args.max_error) for split in splits}
        texts = [format_curve(curve, split) for split, curve in curves.items()]
        print("\n\n".join(texts), flush=True)
        if args.table:
            pd.concat(curves.values()).to_csv(args.table, index=False)
    else:
        texts = [describe_examples(examples_)]
        for split in splits:
            rows = [
                evaluate_kind(examples_, kind, split, seed, folder, args.adapt, args.max_error)
                for kind in kinds
                for seed in seeds
            ]
            title = f"{split}, adapted to {args.adapt} networks of each family" if args.adapt else split
            texts.append(format_table(predict.summary(pd.concat(rows)), title))
            print("\n\n".join(texts[-1:] if len(texts) > 2 else texts), "\n", flush=True)
    return texts


def measure_curve(
    examples_: predict.Examples,
    kinds: list[str],
    split: Split,
    seeds: list[int],
    folder: Path,
    max_error: float | None = None,
) -> pd.DataFrame:
    """Return the learning curves of a split; finished ones are from files of earlier calls."""
    rows = []
    for kind in kinds:
        for seed in seeds:
            scored = f"-{max_error:g}" if max_error else ""
            file = folder / f"curve-{split}-{kind}-{seed}{scored}.csv"
            if not file.exists():
                table = learning_curve(examples_, [kind], split=split, seeds=[seed], max_error=max_error)
                table.to_csv(file, index=False)
            rows.append(pd.read_csv(file))
    return pd.concat(rows)


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


def evaluate_kind(
    examples_: predict.Examples,
    kind: str,
    split: Split,
    seed: int,
    folder: Path,
    adapt: int = 0,
    max_error: float | None = None,
) -> pd.DataFrame:
    """Return the rows of one kind, split and seed, from the file of an earlier call if there is one."""
    adapted = f"-adapted{adapt}" if adapt else ""
    scored = f"-{max_error:g}" if max_error else ""
    file = folder / f"{split}-{kind}-{seed}{adapted}{scored}.csv"
    if not file.exists():
        table = predict.evaluate(examples_, [kind], split=split, seeds=[seed], adapt=adapt, max_error=max_error)
        table.to_csv(file, index=False)
    return pd.read_csv(file)


def describe_examples(examples_: predict.Examples) -> str:
    """Describe the examples in a few lines."""
    singles = int(examples_.isolated.sum())
    variants = sum(bool(rule) for rule in examples_.rules)
    errors_by_runtime = []
    for column, (_, compiler) in enumerate(examples_.runtimes):
        errors = np.full(1, np.nan) if examples_.errors is None else examples_.errors[:, column]
        errors = errors[np.isfinite(errors)]
        if len(errors):
            errors_by_runtime.append(f"{compiler} {np.median(errors):.1%} of {len(errors)}")
    return (
        f"{len(examples_)} graphs: {len(examples_) - singles - variants} networks of "
        f"{len(set(examples_.families))} families, {variants} of their variants, {singles} single operators\n"
        f"median error of a latency measured in several runs: {', '.join(errors_by_runtime) or 'unknown'}\n"
        f"pairs of variants that differ significantly by more than 3 %: {', '.join(format_pairs(examples_)) or 'none'}"
    )


def format_pairs(examples_: predict.Examples) -> Iterator[str]:
    """Yield the number of significant pairs by runtime, and how many noise alone would make significant."""
    if examples_.errors is None:
        return
    noise = np.where(np.array([bool(rule) for rule in examples_.rules])[:, None], np.nan_to_num(examples_.errors), 0.0)
    for column, (_, compiler) in enumerate(examples_.runtimes):
        finite = np.flatnonzero(np.isfinite(examples_.seconds[:, column]))
        parents = [examples_.parents[index] for index in finite]
        seconds, errors = examples_.seconds[finite, column], noise[finite, column]
        _, count = scores.sign_accuracy(seconds, seconds, parents, errors=errors)
        spread = [np.hypot(errors[index], errors[other]) for index, other in scores.list_pairs(parents)]
        spread = [error for error in spread if error > 0]
        chance = sum(2 * norm.sf((np.log1p(0.03) + 1.96 * error) / error) for error in spread)
        if count:
            yield f"{compiler} {count} (by chance at most {chance:.0f})"


def format_table(table: pd.DataFrame, split: str) -> str:
    """Format a table as text, with shares in per cent."""
    names = ("mape", "median_error", "within_5", "within_10", "floor", "sign")
    formats = dict.fromkeys(names, "{:.1%}") | {
        "tau": "{:.3f}",
        "rho": "{:.3f}",
        "ratio": "{:.2f}",
        "pairs": "{:.0f}",
    }
    columns = {name: table[name].map(text.format) for name, text in formats.items()}
    text_table = table.assign(**columns).droplevel(["split", "device"])
    return f"split: {split}\n{text_table.to_string()}"


if __name__ == "__main__":
    main()
