"""The sentences of an explanation: who is faster, the largest part of the gap, and what the other side does there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.explanation.attribution import Attribution
from ngbkit.metrics.explanation.blocks import group_families
from ngbkit.metrics.explanation.pieces import BETWEEN, COPIES, REST, Piece, list_kinds
from ngbkit.metrics.explanation.trial_profile import TrialProfile

# Smaller shares of the gap are for the table.
_LEAST_SHARE, _MOST_PARTS = 0.15, 3
_SPECIAL = {BETWEEN: "time between kernels", COPIES: COPIES, REST: "kernels of unknown origin"}


def explain_gap(
    names: tuple[str, str],
    place: str,
    speedup: Estimate,
    pieces: Sequence[Piece],
    profiles: Sequence[TrialProfile],
    attribution: Attribution,
) -> str:
    """Explain the gap between two columns at a place, such as ``"resnet18 (batch 1, cpu)"``, in a sentence."""
    first, second = names
    if not speedup.low > 1 and not speedup.high < 1:
        return f"{first} and {second} do not differ surely on {place}: {first} is {speedup} times as fast."
    sides = (0, 1) if speedup > 1 else (1, 0)
    faster, slower = (names[side] for side in sides)
    gain = speedup if speedup > 1 else Estimate(1 / speedup, 1 / speedup.high, 1 / speedup.low, speedup.conclusive)
    heading = f"{faster} is {gain} times as fast as {slower} on {place}"
    if not speedup.conclusive:
        return f"{heading}; no cause is named, since rounds were contended or outputs were not checked."
    parts = group_families(pieces)
    summed = attribution.sum_parts([part.pieces for part in parts])
    shares, lows, highs = summed.shares
    guilty = [index for index in np.argsort(-np.abs(shares)) if summed.is_guilty[index]]
    causes = [index for index in guilty if shares[index] >= _LEAST_SHARE][:_MOST_PARTS]
    against = [index for index in guilty if shares[index] <= -_LEAST_SHARE][:1]
    if not causes:
        return f"{heading}; no kind of operator is surely responsible: the gap is spread over the network."
    texts = []
    for index in causes:
        part = parts[index]
        counts = [
            len(list_kinds(profiles[side], [pieces[place].kernels[side] for place in part.pieces])) for side in sides
        ]
        is_fusible = any(len(pieces[place].operators) > 1 for place in part.pieces)
        difference = _describe_fusion(counts, len(part.pieces), is_fusible, (faster, slower)) if part.is_network else ""
        share = _format_share(shares[index], lows[index], highs[index])
        texts.append(f"{share} of the gap is {_SPECIAL.get(part.name, part.name)}{difference}")
    gains = [
        f"{slower} is faster in {_SPECIAL.get(parts[index].name, parts[index].name)} "
        f"({_format_share(-shares[index], -highs[index], -lows[index])} of the gap)"
        for index in against
    ]
    return f"{heading}: {'; '.join([*texts, *gains])}."


def name_regression(pieces: Sequence[Piece], attribution: Attribution) -> str:
    """Name the piece that surely takes longest longer in the second column; empty where there is none.

    An example: ``layer3.1.conv2 (convolutions with ReLU: 1.2 to 1.9 ms, 96 ± 3 % of the gap)``.
    """
    index = int(np.argmax(np.where(attribution.is_guilty, attribution.gaps, -np.inf)))
    if not attribution.is_guilty[index] or attribution.gaps[index] <= 0:
        return ""
    piece = pieces[index]
    before, after = (1e3 * attribution.seconds[side, index] for side in (0, 1))
    shares, lows, highs = attribution.shares
    share = f", {_format_share(shares[index], lows[index], highs[index])} of the gap" if shares[index] > 0 else ""
    return f"{piece.name} ({f'{piece.family}: ' if piece.is_network else ''}{before:.3g} to {after:.3g} ms{share})"


def _describe_fusion(counts: Sequence[int], pieces: int, is_fusible: bool, names: tuple[str, str]) -> str:
    """Describe the kernels of pieces in two runtimes, the faster one first, where the slower one has more."""
    if is_fusible and counts[0] <= pieces < counts[1]:
        return f", which {names[0]} fuses and {names[1]} does not"
    return f", in {counts[0]} kernels of {names[0]} and {counts[1]} of {names[1]}" if counts[0] < counts[1] else ""


def _format_share(share: float, low: float, high: float) -> str:
    return f"{Estimate(100 * share, 100 * low, 100 * high)} %"
