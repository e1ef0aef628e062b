"""The manifest of a site: the notebook, cell, dataset and sweep of each figure, for verification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError

FILE = "ngbkit-site.json"
FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a site."""

    id: str  # of its element in the page, and the stem of its files
    notebook: str  # the stem of its notebook
    cell: int  # the index of the cell that drew it
    code: str  # the hash of the cell's source
    spec: str  # the hash of the figure's specification
    provenance: dict[str, Any]  # see `ngbkit.figures.provenance`; empty for a figure that ngbkit did not draw
    title: str

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, in which `provenance` has the key ``told``."""
        return {"told" if name == "provenance" else name: value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Figure:
        """Build a figure from plain JSON."""
        return cls(**{"provenance" if key == "told" else key: value for key, value in data.items()})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The title, notebooks and figures of a site."""

    title: str
    version: str  # of ngbkit, when it built the site
    notebooks: tuple[str, ...]  # their stems, in order
    figures: tuple[Figure, ...]

    def write(self, site: Path) -> Path:
        """Write the manifest into a site."""
        target = site / FILE
        figures = [figure.to_json() for figure in self.figures]
        target.write_text(json.dumps({"format": FORMAT, **asdict(self), "figures": figures}, indent=1) + "\n")
        return target

    @classmethod
    def read(cls, site: Path) -> Manifest:
        """Read the manifest of a site."""
        try:
            data = json.loads((site / FILE).read_text())
            if data.pop("format") != FORMAT:
                raise KeyError("format")
            figures = tuple(map(Figure.from_json, data.pop("figures")))
            return cls(**{**data, "notebooks": tuple(data["notebooks"])}, figures=figures)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"{site} contains no site that this ngbkit can read: {error}. "
                "`ngbkit publish notebooks/ -o site/` builds one."
            ) from error
