"""What a site says of each figure: of which notebook, cell, dataset and sweep it is, so that it can be checked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError

FILE = "ngbkit-site.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a site.

    Parameters
    ----------
    id
        Names its element in the page and its files.
    notebook
        The stem of its notebook.
    cell
        The place of the cell that drew it.
    code
        The hash of that cell's source.
    spec
        The hash of its specification.
    told
        What the figure says of itself: see `ngbkit.figures.provenance.traced`; empty of one that ngbkit did not draw.
    title
        What stands above it.
    """

    id: str
    notebook: str
    cell: int
    code: str
    spec: str
    told: dict[str, Any]
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a site holds.

    Parameters
    ----------
    title
        Of the site.
    version
        Of ngbkit, when it was built.
    notebooks
        The stems of its notebooks, in order.
    figures
        All of its figures.
    """

    title: str
    version: str
    notebooks: tuple[str, ...]
    figures: tuple[Figure, ...]

    def write(self, site: Path) -> Path:
        """Write it into a site."""
        target = site / FILE
        target.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")
        return target

    @classmethod
    def read(cls, site: Path) -> Manifest:
        """That of a site.

        Raises
        ------
        UsageError
            The folder holds no site of this ngbkit's.
        """
        try:
            data = json.loads((site / FILE).read_text())
            if data.pop("format") != FORMAT:
                raise KeyError("format")
            figures = tuple(Figure(**one) for one in data.pop("figures"))
            return cls(**{**data, "notebooks": tuple(data["notebooks"])}, figures=figures)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{site} holds no site that this ngbkit can read: {error}. `ngbkit publish notebooks/ -o site/` builds "
                "one."
            ) from error
