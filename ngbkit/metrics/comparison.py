"""Two runs of one sweep, side by side: the verdict on each trial, their table and their gate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ngbkit import validation
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.metrics.compared_runs import ComparedRuns
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.gates.gate import MARGIN, Gate, build_gate
from ngbkit.metrics.metric import load_frame_metrics
from ngbkit.metrics.rendering import to_texts
from ngbkit.report import Charted, Report
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.json_values import to_json_value
from ngbkit.tabular import Texts
from ngbkit.user_text import format_count

if TYPE_CHECKING:
    import pandas as pd

# The packages that run the baseline.
_BASELINE_PACKAGES = tuple(f"{package} was " for package in ("torch", "onnxruntime", "onnxruntime-gpu"))
# The words for a metric that rises and for one that falls.
_WORDS = {"throughput": ("faster", "slower")}
_MOST_ROWS, _MOST_NOTES, _MOST_LINES, _LONG = 40, 6, 200, 8
NOT_CONCLUSIVE, NOT_CHECKED, SAME = "not conclusive", "not checked", "same measurement"
"""The verdicts on a trial that differs neither way for sure, on an unchecked one, and on one that both runs have."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Comparison(Charted):
    """Two runs of one sweep, side by side.

    Parameters
    ----------
    metric
        The compared metric.
    runs
        The names and times of the two, the pairs of their networks, and the difference of their cells.
    trials
        One row per trial that both runs measured: its labels in the first run; ``first`` and ``second`` with the ends
        of their intervals, ``change`` (the second over the first) with its own, and ``is``: ``"higher"``, ``"lower"``,
        or ``"same"`` if the intervals cannot distinguish them; ``conclusive``, false where either run had too few
        uncontended rounds, or was not checked; and ``unchecked``, why it was not, empty where it was.
    unlike
        The differences between the machines, the contracts and the files of the two, in sentences.
    incomparable
        Those of `unlike` that no gate judges: other hardware, or another contract.
    missing
        The number of trials that only one run measured.
    keys
        The columns that are labels.
    lost
        One row per trial that failed in the first run, or has no result in the second: its labels, and the ``verdict``
        of a gate, with its ``reason``.
    drift_sd
        The standard deviation, between two times, of the logarithm of a throughput over itself, which is in the
        intervals of ``change``; 0 for a ratio of trials that each run measured in the same rounds, and for throughputs
        of trials that took turns.
    left_out
        What no trial of the other run matches, in sentences.
    """

    figure = "changes"
    metric: str
    runs: ComparedRuns
    trials: pd.DataFrame
    unlike: tuple[str, ...]
    incomparable: tuple[str, ...]
    missing: int
    keys: list[str]
    lost: pd.DataFrame
    drift_sd: float
    left_out: tuple[str, ...]

    @property
    def words(self) -> tuple[str, str]:
        """The verdicts on a trial whose metric rose, and on one whose metric fell."""
        return _WORDS.get(self.metric, ("higher", "lower"))

    @property
    def verdicts(self) -> pd.Series[str]:
        """The verdict on each trial, one of `words` if that is conclusive."""
        trials, (higher, lower) = self.trials, self.words
        verdicts = trials["is"].map({"higher": higher, "lower": lower, "same": NOT_CONCLUSIVE})
        verdicts = verdicts.where(trials.index.isin(self.judged.index), NOT_CONCLUSIVE)
        return verdicts.mask(trials["unchecked"] != "", NOT_CHECKED).mask(self._is_same, SAME)

    @property
    def judged(self) -> pd.DataFrame:
        """The trials that can be judged: conclusive in both runs, with an interval in each."""
        trials = self._bounded
        return trials[trials["conclusive"].astype(bool)]

    @property
    def inconclusive(self) -> int:
        """The number of trials with intervals that are not conclusive in either run."""
        return len(self._bounded) - len(self.judged)

    def on_device(self, label: str) -> Comparison:
        """The comparison of the trials on one device, by its label in the first run."""
        trials, lost = (frame[frame["device"] == label] for frame in (self.trials, self.lost))
        return replace(self, trials=trials, lost=lost)

    def _count_changes(self) -> str:
        """Count the trials that differ beyond their intervals, and those that differ by chance."""
        judged, total = self.judged, len(self._bounded)
        counts = [int((judged["is"] == direction).sum()) for direction in ("higher", "lower")]
        parts = [f"{count} {word}" for count, word in zip(counts, self.words, strict=True) if count]
        if total > sum(counts):
            parts.append(f"{total - sum(counts)} {NOT_CONCLUSIVE}")
        by_chance = round((1 - LEVEL) * len(judged))
        number = f"about {by_chance}" if by_chance else "less than 1"
        chance = f"{100 * LEVEL:g} % intervals, of which {number} would differ by chance alone"
        return (
            f"{self.metric} of {total} trials: {', '.join(parts)} ({chance})"
            if total
            else "no trial was measured again"
        )

    @property
    def is_remeasured(self) -> bool:
        """True if any trial was measured in both runs."""
        return len(self._bounded) > 0

    @property
    def _bounded(self) -> pd.DataFrame:
        """The trials with intervals: what is compared with itself, as the baseline's speed-up, cannot differ."""
        trials = self.trials
        has_ends = [(trials[f"{run}_low"] < trials[f"{run}_high"]).to_numpy() for run in ("first", "second")]
        return trials[has_ends[0] & has_ends[1] & ~self._is_same.to_numpy()]

    @property
    def _compared(self) -> pd.DataFrame:
        """The trials without those that a metric compares with themselves, as the speed-up of the baseline."""
        trials = self.trials
        return trials[~((trials["first_low"] == trials["first_high"]) & (trials["change"] == 1))]

    @property
    def _is_same(self) -> pd.Series[bool]:
        """The trials of which both runs have the same measurement: no two agree to the last bit."""
        return self.trials["first"] == self.trials["second"]

    def gate(self, margin: float | str = MARGIN) -> Gate:
        """Judge each trial: whether it is slower by more than a margin, beyond what chance does to any trial.

        The two runs are from different times, so `metric` should be one that a slower machine does not change, such as
        ``"speedup"``: it does not show a change that slows the baseline as much. The interval of a throughput allows
        for what a machine does from minute to minute. Measure both versions in turns to see small changes:
        `ngbkit.gate`.

        Parameters
        ----------
        margin
            The slowdown that is accepted: 0.02, or ``"2%"``.

        Raises
        ------
        UsageError
            The margin is no share; the runs have other networks; or they are of other hardware or contracts.
        """
        share = validation.check("margin", validation.Margin, margin)
        if self.runs.renamed:
            before, after = next(iter(self.runs.renamed.items()))
            raise UsageError(
                f"invalid gate: got {before} in one run and {after} in the other; expected networks of the same names. "
                "Measure both in turns: `ngbkit gate`; or rename one by .assign_coords(workload=[…])."
            )
        if self.incomparable:
            raise UsageError(
                f"invalid gate: got two runs that differ by more than their code: {'; '.join(self.incomparable)}; "
                "expected two of one machine. Measure both in turns: `ngbkit gate`."
            )
        trials = self._compared
        slowdown = {"slowdown": "change", "low": "change_high", "high": "change_low"}
        judged = trials[self.keys].assign(
            before=trials["first"],
            after=trials["second"],
            **{name: 1 / trials[column] for name, column in slowdown.items()},
            rounds=trials["rounds"],
            conclusive=trials["conclusive"].astype(bool),
            reason=trials["unchecked"],
        )
        compared, warnings = f"{self.metric} of two runs", self._list_warnings()
        return build_gate(judged, self.lost, margin=share, compared=compared, warnings=warnings)

    def _list_warnings(self) -> list[str]:
        """List what weakens the verdicts of a gate."""
        baseline = [line for line in self.unlike if line.startswith(_BASELINE_PACKAGES)]
        if baseline and "compiler" in load_frame_metrics()[self.metric].relative_to:
            return [
                f"{BASELINE} itself may have changed, and every {self.metric} is over it: {'; '.join(baseline)}. "
                "Compare --metric throughput too, or measure both in turns: `ngbkit gate`."
            ]
        if self.metric == "throughput":
            return [
                f"two runs at different times differ by about {100 * self.drift_sd:.0f} % (standard "
                "deviation), which no number of rounds reduces. Measure both in turns: `ngbkit gate`."
            ]
        return []

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON."""
        return {
            "metric": self.metric,
            "trials": to_json_value(self.trials.to_dict("records")),
            "unlike": list(self.unlike),
            "missing": self.missing,
        }

    def __str__(self) -> str:
        unmeasured, failed = int(self._is_same.sum()), int((self.lost["verdict"] == "failed").sum())
        unchecked = self.trials["unchecked"][self.trials["unchecked"] != ""]
        reasons = ", or ".join(unchecked.unique())
        parts = [
            f"{unmeasured} trials are the same measurement in both" if unmeasured and self.words[0] == "faster" else "",
            f"{len(unchecked)} trials were {reasons}" if reasons else "",
            f"{failed} trials of the first run failed in the second" if failed else "",
            f"{self.missing} trials were measured in only one of the two" if self.missing else "",
        ]
        remarks, share = "; ".join(filter(None, parts)), self._count_changes()
        return f"{share}. {remarks[0].upper()}{remarks[1:]}." if remarks else f"{share}."

    def to_report(self, *, changed: bool = False, most: int | None = _MOST_ROWS) -> Report:
        """Build the sentence, the table of the trials that changed most, and the difference of the cells."""
        table = self.to_table(changed=changed)
        hidden = 0 if most is None else max(len(table) - most, 0)
        if hidden:
            sizes = table["ratio"].map(lambda change: abs(math.log(change)) if change > 0 else 0.0)
            changes = sizes.where(table["verdict"].isin(self.words), -1)
            shortened = table.iloc[sorted(changes.argsort(kind="stable")[::-1][:most])]
            shortened.attrs = {
                **table.attrs,
                "notes": [f"… and {hidden} more trials, in .to_table()", *self.list_notes()],
            }
            table = shortened
        frame = replace(to_texts(table), empty="Nothing changed beyond uncertainty.")
        lines = self.runs.difference.splitlines()
        if not lines:
            return Report(sentences=[str(self)], frames=[frame])
        counts = [sum(line[:1] == sign and line[:3] != 3 * sign for line in lines) for sign in "+-"]
        heading = f"the cells differ: {format_count(counts[0], 'line', 'lines')} added, {counts[1]} removed"
        difference = {"cells": heading, "difference": "\n".join([*lines[:_MOST_LINES], ""])}
        return Report(
            sentences=[str(self)], frames=[frame], more=Report(frames=[Texts.of_rows([difference], form="sheets")])
        )

    @property
    def is_long(self) -> bool:
        """Return whether its table is longer than a glance."""
        return len(self.trials) > _LONG

    def to_table(self, *, changed: bool = False) -> pd.DataFrame:
        """Build the table of the trials.

        Parameters
        ----------
        changed
            Leave out the trials that differ neither way for sure.

        Returns
        -------
        pandas.DataFrame
            A row per trial: its labels, its metric in both runs and their ratio, each an `Estimate` with its 95 %
            interval, and the verdict. What a metric compares with itself is left out. ``attrs`` has its title and
            notes.
        """
        import pandas as pd

        trials = self._compared.assign(verdict=self.verdicts)
        if changed:
            trials = trials[trials["verdict"].isin(self.words)]
        columns = {"first": self.runs.names[0], "second": self.runs.names[1], "change": "ratio"}
        table = pd.DataFrame({name: trials[name] for name in self.list_labels()})
        for name, title in columns.items():
            rows = zip(*(trials[f"{name}{end}"] for end in ("", "_low", "_high")), trials["conclusive"], strict=True)
            # Objects, which pandas would turn into numbers.
            table[title] = pd.Series([Estimate(*row) for row in rows], index=trials.index, dtype=object)
        table["verdict"] = trials["verdict"]
        table.attrs["title"] = self.title
        table.attrs["notes"] = self.list_notes()
        return table

    def list_labels(self) -> list[str]:
        """List the labels that tell its trials from each other: the network, the batch size, the compiler, factors."""
        usual = ("workload", "compiler", "batch_size")
        return [name for name in self.keys if name in usual or self.trials[name].nunique(dropna=False) > 1]

    @property
    def title(self) -> str:
        """Both runs with their times, and the metric: ``it3 (18:35) against it2 (18:31): throughput (samples/s)``."""
        return f"{self.runs.title}: {self.metric}{load_frame_metrics()[self.metric].unit_suffix}"

    def list_notes(self) -> list[str]:
        """List what differs between both runs, and what intervals allow for, in sentences."""
        allowance = f"intervals allow for {100 * self.drift_sd:.0f} % (standard deviation) of drift between both times"
        if self.runs.beside and (self.verdicts == NOT_CONCLUSIVE).any():
            allowance += f"; --beside {self.runs.beside} measures both in turns, without it"
        notes = [
            *self.runs.changes,
            *self.left_out,
            *self.unlike,
            *([allowance] if self.drift_sd and len(self._bounded) else []),
        ]
        hidden = len(notes) - _MOST_NOTES
        return [*notes[:_MOST_NOTES], f"… and {hidden} more, in .unlike"] if hidden > 1 else notes
