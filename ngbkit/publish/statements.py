"""Collects the tables and sentences of pages that follow from a dataset, and counts the other outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import unescape
from pathlib import Path
from typing import Any

from ngbkit.figures.statements import ATTRIBUTE
from ngbkit.publish.manifest import SiteFigure, SiteStatement
from ngbkit.publish.naming import NotebookNames

_MARK = re.compile(rf'<div {ATTRIBUTE}="([^"]*)">')
_FIGURE = '<figure class="ngb-figure"'


def collect(pages: Iterable[Path], figures: Iterable[SiteFigure]) -> tuple[list[SiteStatement], dict[str, int]]:
    """Collect the statements of pages, in order, and the number of each notebook's outputs without a provenance."""
    stems = {digest: stem for figure in figures for digest, stem in figure.datasets.items()}
    statements: list[SiteStatement] = []
    others: dict[str, int] = {}
    for page in pages:
        names = NotebookNames(page.stem)
        for cell in json.loads(page.read_text())["cells"]:
            for output in cell.get("outputs", []):
                html = "".join(output.get("data", {}).get("text/html", ""))
                provenances = [json.loads(unescape(text)) for text in _MARK.findall(html)]
                for provenance in provenances:
                    new = names.name_datasets(provenance, "".join(cell["source"]))
                    datasets = {digest: stems.setdefault(digest, stem) for digest, stem in new.items()}
                    statements.append(SiteStatement(notebook=page.stem, provenance=provenance, datasets=datasets))
                if not provenances and _FIGURE not in html and _has_content(output):
                    others[page.stem] = others.get(page.stem, 0) + 1
    return statements, others


def _has_content(output: dict[str, Any]) -> bool:
    """Return whether an output displays anything; that of a progress is empty in the end."""
    texts = [*output.get("data", {}).values(), output.get("text", "")]
    return any("".join(text).strip() if isinstance(text, (str, list)) else text for text in texts)
