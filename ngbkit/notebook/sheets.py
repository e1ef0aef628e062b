"""Rows that have much to say, one below the other."""

from __future__ import annotations

from ngbkit.commands import listing
from ngbkit.notebook.display import Listing


class Sheets(Listing):
    """Rows of `ngbkit.commands.listing`, a heading and its lines each. Parameters are those of `Listing`."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return listing.to_html_sheets(self.rows, self.empty)

    def __repr__(self) -> str:
        return listing.to_sheets(self.rows, self.empty)
