"""How well predictors predict what they have not learned from: every kind, every split, three seeds, in one table.

It learns from notebooks/data/05-labels.nc, which `labels.py` measured. Ended in any way, it goes on where it was: what
is done stays in the folder, and so does training. Two of it, with other splits, may run beside each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from ngbkit import predictor
from ngbkit.predictor import examples, scores
from ngbkit.predictor.evaluation import BASELINES

LABELS = Path(__file__).parents[2] / "notebooks" / "data" / "05-labels.nc"
KINDS = (*BASELINES, "gnn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=Path, default=LABELS)
    parser.add_argument("--splits", default="random,family,rule", help="separated by commas (default: all)")
    parser.add_argument("--kinds", default=",".join(KINDS), help="separated by commas (default: all)")
    parser.add_argument("--seeds", default="0,1,2", help="separated by commas (default: 0,1,2)")
    parser.add_argument("--threads", type=int, help="of torch (default: its own choice)")
    parser.add_argument("--folder", type=Path, default=Path("results/accuracy"), help="where it keeps what is done")
    parser.add_argument("--out", type=Path, help="a text file that the tables are written to as well")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if asked.threads:
        import torch

        torch.set_num_threads(asked.threads)
    known = examples.load(asked.labels)
    texts = [about(known)]
    for split in asked.splits.split(","):
        rows = [
            evaluated(known, kind, split, seed, asked.folder)
            for kind in asked.kinds.split(",")
            for seed in map(int, asked.seeds.split(","))
        ]
        texts.append(written(predictor.summary(pd.concat(rows)), split))
        print("\n\n".join(texts[-1:] if len(texts) > 2 else texts), "\n", flush=True)
    if asked.out:
        asked.out.write_text("\n\n".join(texts) + "\n")


def evaluated(known: predictor.Examples, kind: str, split: str, seed: int, folder: Path) -> pd.DataFrame:
    """The rows of one kind, split and seed: read where they are there already."""
    file = folder / f"{split}-{kind}-{seed}-{len(known)}.csv"
    if not file.exists():
        settings = {"gnn": {"folder": folder / "training"}}
        found = predictor.evaluate(known, [kind], split=split, seeds=[seed], settings=settings)
        found.to_csv(file, index=False)
    return pd.read_csv(file)


def about(known: predictor.Examples) -> str:
    """What is learned from, in a line."""
    alone = int(known.isolated.sum())
    changed = sum(bool(rule) for rule in known.rules)
    floors = []
    for at, (_, compiler) in enumerate(known.runtimes):
        errors = np.full(1, np.nan) if known.errors is None else known.errors[:, at]
        errors = errors[np.isfinite(errors)]
        if len(errors):
            floors.append(f"{compiler} {np.median(errors):.1%} of {len(errors)}")
    return (
        f"{len(known)} graphs: {len(known) - alone - changed} networks of {len(set(known.families))} families, "
        f"{changed} variants of theirs, {alone} single operators\n"
        f"a latency that several runs measured is known, in the median, to {', '.join(floors) or 'what nobody knows'}\n"
        f"pairs of variants that surely differ by more than 3 %: {', '.join(pairs(known)) or 'none'}"
    )


def pairs(known: predictor.Examples) -> Iterator[str]:
    """By runtime how many there are, and how many noise alone would give, if no two variants differed at all."""
    if known.errors is None:
        return
    noise = np.where(np.array([bool(rule) for rule in known.rules])[:, None], np.nan_to_num(known.errors), 0.0)
    for at, (_, compiler) in enumerate(known.runtimes):
        there = np.flatnonzero(np.isfinite(known.seconds[:, at]))
        parents = [known.parents[one] for one in there]
        seconds, own = known.seconds[there, at], noise[there, at]
        _, count = scores.sign_accuracy(seconds, seconds, parents, errors=own)
        spread = [np.hypot(own[one], own[other]) for one, other in scores.pairs_of(parents)]
        spread = [one for one in spread if one > 0]
        chance = sum(2 * norm.sf((np.log1p(0.03) + 1.96 * one) / one) for one in spread)
        if count:
            yield f"{compiler} {count} (by chance at most {chance:.0f})"


def written(table: pd.DataFrame, split: str) -> str:
    """A table as text: shares in per cent."""
    shares = {name: table[name].map("{:.1%}".format) for name in ("mape", "within_10", "sign")}
    shown = table.assign(**shares, tau=table["tau"].round(3)).droplevel(["split", "device"])
    return f"split: {split}\n{shown.to_string()}"


if __name__ == "__main__":
    main()
