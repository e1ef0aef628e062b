"""Examples as tables: their latencies, and what one rewriting does on several runtimes."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.errors import UsageError
from ngbkit.predictor.labels.example_set import Examples

if TYPE_CHECKING:
    import pandas as pd

GAIN = 0.03
"""The share that a rewriting must gain or lose to count: less is within the noise of most machines."""


def to_frame(examples: Examples) -> pd.DataFrame:
    """The examples, one row per network.

    Returns
    -------
    pandas.DataFrame
        ``name``, ``family``, ``parent``, ``rule`` (empty for an original) and, for each runtime, the median latency in
        seconds: NaN where there is none. A runtime is named by its compiler, and by its device where there are several.
    """
    import pandas as pd

    labels = {"name": examples.names, "family": examples.families, "parent": examples.parents, "rule": examples.rules}
    seconds = dict(zip(_name_runtimes(examples), examples.seconds.T, strict=True))
    return pd.DataFrame({**{name: list(values) for name, values in labels.items()}, **seconds})


def compare_rewritings(examples: Examples, gain: float = GAIN) -> pd.DataFrame:
    """How often a rewriting that gains on one runtime gains, or loses, on another.

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
    names = _name_runtimes(examples)
    for first, second in permutations(range(len(names)), 2):
        selected = gains[(gains[:, first] > 1 + gain) & np.isfinite(gains[:, second]), second]
        if not len(selected):
            continue
        faster, slower = float(np.mean(selected > 1 + gain)), float(np.mean(selected < 1 / (1 + gain)))
        shares = {"faster": faster, "no difference": 1 - faster - slower, "slower": slower}
        rows.append({"gains on": names[first], "and on": names[second], "variants": len(selected), **shares})
    return pd.DataFrame(rows, columns=["gains on", "and on", "variants", "faster", "no difference", "slower"])


def _name_runtimes(examples: Examples) -> list[str]:
    devices = {device for device, _ in examples.runtimes}
    return [compiler if len(devices) == 1 else f"{compiler} on {device}" for device, compiler in examples.runtimes]
