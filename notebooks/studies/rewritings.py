"""Compares the labels of rewritten networks: a rewriting on several runtimes, and rewritings that change no work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from itertools import combinations, permutations
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.predict.graphs import Operator
from ngbkit.predict.labels.example_set import Examples, name_runtimes

if TYPE_CHECKING:
    import pandas as pd

GAIN = 0.03
"""The share that a rewriting must gain or lose to count: less is within the noise of most machines."""


def compare_rewritings(examples: Examples, gain: float = GAIN) -> pd.DataFrame:
    """Compute the share of rewritings that gain on one runtime and gain, or lose, on another.

    Parameters
    ----------
    examples
        With rewritten networks and their originals, measured on at least two runtimes.
    gain
        The share by which a variant must be faster or slower than its original to count.

    Returns
    -------
    pandas.DataFrame
        One row per pair of runtimes: ``gains on`` the first and ``and on`` the second; ``variants``, the number of
        rewritten networks that gain on the first and were measured on the second; and the shares of these that are
        ``faster``, make ``no difference`` and are ``slower`` there. Pairs without such a variant are left out.

    Raises
    ------
    UsageError
        No rewritten network has its original among the examples.
    """
    import pandas as pd

    rules = list(enumerate(zip(examples.parents, examples.rules, strict=True)))
    originals = {parent: place for place, (parent, rule) in rules if not rule}
    pairs = [(place, originals[parent]) for place, (parent, rule) in rules if rule and parent in originals]
    if not pairs:
        raise UsageError(
            "no rewritten network and its original in these examples; expected both. Collect them together."
        )
    variants, parents = np.array(pairs).T
    gains = examples.seconds[parents] / examples.seconds[variants]
    rows = []
    names = name_runtimes(examples)
    for first, second in permutations(range(len(names)), 2):
        selected = gains[(gains[:, first] > 1 + gain) & np.isfinite(gains[:, second]), second]
        if not len(selected):
            continue
        faster, slower = float(np.mean(selected > 1 + gain)), float(np.mean(selected < 1 / (1 + gain)))
        shares = {"faster": faster, "no difference": 1 - faster - slower, "slower": slower}
        rows.append({"gains on": names[first], "and on": names[second], "variants": len(selected), **shares})
    return pd.DataFrame(rows, columns=["gains on", "and on", "variants", "faster", "no difference", "slower"])


def compare_equal_work(examples: Examples) -> pd.DataFrame:
    """Compare the latencies of variants of a network whose operators do the same work.

    Such a pair gains nothing: what it shows is the noise of labels, as a comparison of a program with itself does.

    Parameters
    ----------
    examples
        With rewritten networks, of the operators that a runtime executes (``collect(…, lowered=True)``).

    Returns
    -------
    pandas.DataFrame
        One row per pair and runtime: ``parent``; ``rule`` and ``other rule``, empty for an original; ``runtime``;
        ``gain``, the logarithm of the ratio of their latencies; and ``error``, the standard error that their labels
        state for it (NaN if one states none): an original is what gains are measured against, and has none. Two
        operators do the same work if their kind, kernel, window, shapes and multiply-accumulates are equal.
    """
    import pandas as pd

    works = [Counter(map(_describe_work, graph.operators)) for graph in examples.graphs]
    places_by_parent: dict[str, list[int]] = {}
    for place, parent in enumerate(examples.parents):
        places_by_parent.setdefault(parent, []).append(place)
    original = np.array([not rule for rule in examples.rules], dtype=bool)
    stated = np.full(examples.seconds.shape, np.nan) if examples.errors is None else examples.errors
    errors = np.where(original[:, None], 0.0, stated)
    rows = []
    for column, runtime in enumerate(name_runtimes(examples)):
        for parent, places in places_by_parent.items():
            measured = [place for place in places if np.isfinite(examples.seconds[place, column])]
            rows += [
                {
                    **{"parent": parent, "rule": examples.rules[first], "other rule": examples.rules[second]},
                    **{"runtime": runtime},
                    "gain": float(np.log(examples.seconds[first, column] / examples.seconds[second, column])),
                    "error": float(np.hypot(errors[first, column], errors[second, column])),
                }
                for first, second in combinations(measured, 2)
                if works[first] == works[second]
            ]
    return pd.DataFrame(rows, columns=["parent", "rule", "other rule", "runtime", "gain", "error"])


def _describe_work(operator: Operator) -> Hashable:
    """Return what the time of an operator depends on: not whether its file states a default, nor where a bias is."""
    attributes = tuple(operator.attributes.get(name) for name in _WORK)
    return operator.kind, operator.inputs, operator.outputs, attributes, operator.macs


# The attributes that the work of an operator depends on; the kernel is that of a runtime.
_WORK = ("kernel", "kernel_shape", "group")
