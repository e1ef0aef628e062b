"""The change of accuracy from f32 to a lower precision of the same runtime, over pairs of answers to one sample."""

from __future__ import annotations

import base64
import json
import math
from functools import partial
from statistics import NormalDist
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_labels, map_cells, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics.answer_costs import read_cost
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Chart, Metric
from ngbkit.metrics.originals import find_originals, select_originals
from ngbkit.metrics.ratios import ratio
from ngbkit.user_text import join_names

_VARIABLES = ("accuracy", "evaluated_samples", "facts")
_STEPS = 60
# A change that chance explains less often is a loss.
_SIGNIFICANCE = 0.05
_MOST_LOSSES = 3
_NOTES = (
    "It needs labels: `evaluate=` of a sweep. Both columns answer the same samples, and only those count that one of "
    "them answers right and the other wrong, so that a loss shows in few samples. Both are of one runtime; `identity` "
    "stands in where the sweep lacks its f32. With `reference=` of a sweep the other is that file."
)


def bound_difference(gained: Any, lost: Any, count: Any, ci: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute the score interval of a difference of two paired shares: Tango (1998), Stat. Med. 17, 891-908.

    `gained` of `count` pairs are right only in the second, `lost` only in the first.
    """
    score = NormalDist().inv_cdf((1 + ci) / 2)
    gained, lost, count = (np.asarray(values, float) for values in np.broadcast_arrays(gained, lost, count))

    def solve(target: float) -> np.ndarray:
        low, high = np.full(gained.shape, -1.0), np.full(gained.shape, 1.0)
        for _ in range(_STEPS):
            middle = (low + high) / 2
            is_below = _compute_score(gained, lost, count, middle) > target
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return np.where(np.isnan(gained + lost + count), np.nan, (low + high) / 2)

    return solve(score), solve(-score)


def _compute_score(gained: np.ndarray, lost: np.ndarray, count: np.ndarray, difference: np.ndarray) -> np.ndarray:
    """Compute the score of a difference, which falls with it, by the likeliest share of `lost` under it."""
    slope = (2 * count - gained + lost) * difference - gained - lost
    constant = -lost * difference * (1 - difference)
    root = np.sqrt(np.maximum(slope**2 - 8 * count * constant, 0))
    share = (root - slope) / (4 * count)
    variance = count * (2 * share + difference * (1 - difference))
    excess = gained - lost - count * difference
    with np.errstate(divide="ignore", invalid="ignore"):
        scores: np.ndarray = excess / np.sqrt(np.maximum(variance, 0))
    return np.where(excess == 0, 0.0, scores)


def compute_chance(gained: int, lost: int) -> float:
    """Compute the exact probability of so unequal a split of discordant pairs by chance: McNemar (1947), two-sided."""
    total, least = gained + lost, min(gained, lost)
    logs = [
        math.lgamma(total + 1) - math.lgamma(number + 1) - math.lgamma(total - number + 1) - total * math.log(2)
        for number in range(least + 1)
    ]
    return min(1.0, 2 * sum(map(math.exp, logs)))


def count_discordant(data: xr.Dataset, metric: str) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Count the samples that a column gained and lost against f32 of its runtime, and all that were compared.

    The answers of a file that the sweep has as `reference` stand in for f32. NaN where either has no labels.
    """
    accuracy = read_cost(metric, data, needs="accuracy")
    texts = data["facts"].transpose(*accuracy.dims)
    answers, references = (
        map_cells(texts, partial(_read_answers, fact=fact)) for fact in ("correct", "reference_correct")
    )
    has_references = any(isinstance(old, np.ndarray) for old in references.values.ravel())
    if has_references and not find_originals(list_labels(answers, "compiler")):
        originals = references
    else:
        originals = select_originals(answers, metric)
    counts = np.full((3, answers.size), np.nan)
    columns = (array.values.ravel() for array in (answers, references, originals))
    for place, (new, reference, original) in enumerate(zip(*columns, strict=True)):
        old = original if reference is None else reference
        if isinstance(new, np.ndarray) and isinstance(old, np.ndarray) and len(new) == len(old):
            counts[:, place] = np.sum(new & ~old), np.sum(old & ~new), len(new)
    gained, lost, count = (answers.copy(data=column.reshape(answers.shape)) for column in counts)
    return gained, lost, count


def _read_answers(text: str, fact: str) -> np.ndarray | None:
    """Read which samples are answered right from the facts of a trial; None without labels."""
    facts = json.loads(text) if f'"{fact}"' in str(text) else {}
    try:
        bits = np.frombuffer(base64.b64decode(facts[fact], validate=True), np.uint8)
        return np.unpackbits(bits, count=int(facts["evaluated_samples"])).astype(bool)
    except (KeyError, ValueError, TypeError):
        return None


def _compute_change(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    del sampler
    gained, lost, count = count_discordant(data, "accuracy_change")
    return ratio(gained - lost, count)


def _bound_change(data: xr.Dataset, ci: float) -> tuple[xr.DataArray, xr.DataArray]:
    gained, lost, count = count_discordant(data, "accuracy_change")
    low, high = bound_difference(gained.values, lost.values, count.values, ci)
    return gained.copy(data=low), gained.copy(data=high)


def _compute_chance(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    del sampler
    gained, lost, _ = count_discordant(data, "accuracy_chance")
    pairs = zip(gained.values.ravel(), lost.values.ravel(), strict=True)
    chances = [math.nan if math.isnan(new) else compute_chance(int(new), int(old)) for new, old in pairs]
    return gained.copy(data=np.reshape(chances, gained.shape))


ACCURACY_CHANGE = Metric(
    name="accuracy_change",
    long_name="change of accuracy from f32 of the same runtime",
    meaning="below 0 the lower precision answers fewer samples right",
    formula=r"\frac{n_{\mathrm{gained}} - n_{\mathrm{lost}}}{n}",
    notes=f"{_NOTES} The interval is Tango's score interval of paired shares.",
    compute=_compute_change,
    variables=_VARIABLES,
    interval=_bound_change,
    neutral=np.nan,
    chart=Chart(reference=0.0),
    place=19,
)
ACCURACY_CHANCE = Metric(
    name="accuracy_chance",
    symbol="p",
    long_name="probability of such a change of accuracy by chance",
    meaning="below 0.05 a change is significant; McNemar's exact test, two-sided",
    formula=r"\min\left(1, 2^{1-m} \sum_{i \le k} \binom{m}{i}\right)",
    notes=f"{_NOTES} Of the m discordant samples, k is the smaller of those gained and lost. It has no interval.",
    compute=_compute_chance,
    variables=_VARIABLES,
    interval=lambda data, _: (_compute_chance(data, None),) * 2,  # it has no interval of its own
    neutral=np.nan,
    place=19,
)


def describe_losses(data: Data) -> str:
    """Describe which columns answer significantly fewer samples right than f32, as `accuracy_change`; empty without."""
    texts: dict[str, str] = {}
    for node in nodes(data).values():
        if not ACCURACY_CHANGE.is_in(node):
            continue
        try:
            change = ACCURACY_CHANGE(node, ci=0.95).drop_vars("conclusive")
            chance = ACCURACY_CHANCE(node)
        except MetricError:  # no column of a lower precision
            continue
        frame = to_frame(change.assign(chance=chance))
        lost = frame[(frame["chance"] < _SIGNIFICANCE) & (frame["accuracy_change"] < 0)].sort_values("chance")
        for row in lost.to_dict("records"):
            loss, low, high = (-100 * row[name] for name in ("accuracy_change", "ci_high", "ci_low"))
            text = f"{row['compiler']} on {row['workload']}, {loss:.1f} points ({low:.1f} to {high:.1f})"
            # Of several batch sizes or devices, the surest.
            texts.setdefault(f"{row['compiler']} on {row['workload']}", f"{text}, p = {row['chance']:.2g}")
    return f"Loses accuracy: {join_names(texts.values(), '; ', most=_MOST_LOSSES)}." if texts else ""
