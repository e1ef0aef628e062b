"""What every figure is drawn with: its rows inside it, one colour a compiler, one shape a way to fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ngbkit.figures import theme

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

WHY = "#B3261E"
"""The colour of a written reason."""

_DIGITS = "%.6g"


def inline(frame: pd.DataFrame) -> alt.InlineData:
    """The rows of a frame, inside the figure: as CSV, which is a third of the same as JSON.

    A NaN is a null, so that a line breaks there. Texts stay texts, whatever they look like; a truth is 0 or 1.
    """
    import altair as alt
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    plain = frame.astype({name: int for name, column in frame.items() if is_bool_dtype(column)})
    text = plain.to_csv(index=False, float_format=_DIGITS, lineterminator="\n")
    kinds = {str(name): "number" if is_numeric_dtype(column) else "string" for name, column in plain.items()}
    return alt.InlineData(values=text, format=alt.CsvDataFormat(type="csv", parse=kinds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How the lines and the statuses of a figure are told apart.

    Parameters
    ----------
    labels
        Of the lines, in the order of the legend.
    statuses
        Those of trials without a result.
    of_what
        What has a line of its own: ``"compiler"`` or ``"network"``.
    """

    labels: Sequence[str]
    statuses: Sequence[str]
    of_what: str = "compiler"

    @classmethod
    def of(cls, frame: pd.DataFrame, of_what: str = "compiler") -> Look:
        """Of the rows of a figure, with the columns `of_what` and ``status``."""
        there = set(frame["status"])
        statuses = [name for name in theme.STATUS_SHAPES if name in there]
        return cls(labels=list(dict.fromkeys(frame[of_what])), statuses=statuses, of_what=of_what)

    def colour(self, *, symbol: str = "stroke", **how: Any) -> alt.Color:
        """A colour a line; its legend shows a stroke, or the `symbol` that is asked for."""
        import altair as alt

        colours = theme.colours if self.of_what == "compiler" else theme.network_colours
        scale = alt.Scale(domain=self.labels, range=list(colours(self.labels).values()))
        legend = alt.Legend(symbolType=symbol, symbolSize=90, symbolOpacity=1)
        if symbol == "stroke":
            legend = alt.Legend(symbolType=symbol, symbolStrokeWidth=3, symbolSize=200, symbolOpacity=1)
        return alt.Color(f"{self.of_what}:N", scale=scale, title=self.of_what, **{"legend": legend, **how})

    def dash(self) -> alt.StrokeDash:
        """A dash a set of options of one compiler; of networks, one as soon as their colours come again."""
        import altair as alt

        dashes = theme.dashes if self.of_what == "compiler" else theme.network_dashes
        scale = alt.Scale(domain=self.labels, range=list(dashes(self.labels).values()))
        return alt.StrokeDash(f"{self.of_what}:N", scale=scale, title=self.of_what)

    def shape(self) -> alt.Shape:
        """A shape a way to fail."""
        import altair as alt

        scale = alt.Scale(domain=self.statuses, range=[theme.STATUS_SHAPES[name] for name in self.statuses])
        return alt.Shape("status:N", scale=scale, title="no result")


def whole(values: Iterable[float]) -> list[int]:
    """Batch sizes, sorted, each once."""
    return sorted({int(value) for value in values})
