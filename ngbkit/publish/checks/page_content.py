"""Checks of pages: the figures with their captions, and the tables and sentences that follow from a dataset."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ngbkit.errors import NgbkitError
from ngbkit.figures import statements
from ngbkit.publish import pages
from ngbkit.publish.checks.check import CheckedItem, SiteCheck, VerifiedSite, parse_json
from ngbkit.publish.checks.drawings import list_sources
from ngbkit.publish.checks.page_parser import PageElement, find_difference, parse_page
from ngbkit.publish.manifest import FIGURES, SiteFigure
from ngbkit.workloads.base import hash_json


def _check_figures(site: VerifiedSite) -> Iterator[CheckedItem]:
    if site.is_archive:
        return
    for name in site.manifest.notebooks:
        page = site.parse_page(name)
        expected = {figure.id: figure for figure in site.manifest.figures if figure.notebook == name}
        if page is None:
            yield CheckedItem(f"{name}.html", "it is missing")
            continue
        elements = {element.id: element for element in page if element.provenance is None}
        sources = list_sources(site.read_json(f"notebooks/{name}.ipynb")) or []
        for identifier in sorted(elements.keys() | expected.keys()):
            path = f"{name}.html#{identifier}"
            if identifier not in elements:
                yield CheckedItem(path, "the manifest has this figure, and the page does not show it")
            elif identifier not in expected:
                yield CheckedItem(path, "the page shows this figure, and the manifest does not have it")
            else:
                yield CheckedItem(path, _compare_figure(elements[identifier], expected[identifier], sources, site))


def _compare_figure(element: PageElement, figure: SiteFigure, sources: list[str], site: VerifiedSite) -> str:
    spec = site.read_json(f"{FIGURES}/{figure.id}.json")
    code = next((source for source in sources if hash_json(source) == figure.code), None)
    if not isinstance(spec, dict) or code is None:
        return "its specification or its cell is missing"
    if parse_json(element.spec.encode()) != spec:
        return "the page draws another specification"
    try:
        (expected,) = parse_page(pages.render_figure(figure, spec, code))
    except (NgbkitError, ValueError, TypeError, LookupError) as error:
        return f"its specification cannot be drawn: {error}"
    return find_difference(element, expected)


def _check_statements(site: VerifiedSite) -> Iterator[CheckedItem]:
    if site.is_archive:
        return
    reason = site.find_other_version("ngbkit", "pandas", "numpy", "xarray")
    for name in site.manifest.notebooks:
        path = f"{name}.html"
        elements = [element for element in site.parse_page(name) or [] if element.provenance is not None]
        expected = [statement for statement in site.manifest.statements if statement.notebook == name]
        # The findings of a page are at its beginning as well.
        listed = {hash_json(statement.provenance) for statement in expected}
        present = {hash_json(parse_json((element.provenance or "").encode())) for element in elements}
        if listed != present:
            verb = "lacks" if listed - present else "has"
            yield CheckedItem(path, f"it {verb} a table or a sentence, unlike the manifest")
        stems = {digest: stem for statement in expected for digest, stem in statement.datasets.items()}
        for element in elements:
            provenance = parse_json((element.provenance or "").encode())
            yield CheckedItem(path, obstacle=reason) if reason else _compare(path, element, provenance, stems, site)


def _compare(
    path: str, element: PageElement, provenance: Any, stems: Mapping[str, str], site: VerifiedSite
) -> CheckedItem:
    """Render a statement again from its dataset, and compare its texts."""
    try:
        data = site.datasets[stems[provenance["dataset"]]]
        name, arguments = provenance["figure"], provenance["arguments"]
    except (TypeError, LookupError):
        return CheckedItem(path, obstacle="the dataset of a table or sentence cannot be read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            html = statements.render(name, data, arguments)
    except (NgbkitError, TypeError, ValueError, LookupError) as error:
        return CheckedItem(path, f"a table or sentence, {name!r}, does not follow from its dataset: {error}")
    (expected,) = parse_page(f"<div {statements.ATTRIBUTE}>{html}</div>")
    difference = find_difference(element, expected)
    call = f"{name}({json.dumps(arguments)[1:-1]})"
    return CheckedItem(path, f"{call} {difference}" if difference else "")


def _check_others(site: VerifiedSite) -> Iterator[CheckedItem]:
    for name, count in site.manifest.others.items():
        reason = "an output that no dataset binds: printed, or of another library. `ngbkit replay` executes it again"
        yield from (CheckedItem(f"{name}.html", obstacle=reason) for _ in range(0 if site.is_archive else count))
    if not site.is_archive:
        yield from (
            CheckedItem(f"{name}.html", obstacle="text of the author: only the manifest binds it")
            for name in site.manifest.notebooks
        )


CHECKS = (
    SiteCheck(name="figures in pages", binds="rendered again from its specification and its cell", run=_check_figures),
    SiteCheck(name="tables and sentences", binds="rendered again from its dataset", run=_check_statements),
    SiteCheck(name="other content of pages", binds="the manifest alone", run=_check_others),
)
