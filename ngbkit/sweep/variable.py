"""A variable of the dataset: one declaration, beside the field of the record that fills it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Dims = Literal["trial", "sample", "anchor", "anchor sample"]
"""``"sample"`` has the dims of a trial, and `repeat`; an anchor has no compiler."""


_SYMBOLS = {"byte": "B", "1": ""}


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable, or coordinate, of the dataset.

    Parameters
    ----------
    name, units, long_name, comment
        As the dataset has them. Units are those of UDUNITS, as the CF conventions ask for; empty for a text.
    dims
        What it has one value for.
    fills
        The field of a measurement, or of a failure's facts, that it is read from; empty where it is computed.
    symbol
        The unit as people read it, where it is not that of `units`.
    """

    name: str
    units: str
    long_name: str
    comment: str = ""
    dims: Dims = "trial"
    fills: str = ""
    symbol: str = ""

    @property
    def unit_symbol(self) -> str:
        """The unit as tables and panels write it; empty for a text or a pure number."""
        return self.symbol or _SYMBOLS.get(self.units, self.units)

    @property
    def attrs(self) -> dict[str, str]:
        """The attributes that every variable carries."""
        comment = {"comment": self.comment} if self.comment else {}
        return {"units": self.units, "long_name": self.long_name, **comment}


def variable(name: str, units: str, long_name: str, comment: str = "", *, default: Any = None) -> Any:
    """Declare a field of a record that fills a variable; by `MISSING` as its default, one that each record has."""
    return field(default=default, metadata={"variable": Variable(name, units, long_name, comment)})
