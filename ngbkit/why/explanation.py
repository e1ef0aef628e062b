"""The gap between two columns of a dataset, explained by the pieces of their network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rendering import to_texts
from ngbkit.report import Charted, Report
from ngbkit.sweep.json_values import to_json_value
from ngbkit.why.attribution import ALPHA, Attribution
from ngbkit.why.pieces import BETWEEN, COPIES, REST, Piece, PiecesPart, describe_kernels, fold, group_families
from ngbkit.why.trial_profile import TrialProfile

# Smaller shares of the gap are for the table.
_LEAST_SHARE, _MOST_PARTS = 0.15, 3
_SPECIAL = {BETWEEN: "time between kernels", COPIES: COPIES, REST: "kernels of unknown origin"}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Explanation(Charted):
    """The gap between two columns, by the pieces of their network."""

    figure = "explanation"
    network: str  # with the values of its factors
    device: str
    batch_size: int
    names: tuple[str, str]  # the labels of the two
    speedup: Estimate  # how many times as fast the first is as the second, by the timed samples
    timed_gap: Estimate  # the second's latency minus the first's in seconds, by the timed samples
    profiles: tuple[TrialProfile, TrialProfile]
    pieces: tuple[Piece, ...]  # between the tensors that both keep, in topological order; then those that are no part
    attribution: Attribution  # the times of the pieces, and their gaps

    @property
    def gains(self) -> tuple[Estimate, Estimate]:
        """The seconds of a call that each side gains in the pieces where it is surely faster: their sum hides both."""
        gaps, sure = self.attribution.gaps, self.attribution.is_guilty
        sides = [np.flatnonzero(sure & (sign * gaps > 0)) for sign in (1, -1)]
        summed = self.attribution.sum_parts([side.tolist() for side in sides])
        first, second = zip(summed.gaps, *summed.gap_intervals, strict=True)
        return Estimate(*first), Estimate(-second[0], -second[2], -second[1])

    @property
    def mapped(self) -> tuple[float, float]:
        """The share of the kernel time of each side whose origin in the network is known."""
        first, second = self.profiles
        return first.mapped_share, second.mapped_share

    def to_frame(self, depth: int | None = None) -> pd.DataFrame:
        """The pieces, one per row.

        Parameters
        ----------
        depth
            Fold pieces to modules of that depth: 1 for the blocks of a network. Default: every piece.

        Returns
        -------
        pandas.DataFrame
            From the input of the network to its output, then what is no part of it: ``part``, its name; ``computes``,
            in words; ``first_kernels`` and ``second_kernels``; ``first_s`` and ``second_s``, seconds of a call;
            ``gap_s``, the second minus the first, with ``gap_low_s`` and ``gap_high_s``; ``share`` of the gap of whole
            calls, with ``share_low`` and ``share_high``, NaN where that gap is not sure; ``guilty``, true if it
            differs beyond what a program and its copy do; ``is_network``; and ``pieces``, their number.
        """
        import pandas as pd

        parts = fold(self.pieces, depth)
        summed = self.attribution.sum_parts([part.pieces for part in parts])
        lows, highs = summed.gap_intervals
        shares, share_lows, share_highs = summed.shares
        families = [list(dict.fromkeys(self.pieces[index].family for index in part.pieces)) for part in parts]
        columns = {
            "part": [part.name for part in parts],
            "computes": [", ".join(listed[:2]) + (", …" if len(listed) > 2 else "") for listed in families],
            "first_kernels": [self._list_kernels(part, 0) for part in parts],
            "second_kernels": [self._list_kernels(part, 1) for part in parts],
            "first_s": summed.seconds[0],
            "second_s": summed.seconds[1],
            "gap_s": summed.gaps,
            "gap_low_s": lows,
            "gap_high_s": highs,
            "share": shares,
            "share_low": share_lows,
            "share_high": share_highs,
            "guilty": summed.is_guilty,
            "is_network": [part.is_network for part in parts],
            "pieces": [len(part.pieces) for part in parts],
        }
        return pd.DataFrame(columns)

    def to_report(self, most: int = 8) -> Report:
        """Build the sentence, the pieces with the largest gaps, and what weakens it."""
        return Report(sentences=[str(self)], frames=[to_texts(self.to_table(most))], notes=self.list_notes())

    def _ipython_display_(self) -> None:
        """Display the figure, whose blocks open by a click, and the table."""
        from IPython.display import display

        display(self.plot())  # type: ignore[no-untyped-call]  # IPython's own
        display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)  # type: ignore[no-untyped-call]

    def to_table(self, most: int = 10, depth: int | None = None) -> pd.DataFrame:
        """The parts with the largest gaps, for people: a row per part, with the kernels of each side."""
        import pandas as pd

        frame = self.to_frame(depth)
        count = len(frame)
        frame = frame.loc[frame["gap_s"].abs().sort_values(ascending=False, kind="stable").index[:most]]
        first, second = self.names
        rows = frame.to_dict("records")
        table = frame[["part", "computes"]].copy()
        table[f"{first} (ms)"], table[f"{second} (ms)"] = 1e3 * frame["first_s"], 1e3 * frame["second_s"]
        gaps = [
            Estimate(1e3 * row["gap_s"], 1e3 * row["gap_low_s"], 1e3 * row["gap_high_s"], bool(row["guilty"]))
            for row in rows
        ]
        table["gap (ms)"] = pd.Series(gaps, index=table.index, dtype=object)
        if frame["share"].notna().all():
            shares = [Estimate(100 * row["share"], 100 * row["share_low"], 100 * row["share_high"]) for row in rows]
            table["share (%)"] = pd.Series(shares, index=table.index, dtype=object)
        table[f"kernels of {first}"], table[f"kernels of {second}"] = frame["first_kernels"], frame["second_kernels"]
        table.attrs = {
            "title": f"{second} minus {first}: the largest of {count} parts",
            "notes": [f"{100 * LEVEL:g} % intervals; ?: no more than a program and its copy may differ"],
        }
        return table

    def list_notes(self) -> list[str]:
        """List what weakens the explanation, and how far its parts agree with the timed samples."""
        first, second = self.names
        total, timed = _scale(self.attribution.total_estimate), _scale(self.timed_gap)
        gains = [_scale(gain) for gain in self.gains]
        differs = max(total.low, timed.low) > min(total.high, timed.high)
        disagreement = " These intervals exclude each other: the machine changed between them. Measure again."
        shares = " and ".join(
            f"{100 * share:.3g} % of {name}" for share, name in zip(self.mapped, self.names, strict=True)
        )
        cost = " and ".join(
            f"{100 * max(profile.cost, 0.0):.1f} % in {name}"
            for profile, name in zip(self.profiles, self.names, strict=True)
        )
        return [
            f"The parts sum to {total} ms ({second} minus {first}); the gap of the timed samples is {timed} ms."
            f"{disagreement if differs else ''} The profilers slowed calls by {cost}, which is taken out.",
            f"Where it is surely faster, {first} gains {gains[0]} ms, and {second} {gains[1]} ms: a total hides both.",
            f"Kernel time mapped to the network: {shares}.",
            f"A part is called guilty where it differs beyond chance and beyond what two processes of one program do; "
            f"unchanged code has any such part in at most {100 * ALPHA:g} % of comparisons.",
            *dict.fromkeys(note for profile in self.profiles for note in profile.notes),
        ]

    def to_json(self) -> dict[str, Any]:
        """All of it but the profiles, as plain JSON."""
        columns = {
            "network": self.network,
            "device": self.device,
            "batch_size": self.batch_size,
            "first": self.names[0],
            "second": self.names[1],
            "sentence": str(self),
            "speedup": [float(self.speedup), self.speedup.low, self.speedup.high],
            "gap_s": self.attribution.total,
            "gains_s": [[float(gain), gain.low, gain.high] for gain in self.gains],
            "timed_gap_s": [float(self.timed_gap), self.timed_gap.low, self.timed_gap.high],
            "mapped": list(self.mapped),
            "pieces": self.to_frame().to_dict("records"),
            "notes": self.list_notes(),
        }
        return dict(to_json_value(columns))

    def __str__(self) -> str:
        first, second = self.names
        place = f"{self.network} (batch {self.batch_size}, {self.device})"
        speedup = self.speedup
        if not speedup.low > 1 and not speedup.high < 1:
            return f"{first} and {second} do not differ surely on {place}: {first} is {speedup} times as fast."
        sides = (0, 1) if speedup > 1 else (1, 0)
        faster, slower = (self.names[side] for side in sides)
        gain = speedup if speedup > 1 else Estimate(1 / speedup, 1 / speedup.high, 1 / speedup.low, speedup.conclusive)
        heading = f"{faster} is {gain} times as fast as {slower} on {place}"
        if not speedup.conclusive:
            return f"{heading}; no cause is named, since rounds were contended or outputs were not checked."
        parts = group_families(self.pieces)
        summed = self.attribution.sum_parts([part.pieces for part in parts])
        shares, lows, highs = summed.shares
        guilty = [index for index in np.argsort(-np.abs(shares)) if summed.is_guilty[index]]
        causes = [index for index in guilty if shares[index] >= _LEAST_SHARE][:_MOST_PARTS]
        against = [index for index in guilty if shares[index] <= -_LEAST_SHARE][:1]
        if not causes:
            return f"{heading}; no kind of operator is surely responsible: the gap is spread over the network."
        texts = [
            f"{_format_share(shares[index], lows[index], highs[index])} of the gap is "
            f"{_SPECIAL.get(parts[index].name, parts[index].name)}{self._describe_fusion(parts[index], sides)}"
            for index in causes
        ]
        texts += [
            f"{slower} is faster in {_SPECIAL.get(parts[index].name, parts[index].name)} "
            f"({_format_share(-shares[index], -highs[index], -lows[index])} of the gap)"
            for index in against
        ]
        return f"{heading}: {'; '.join(texts)}."

    @property
    def regression(self) -> str:
        """The piece that surely takes longest longer in the second column, in words; empty where none does."""
        gaps, is_guilty = self.attribution.gaps, self.attribution.is_guilty
        index = int(np.argmax(np.where(is_guilty, gaps, -np.inf)))
        if not is_guilty[index] or gaps[index] <= 0:
            return ""
        piece = self.pieces[index]
        before, after = (1e3 * self.attribution.seconds[side, index] for side in (0, 1))
        shares, lows, highs = self.attribution.shares
        share = f", {_format_share(shares[index], lows[index], highs[index])} of the gap" if shares[index] > 0 else ""
        return f"{piece.name} ({f'{piece.family}: ' if piece.is_network else ''}{before:.3g} to {after:.3g} ms{share})"

    def _describe_fusion(self, part: PiecesPart, sides: Sequence[int]) -> str:
        """Describe the kernels of a part on two sides, the faster one first, where the slower one has more."""
        if not part.is_network:
            return ""
        pieces = [self.pieces[index] for index in part.pieces]
        faster, slower = (self.names[side] for side in sides)
        fewer, more = (sum(len(piece.kernels[side]) for piece in pieces) for side in sides)
        if fewer <= len(pieces) < more and any(len(piece.operators) > 1 for piece in pieces):
            return f", which {faster} fuses and {slower} does not"
        return f", in {fewer} kernels of {faster} and {more} of {slower}" if fewer < more else ""

    def _list_kernels(self, part: PiecesPart, side: int) -> str:
        places = [place for index in part.pieces for place in self.pieces[index].kernels[side]]
        return describe_kernels([self.profiles[side].kernels[place].kind for place in places])


def _format_share(share: float, low: float, high: float) -> str:
    return f"{Estimate(100 * share, 100 * low, 100 * high)} %"


def _scale(seconds: Estimate) -> Estimate:
    """Return a time in milliseconds."""
    return Estimate(1e3 * seconds, 1e3 * seconds.low, 1e3 * seconds.high, seconds.conclusive)
