"""A list whose rows are blocks of lines, one below the other, for rows of many or long values."""

from __future__ import annotations

from ngbkit.commands import listing
from ngbkit.notebook.display import Listing


class Sheets(Listing):
    """Rows of `ngbkit.commands.listing`, each as a heading and its lines."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return listing.to_html_sheets(*self.translate())

    def __repr__(self) -> str:
        return listing.to_sheets(*self.translate())
