"""Checks of the datasets, of their tables as CSV, of their sweeps and environments, and of the date."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

from ngbkit.publish.archive import METADATA
from ngbkit.publish.checks.check import CheckedItem, SiteCheck, VerifiedSite
from ngbkit.publish.downloads import describe, to_csv
from ngbkit.publish.manifest import DATASETS, find_latest

# Of two numbers that are the same by another version of a library.
_TOLERANCE = 1e-9
_UNREADABLE = "its dataset cannot be read"


def _check_datasets(site: VerifiedSite) -> Iterator[CheckedItem]:
    for stem, digest in site.manifest.datasets.items():
        path = f"{DATASETS}/{stem}.nc"
        if stem not in site.datasets:
            yield CheckedItem(path, "it is missing or unreadable")
        elif site.digests[stem] != digest:
            yield CheckedItem(path, f"its hash is {site.digests[stem][:8]}…; its figures and tables have {digest[:8]}…")
        else:
            yield CheckedItem(path)


def _check_tables(site: VerifiedSite) -> Iterator[CheckedItem]:
    for stem in site.manifest.datasets:
        path = f"{DATASETS}/{stem}.csv"
        if stem not in site.datasets:
            yield CheckedItem(path, obstacle=_UNREADABLE)
        else:
            text = (site.read(path) or b"").decode(errors="replace")
            yield CheckedItem(path, _compare_csv(text, to_csv(site.datasets[stem])))


def _compare_csv(text: str, expected: str) -> str:
    """Find the first cell in which two tables differ; numbers may differ in their last digits."""
    if text == expected:
        return ""
    try:
        rows, origin = (list(csv.reader(io.StringIO(content))) for content in (text, expected))
    except csv.Error as error:
        return f"it cannot be read as CSV: {error}"
    header = origin[0] if origin else []
    for number, (row, other) in enumerate(zip_longest(rows, origin), start=1):
        if row is None or other is None or len(row) != len(other):
            return f"line {number} is {'missing' if row is None else 'added or cut'}"
        for name, cell, cell_of_data in zip_longest(header, row, other, fillvalue=""):
            if not _is_same(cell, cell_of_data):
                return f"line {number}, {name}: got {cell!r}; its dataset has {cell_of_data!r}"
    return ""


def _is_same(first: str, second: str) -> bool:
    try:
        return first == second or math.isclose(float(first), float(second), rel_tol=_TOLERANCE)
    except ValueError:
        return False


def _check_metadata(site: VerifiedSite) -> Iterator[CheckedItem]:
    for stem in site.manifest.datasets:
        path = f"{DATASETS}/{stem}.json"
        if stem not in site.datasets:
            yield CheckedItem(path, obstacle=_UNREADABLE)
            continue
        expected, parsed = describe(site.datasets[stem]), site.read_json(path)
        content = parsed if isinstance(parsed, dict) else {}
        keys = [key for key in sorted(expected.keys() | content.keys()) if not _is_equal(content, expected, key)]
        yield CheckedItem(path, f"{', '.join(keys)}: differs from the dataset" if keys else "")


def _is_equal(first: dict[str, Any], second: dict[str, Any], key: str) -> bool:
    return json.dumps(first.get(key), sort_keys=True) == json.dumps(second.get(key), sort_keys=True)


def _check_date(site: VerifiedSite) -> Iterator[CheckedItem]:
    manifest = site.manifest
    crate = site.read_json(METADATA)
    entities = crate.get("@graph", []) if isinstance(crate, dict) else []
    root = next((entity for entity in entities if isinstance(entity, dict) and entity.get("@id") == "./"), {})
    published = str(root.get("datePublished", ""))
    if not manifest.date.startswith(published) or not published:
        yield CheckedItem(METADATA, f"it has the date {published or 'none'}; the manifest has {manifest.date}")
        return
    times = [str(data.attrs.get("created", "")) for data in site.datasets.values()]
    latest = find_latest(times)
    if latest is not None and latest.isoformat() == manifest.date:
        yield CheckedItem(METADATA)
    else:
        yield CheckedItem(METADATA, obstacle="the date is not that of the data: the author chose it")


CHECKS = (
    SiteCheck(name="datasets", binds="its hash is that of its figures and tables", run=_check_datasets),
    SiteCheck(name="CSV files", binds="made again of its dataset", run=_check_tables),
    SiteCheck(name="sweeps and environments", binds="made again of its dataset", run=_check_metadata),
    SiteCheck(name="date", binds="that of the latest measurement", run=_check_date),
)
