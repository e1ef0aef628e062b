"""The manifest of a site: its files by their hashes, and the origin of each figure and statement, for verification."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from ngbkit import validation
from ngbkit.errors import UsageError
from ngbkit.figures import pictures
from ngbkit.figures.provenance import list_parts
from ngbkit.runs.recordings import MANIFEST
from ngbkit.validation import Check, Count, Line, integer, text

FILE, SIGNATURE = MANIFEST, f"{MANIFEST}.sig"
FORMAT = 1

FIGURES, DATASETS = "_static/figures", "_static/datasets"
"""Folders of a site and of its archive."""

DATE_VARIABLE = "SOURCE_DATE_EPOCH"
"""The environment variable that sets the date of reproducible builds, in seconds since the epoch."""

_FIGURE_KINDS, _DATASET_KINDS = (*pictures.KINDS, ".json"), (".nc", ".csv", ".json")
_MOST_BYTES = 100_000_000


def _parse_path(value: Any) -> str:
    """Parse the path of a file within a site, which leads out of no folder."""
    path = PurePosixPath(validation.parse(str, value))
    if path.is_absolute() or ".." in path.parts or "\\" in value or str(path) != value or not path.name:
        raise ValueError
    return str(path)


def _parse_files(value: Any) -> dict[str, str]:
    digests: dict[str, str] = validation.parse(dict[str, _Sha256], value)
    return {validation.parse(_SitePath, path): digest for path, digest in digests.items()}


def _parse_provenance(value: Any) -> dict[str, Any]:
    """Parse the provenance of a figure or a statement, whose parts are objects with hashes of datasets."""
    provenance: dict[str, Any] = validation.parse(dict[str, Any], value)
    parts = validation.parse(list[dict[str, Any]], provenance.get("parts", [provenance]))
    validation.parse(list[_Digest], [part["dataset"] for part in parts if "dataset" in part])
    validation.parse(list[str], [part[key] for part in parts for key in ("figure", "run_id") if key in part])
    return provenance


def _parse_date(value: Any) -> str:
    date = validation.parse(str, value)
    if datetime.fromisoformat(date).tzinfo is None:
        raise ValueError
    return str(date)


# A zip has dates from 1980 to 2107.
_Seconds = Annotated[int, integer(315532800, 4354819199)]
_Digest = Annotated[str, text(r"[0-9a-f]{32}", "32 hex digits")]
_Sha256 = Annotated[str, text(r"[0-9a-f]{64}", "64 hex digits")]
_Version = Annotated[str, text(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?", "a version")]
_Name = Annotated[str, text(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]*", "a name without a slash")]
_SitePath = Annotated[str, Check(_parse_path, "the path of a file within the site")]
_Files = Annotated[dict[str, str], Check(_parse_files, "the SHA-256 of each file by its path")]
_Provenance = Annotated[dict[str, Any], Check(_parse_provenance, "a provenance, or its parts")]
_Date = Annotated[str, Check(_parse_date, "a time with its zone in the ISO format")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteStatement:
    """A table or a sentence of a page that follows from a dataset: see `ngbkit.figures.statements`."""

    notebook: _Name  # the stem of its notebook
    provenance: _Provenance
    datasets: dict[str, _Name]  # the stem of the files of its dataset, by hash

    def list_files(self) -> list[str]:
        """List the files of its dataset, as paths within the site."""
        return [f"{DATASETS}/{stem}{kind}" for stem in self.datasets.values() for kind in _DATASET_KINDS]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteFigure:
    """A figure of a site."""

    id: _Name  # of its element in the page, and the stem of its files: see `ngbkit.publish.pages.NotebookNames`
    notebook: _Name  # the stem of its notebook
    cell: Count  # the index of the cell that drew it
    code: _Digest  # the hash of the cell's source
    spec: _Digest  # the hash of the figure's specification
    provenance: _Provenance  # see `ngbkit.figures.provenance`; empty for a figure that ngbkit did not draw
    datasets: dict[str, _Name]  # the stem of the files of each of its datasets, by hash
    title: str
    paper: tuple[str, ...] = ()  # the ends of the names of its files for a paper

    def list_files(self) -> list[str]:
        """List its pictures, also for a paper, its specification and its datasets, as paths of the site."""
        return [
            *(f"{FIGURES}/{self.id}{kind}" for kind in (*_FIGURE_KINDS, *self.paper)),
            *(f"{DATASETS}/{stem}{kind}" for stem in self.datasets.values() for kind in _DATASET_KINDS),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The title, notebooks, figures, statements and files of a site."""

    title: str
    version: _Version  # of ngbkit, when it built the site
    date: _Date  # of its data: see `find_date`
    notebooks: tuple[_Name, ...]  # their stems, in order
    figures: tuple[SiteFigure, ...]
    statements: tuple[SiteStatement, ...] = ()
    others: dict[str, Count] = field(default_factory=dict)  # the number of outputs without a provenance, by notebook
    versions: dict[str, Line] = field(default_factory=dict)  # of the packages that drew the figures
    files: _Files = field(default_factory=dict)  # the SHA-256 of every other file of the site, by path

    @property
    def parts(self) -> list[SiteFigure | SiteStatement]:
        """The figures and the statements."""
        return [*self.figures, *self.statements]

    @property
    def datasets(self) -> dict[str, str]:
        """The hash of each dataset, by the stem of its files."""
        return {stem: digest for part in self.parts for digest, stem in part.datasets.items()}

    def write(self, site: Path) -> Path:
        """Write the manifest into a site."""
        target = site / FILE
        target.write_text(json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")
        return target

    @classmethod
    def read(cls, site: Path) -> Manifest:
        """Read the manifest of a site of an unknown author; UsageError if it is missing or damaged."""
        try:
            if (site / FILE).stat().st_size > _MOST_BYTES:
                raise ValueError(f"it is larger than {_MOST_BYTES:,} bytes")
            data = json.loads((site / FILE).read_text(encoding="utf-8"))
            if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
                raise ValueError(f"it is no manifest of format {FORMAT}")
            manifest: Manifest = validation.parse(cls, data)
            if fault := next(_list_faults(manifest), ""):
                raise ValueError(fault)
        except (OSError, ValueError, RecursionError) as error:
            raise UsageError(
                f"{site} contains no site that this ngbkit can read: {' '.join(str(error).split())}. "
                "`ngbkit publish notebooks/ -o site/` builds one."
            ) from error
        return manifest


def find_date(times: Iterable[str]) -> datetime:
    """Find the date of a site: that of `SOURCE_DATE_EPOCH`, or of the latest of its datasets, or else today."""
    if epoch := os.environ.get(DATE_VARIABLE):
        seconds = validation.check(DATE_VARIABLE, _Seconds, int(epoch) if epoch.isdecimal() else epoch)
        return datetime.fromtimestamp(seconds, timezone.utc)
    today = datetime.now(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    return find_latest(times) or today


def find_latest(times: Iterable[str]) -> datetime | None:
    """Find the latest date of datasets; None without any."""
    moments = []
    for created in times:
        # A dataset of another program may have any text, or none.
        with suppress(ValueError):
            time = datetime.fromisoformat(created)
            moments.append(time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc))
    return max(moments, default=None)


def _list_faults(manifest: Manifest) -> Iterator[str]:
    """Yield the contradictions of a manifest."""
    ids = [figure.id for figure in manifest.figures]
    if len({*ids}) < len(ids):
        yield "two figures have one id"
    for part in manifest.parts:
        if part.notebook not in manifest.notebooks:
            yield f"it has no notebook {part.notebook!r}, which a figure or a statement names"
        for item in list_parts(part.provenance):
            if item.get("dataset") and item["dataset"] not in part.datasets:
                yield f"the dataset {item['dataset']} has no files"
