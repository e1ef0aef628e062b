"""A variable of the dataset: one declaration, beside the field of the record that fills it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Dims = Literal["trial", "sample", "anchor sample"]
"""``"sample"`` has the dim `repeat` beside those of a trial; an anchor has no compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One variable, or coordinate, of the dataset.

    Parameters
    ----------
    name, units, long_name, comment
        As the dataset has them. Units are empty for a text.
    dims
        What it has one value for.
    fills
        The field of a measurement, or of a failure's facts, that it is read from; empty where it is computed.
    """

    name: str
    units: str
    long_name: str
    comment: str = ""
    dims: Dims = "trial"
    fills: str = ""

    @property
    def attrs(self) -> dict[str, str]:
        """The attributes that every variable carries."""
        comment = {"comment": self.comment} if self.comment else {}
        return {"units": self.units, "long_name": self.long_name, **comment}


def variable(name: str, units: str, long_name: str, comment: str = "") -> Mapping[str, Variable]:
    """Declare that a field of a record fills a variable; the metadata of a dataclass field."""
    return {"variable": Variable(name=name, units=units, long_name=long_name, comment=comment)}
