"""The trials of two runs as a table, with what differs between both runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ngbkit.metrics.comparison import NOT_CONCLUSIVE, Comparison
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.metric import load_frame_metrics
from ngbkit.user_text import format_value

if TYPE_CHECKING:
    import pandas as pd

_MOST_NOTES = 6


class TabulatedComparison(Comparison):
    """Two runs of one sweep, side by side, with a table."""

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

        trials = self.trials.assign(verdict=self.verdicts)
        trials = trials[~((trials["first_low"] == trials["first_high"]) & (trials["change"] == 1))]
        if changed:
            trials = trials[trials["verdict"].isin(self.words)]
        columns = {"first": self.runs.names[0], "second": self.runs.names[1], "change": "ratio"}
        estimates = {title: _list_estimates(trials, name) for name, title in columns.items()}
        labels = {name: trials[name] for name in self.list_labels()}
        table = pd.DataFrame({**labels, **estimates, "verdict": trials["verdict"]})
        table.attrs["title"] = self.title
        table.attrs["notes"] = self.list_notes()
        return table

    def to_rows(self, *, changed: bool = False) -> list[dict[str, str]]:
        """Format the trials of `to_table` for the table of a command."""
        table = self.to_table(changed=changed)
        names = list(map(str, table.columns))
        texts = table.map(lambda value: str(value) if isinstance(value, Estimate) else format_value(value))
        return [dict(zip(names, row, strict=True)) for row in texts.itertuples(index=False)]

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


def _list_estimates(trials: pd.DataFrame, name: str) -> pd.Series[Any]:
    """List a column with its intervals as estimates, which pandas would turn into numbers."""
    import pandas as pd

    rows = zip(*(trials[f"{name}{end}"] for end in ("", "_low", "_high")), trials["conclusive"], strict=True)
    return pd.Series([Estimate(*row) for row in rows], index=trials.index, dtype=object)
