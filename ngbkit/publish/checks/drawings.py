"""Checks of figures: their specifications, the cells that drew them, their pictures, and their data."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ngbkit import figures
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError
from ngbkit.figures import pictures
from ngbkit.figures.provenance import KEY, list_parts
from ngbkit.publish.checks.check import CheckedItem, SiteCheck, VerifiedSite, parse_json
from ngbkit.publish.manifest import FIGURES, SiteFigure
from ngbkit.sweep.json_values import to_json_value
from ngbkit.workloads.base import hash_json

_CHANGED = "it is missing, or was changed since the figure was drawn"


def _check_specifications(site: VerifiedSite) -> Iterator[CheckedItem]:
    for figure in site.manifest.figures:
        path = f"{FIGURES}/{figure.id}.json"
        spec = site.read_json(path)
        if not isinstance(spec, dict) or hash_json(spec) != figure.spec:
            yield CheckedItem(path, _CHANGED)
        elif _get_provenance(spec) != figure.provenance:
            yield CheckedItem(path, "it has another provenance than the manifest")
        else:
            yield CheckedItem(path, _compare_attributes(figure, site))


def _get_provenance(spec: Mapping[str, Any]) -> Any:
    usermeta = spec.get("usermeta")
    return usermeta.get(KEY, {}) if isinstance(usermeta, dict) else {}


def _compare_attributes(figure: SiteFigure, site: VerifiedSite) -> str:
    """Compare the run, the sweep and the environments of a figure's provenance with its dataset."""
    for part in list_parts(figure.provenance):
        data = site.datasets.get(figure.datasets.get(part.get("dataset", ""), ""))
        if data is None:
            continue
        for name, empty in (("sweep", "null"), ("environments", "{}")):
            if part.get(name) != hash_json(parse_json(str(data.attrs.get(name) or empty).encode())):
                return f"its provenance has another {name.removesuffix('s')} than its dataset"
        if part.get("run_id", "") != data.attrs.get("run_id", ""):
            return "its provenance has another run than its dataset"
    return ""


def _check_code(site: VerifiedSite) -> Iterator[CheckedItem]:
    for name in site.manifest.notebooks:
        path = f"notebooks/{name}.ipynb"
        sources = list_sources(site.read_json(path))
        if sources is None:
            yield CheckedItem(path, "it is missing or unreadable")
            continue
        numbers = {figure.code: figure.cell for figure in site.manifest.figures if figure.notebook == name}
        cells = {hash_json(source) for source in sources}
        missing = sorted(cell for code, cell in numbers.items() if code not in cells)
        yield CheckedItem(path, f"cell {missing[0]} drew a figure, and was changed since" if missing else "")


def list_sources(notebook: Any) -> list[str] | None:
    """List the sources of a notebook's cells; None if it is no notebook."""
    try:
        return ["".join(cell["source"]) for cell in notebook["cells"]]
    except (TypeError, LookupError):
        return None


def _check_drawings(site: VerifiedSite) -> Iterator[CheckedItem]:
    for figure in site.manifest.figures:
        path, spec = f"{FIGURES}/{figure.id}.json", site.read_json(f"{FIGURES}/{figure.id}.json")
        data = site.datasets.get(figure.datasets.get(str(figure.provenance.get("dataset")), ""))
        if not isinstance(spec, dict):
            yield CheckedItem(path, _CHANGED)
        elif "figure" not in figure.provenance:
            kind = "a composition of figures" if figure.provenance else "no figure of ngbkit"
            yield CheckedItem(path, obstacle=f"it is {kind}: its hash alone binds it")
        elif data is None:
            yield CheckedItem(path, obstacle="its dataset cannot be read")
        elif reason := site.find_other_version("ngbkit", "altair"):
            yield CheckedItem(path, obstacle=reason)
        else:
            yield _compare_drawing(path, spec, figure.provenance, data)


def _compare_drawing(path: str, spec: dict[str, Any], provenance: Mapping[str, Any], data: Data) -> CheckedItem:
    """Draw a figure again from its dataset, and compare its specification."""
    name, arguments = provenance["figure"], provenance.get("arguments")
    if name not in figures.list_figures():
        return CheckedItem(path, obstacle="a function of the notebook drew it: its hash alone binds it")
    if not isinstance(arguments, dict):
        return CheckedItem(path, "its provenance has no arguments")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            drawing = getattr(figures, name)(data, **arguments).to_dict()
    except (NgbkitError, TypeError, ValueError, LookupError) as error:
        return CheckedItem(path, obstacle=f"it cannot be drawn again: {' '.join(str(error).split())[:100]}")
    first, second = (_to_comparable(each) for each in (spec, drawing))
    if first == second:
        return CheckedItem(path)
    commit = drawing.get("usermeta", {}).get(KEY, {}).get("drawn_at")
    if commit != provenance.get("drawn_at"):
        return CheckedItem(path, obstacle="it was drawn at another commit of ngbkit")
    keys = sorted(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    return CheckedItem(path, f"drawn again from its dataset, it has another {', '.join(keys)}")


def _to_comparable(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a specification to what it draws: plain JSON without its provenance."""
    plain: dict[str, Any] = json.loads(json.dumps(to_json_value(spec), sort_keys=True))
    plain.pop("usermeta", None)
    return plain


def _check_pictures(site: VerifiedSite) -> Iterator[CheckedItem]:
    reason = site.find_other_version("vl-convert-python", "pillow", "pypdf")
    for figure in site.manifest.figures:
        spec = site.read_json(f"{FIGURES}/{figure.id}.json")
        paths = {kind: f"{FIGURES}/{figure.id}{kind}" for kind in pictures.KINDS}
        if reason or not isinstance(spec, dict):
            yield from (CheckedItem(path, obstacle=reason or "it has no specification") for path in paths.values())
            continue
        try:
            expected = pictures.render(spec)
        except (NgbkitError, ValueError, TypeError, LookupError) as error:
            yield from (CheckedItem(path, f"its specification cannot be drawn: {error}") for path in paths.values())
            continue
        for kind, path in paths.items():
            is_equal = site.read(path) == expected[kind]
            yield CheckedItem(path, "" if is_equal else "it is not the picture of its specification")


CHECKS = (
    SiteCheck(name="notebooks", binds="its cells are those that drew the figures", run=_check_code),
    SiteCheck(
        name="specifications",
        binds="its hash and provenance are those of the manifest and of its dataset",
        run=_check_specifications,
    ),
    SiteCheck(name="figures", binds="drawn again from its dataset", run=_check_drawings),
    SiteCheck(name="pictures", binds="drawn again from its specification", run=_check_pictures),
)
