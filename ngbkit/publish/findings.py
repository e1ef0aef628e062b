"""Shows the findings of a notebook below its title, linked to their place in the page."""

from __future__ import annotations

import re
from typing import Any

TAG = "findings"
"""The tag of a cell with findings; a text below a heading "Findings" needs none."""

_HEADING = re.compile(r"\s*#+\s*(?:the\s+|our\s+)?findings\b[^\n]*\n?", re.IGNORECASE)
_OPENING = '<section class="ngb-findings" aria-label="Findings"><p class="ngb-title">Findings</p>'
_ANY_HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)


def insert_summary(cells: list[dict[str, Any]]) -> None:
    """Insert the findings of later cells, a text or the tables of an output, after the first cell."""
    first = next((number for number, cell in enumerate(cells) if cell.get("outputs")), len(cells))
    summary, anchored = [], cells[:1]
    for number, cell in enumerate(cells[1:], start=1):
        if number > first and _has_findings(cell):
            anchor = f"findings-{number}"
            summary += _summarise(cell, anchor)
            anchored.append(_build_text(f'<a id="{anchor}" class="ngb-anchor"></a>', anchor))
        anchored.append(cell)
    if summary:
        summary.insert(0, _build_text(_OPENING, "findings-opening"))
        summary.append(_build_text("</section>", "findings-end"))
    cells[:] = [*anchored[:1], *summary, *anchored[1:]]


def _has_findings(cell: dict[str, Any]) -> bool:
    heads = cell["cell_type"] == "markdown" and _HEADING.match("".join(cell["source"]))
    return TAG in cell["metadata"].get("tags", []) or bool(heads)


def _summarise(cell: dict[str, Any], anchor: str) -> list[dict[str, Any]]:
    """Copy the text of a cell, or the outputs of code without its figures, for the top of the page."""
    link = _build_text(f'<p class="ngb-more"><a href="#{anchor}">Where this comes from</a></p>', f"{anchor}-link")
    if cell["cell_type"] == "markdown":
        # A heading would begin a section of the page.
        text = _ANY_HEADING.sub(r"**\1**", _HEADING.sub("", "".join(cell["source"]), count=1)).strip()
        return [_build_text(text, f"{anchor}-text"), link]
    outputs = [output for output in cell["outputs"] if "ngb-figure" not in _get_html(output)]
    metadata = {**cell["metadata"], "tags": ["remove-input"]}
    return [{**cell, "id": f"{anchor}-output", "metadata": metadata, "outputs": outputs}, link]


def _get_html(output: dict[str, Any]) -> str:
    return "".join(output.get("data", {}).get("text/html", ""))


def _build_text(source: str, identifier: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": identifier, "metadata": {}, "source": source}
