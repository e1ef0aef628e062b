"""The pieces of a network over a condition: which of them loses when the batch, the width or the depth grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.device.timing import intervals
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics.draws import SEED
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.explanation.attribution import KERNEL_SD, PROCESS_SD, Floats, draw_means, sum_kernels
from ngbkit.metrics.explanation.blocks import fold, group_families
from ngbkit.metrics.explanation.pieces import Piece, cut
from ngbkit.metrics.explanation.trial_profile import TrialProfile
from ngbkit.metrics.rendering import to_texts
from ngbkit.report import Charted, Report
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import format_value

if TYPE_CHECKING:
    import pandas as pd

# Parts below this share of a call are no finding.
_LEAST_SHARE = 0.02


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ExplainedGrowth(Charted):
    """Two columns over the levels of a condition, by the pieces that all of their programs share.

    Parameters
    ----------
    network, device
        What was measured, and where.
    names
        The labels of both columns.
    over, levels
        The condition, such as ``"batch_size"``, and its levels in order.
    pieces
        The parts of the network that all programs share.
    seconds
        The mean seconds of each piece, ``(2, levels, pieces)``.
    draws
        Replicates of these, ``(2, levels, draws, pieces)``.
    """

    figure = "growth"
    network: str
    device: str
    names: tuple[str, str]
    over: str
    levels: tuple[Any, ...]
    pieces: tuple[Piece, ...]
    seconds: Floats
    draws: Floats

    def to_frame(self, depth: int | None = None) -> pd.DataFrame:
        """The parts at each level, one per row.

        Parameters
        ----------
        depth
            Fold pieces to modules of that depth; 0 groups them by what they compute. Default: every piece.

        Returns
        -------
        pandas.DataFrame
            ``part``; the level, under the name of the condition; ``first_s`` and ``second_s``, seconds of a call;
            ``speedup`` of the first over the second with ``speedup_low`` and ``speedup_high``; ``bsr``, that speed-up
            over the one at the first level, with ``bsr_low`` and ``bsr_high``: the batch scaling ratio of the part if
            the condition is the batch size (RTR_first over RTR_second); and ``share`` of the first column's call.
        """
        import pandas as pd

        parts = group_families(self.pieces) if depth == 0 else fold(self.pieces, depth)
        rows: list[dict[str, Any]] = []
        for part in parts:
            seconds = self.seconds[..., list(part.pieces)].sum(axis=-1)
            draws = self.draws[..., list(part.pieces)].sum(axis=-1)
            with np.errstate(divide="ignore", invalid="ignore"):  # of a part that a side executes nothing of
                speedups, speedup_draws = seconds[1] / seconds[0], draws[1] / draws[0]
                ratios, ratio_draws = speedups / speedups[0], speedup_draws / speedup_draws[0]
            calls = self.seconds.sum(axis=-1)
            for place, level in enumerate(self.levels):
                ends = intervals.compute_interval(speedup_draws[place], LEVEL)
                ratio_ends = intervals.compute_interval(ratio_draws[place], LEVEL)
                rows.append(
                    {
                        "part": part.name,
                        self.over: level,
                        "first_s": seconds[0, place],
                        "second_s": seconds[1, place],
                        "speedup": speedups[place],
                        "speedup_low": float(ends[0]),
                        "speedup_high": float(ends[1]),
                        "bsr": ratios[place],
                        "bsr_low": float(ratio_ends[0]) if place else 1.0,
                        "bsr_high": float(ratio_ends[1]) if place else 1.0,
                        "share": seconds[0, place] / calls[0, place],
                        "is_network": part.is_network,
                    }
                )
        return pd.DataFrame(rows)

    def to_table(self, depth: int | None = 0) -> pd.DataFrame:
        """The speed-up of each part at each level, for people; by default a row for each kind of operator."""
        import pandas as pd

        frame = self.to_frame(depth)
        frame = frame[frame.groupby("part")["share"].transform("max") >= _LEAST_SHARE]
        columns: dict[str, Any] = {}
        for level, rows in frame.groupby(self.over, sort=False):
            columns[f"{self.over.replace('_', ' ')} {level}"] = _estimate_parts(rows, "speedup")
        columns["BSR"] = _estimate_parts(frame[frame[self.over] == self.levels[-1]], "bsr")
        table = pd.DataFrame(columns).rename_axis("part").reset_index()
        table.attrs = {
            "title": f"speed-up of {self.names[0]} over {self.names[1]} by part of {self.network}",
            "notes": [
                f"BSR: the speed-up at the last level over that at the first; parts of {_LEAST_SHARE:.0%} of a call"
            ],
        }
        return table

    def to_report(self, depth: int | None = 0) -> Report:
        """Build the sentence, and the table of the parts."""
        return Report(sentences=[str(self)], frames=[to_texts(self.to_table(depth))])

    def to_json(self) -> dict[str, Any]:
        """The pieces at each level, as plain JSON."""
        columns: Mapping[str, Any] = {
            "network": self.network,
            "device": self.device,
            "first": self.names[0],
            "second": self.names[1],
            "over": self.over,
            "sentence": str(self),
            "pieces": self.to_frame().to_dict("records"),
        }
        plain: dict[str, Any] = to_json_value(columns)
        return plain

    def __str__(self) -> str:
        first, second = self.names
        frame = self.to_frame(0)
        last = frame[(frame[self.over] == self.levels[-1]) & (frame["share"] >= _LEAST_SHARE)]
        change = f"from {self.over.replace('_', ' ')} {self.levels[0]} to {format_value(self.levels[-1])}"
        heading = f"{first} over {second} on {self.network}, {change}"
        losing = last[last["bsr_high"] < 1].sort_values("bsr").to_dict("records")
        gaining = last[last["bsr_low"] > 1].sort_values("bsr", ascending=False).to_dict("records")
        texts = [
            f"{word} most in {_describe(rows[0])}"
            for word, rows in (("it loses", losing), ("it gains", gaining))
            if rows
        ]
        return f"{heading}: {'; '.join(texts) or 'no kind of operator surely gains or loses'}."


def build_growth(
    profiles: Sequence[tuple[TrialProfile, TrialProfile]], *, levels: Sequence[Any], **labels: Any
) -> ExplainedGrowth:
    """Build the growth of two columns from their profiles at each level.

    UsageError: there are fewer than two levels. MetricError: the programs have no node in common.
    """
    if len(profiles) < 2:
        raise UsageError(
            f"invalid condition: both columns were profiled at {len(profiles)} level; expected two or more. Measure "
            "others, such as -b 1,8."
        )
    flat = [profile for pair in profiles for profile in pair]
    pieces = cut(flat)
    generator = np.random.default_rng(SEED)
    seconds, draws = [], []
    for place, profile in enumerate(flat):
        times = sum_kernels(profile, pieces, place)
        is_kept = ~profile.is_outlying
        times = times[:, is_kept] if is_kept.sum() > 2 else times
        means = times.mean(axis=1)
        replicates = draw_means(times, generator)
        seconds.append(means)
        counts = np.array([len(piece.kernels[place]) for piece in pieces])
        # Of the difference between two processes, each has half of the variance.
        deviations = np.hypot(PROCESS_SD * means, KERNEL_SD * counts) / 2**0.5
        draws.append(replicates + generator.standard_normal(replicates.shape) * deviations)
    shape = (len(profiles), 2, len(pieces))
    return ExplainedGrowth(
        levels=tuple(levels),
        pieces=tuple(pieces),
        seconds=np.array(seconds).reshape(shape).transpose(1, 0, 2),
        draws=np.array(draws).reshape(len(profiles), 2, -1, len(pieces)).transpose(1, 0, 2, 3),
        **labels,
    )


def _estimate_parts(rows: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Build the ratio of each part with its interval; empty where a time is within its noise."""
    import pandas as pd

    values = [
        Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"]) if row[f"{name}_low"] > 0 else ""
        for row in rows.to_dict("records")
    ]
    return pd.Series(values, index=rows["part"], dtype=object)


def _describe(row: dict[Any, Any]) -> str:
    ratio = Estimate(row["bsr"], row["bsr_low"], row["bsr_high"])
    return f"{row['part']} (BSR {ratio}, {100 * row['share']:.0f} % of its call)"
