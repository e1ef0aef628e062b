"""The front page of a site, the findings of a notebook, and the reference to cite."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngbkit.publish.citation import Citation, SiteConfig
from ngbkit.publish.front import format_bibtex, format_reference, read_card, write_front
from ngbkit.publish.manifest import SiteFigure
from ngbkit.publish.pages import insert_summary
from ngbkit.publish.sanitise import clean_markdown

CITATION = Citation.parse(
    {
        "authors": [{"given-names": "Ada", "family-names": "Example", "affiliation": "A <lab>"}, "A & B"],
        "title": "Of gates_1",
        "abstract": "First\nline.\n\nSecond.",
        "version": 1.2,
        "date-released": "2026-11-20",
        "doi": "10.5281/zenodo.1",
        "license": "MIT",
    }
)


def text(source: str, *tags: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": source[:9], "metadata": {"tags": [*tags]}, "source": source}


def code(html: str, *tags: str) -> dict[str, Any]:
    output = {"output_type": "display_data", "data": {"text/html": html}, "metadata": {}}
    return {**text("draw()", *tags), "cell_type": "code", "outputs": [output]}


def build_figure(name: str) -> SiteFigure:
    return SiteFigure(id=name, notebook="a", cell=1, code="", spec="", provenance={}, datasets={}, title="A chart")


def test_a_card_has_the_tagged_figure(tmp_path: Path) -> None:
    """A card has the title, the first paragraph, and the figure of the tagged cell, or else the first figure."""
    figures = [build_figure("a-chart-1"), build_figure("a-chart-2")]
    cells = [text("# Gates\n\n![x](x.png)\n\nWith $a$ and\nmore.\n\nLater."), code('<figure id="a-chart-1">')]
    file = tmp_path / "a.ipynb"
    for tags, expected in (((), figures[0]), (("thumbnail",), figures[1])):
        file.write_text(json.dumps({"cells": [*cells, code('<figure id="a-chart-2">', *tags)]}))
        card = read_card(file, figures)

        assert ("Gates", "With $a$ and\nmore.", expected) == (card.title, card.paragraph, card.figure)


def test_the_front_page_names_whom_to_cite(tmp_path: Path) -> None:
    """The front page has the authors, the abstract, the cards, the reference and the license of a site."""
    (tmp_path / "a.md").write_text("# Notes\n\nOf a study.")
    card = replace(read_card(tmp_path / "a.md"), figure=build_figure("a-chart-1"))
    page = write_front(SiteConfig(title="Gates"), CITATION, [card], ["a"])

    assert (page, []) == clean_markdown(page)
    assert page.startswith("# Gates\n")
    assert '<span class="ngb-affiliation">A &lt;lab&gt;</span>' in page
    assert "First line.\n\nSecond." in page
    assert "**[Notes](a.md)**" in page
    assert "\n\nOf a study.\n\n" in page
    assert "Ada Example and A & B (2026). Of gates_1 (version 1.2). https://doi.org/10.5281/zenodo.1" in page
    assert "[MIT](https://spdx.org/licenses/MIT)" in page


def test_a_reference_is_formatted_for_bibtex() -> None:
    """An entry escapes the characters of TeX, and a team's name stays in one part."""
    expected = r"""@misc{example2026,
  author  = {Ada Example and {A \& B}},
  title   = {{Of gates\_1}},
  year    = {2026},
  version = {1.2},
  doi     = {10.5281/zenodo.1},
}"""

    assert expected == format_bibtex(CITATION, "A site")
    assert "(n.d.). A site." == format_reference(Citation(), "A site")
    assert "@misc{asite,\n  title   = {{A site}},\n}" == format_bibtex(Citation(), "A site")


def test_findings_are_below_the_title() -> None:
    """Later findings, a text or a table without its figures, are copied to the top with a link to their place."""
    cells = [text("# A"), code("<p>log</p>"), code("<table>", "findings"), text("## Findings\n\nFast.\n\n### More\n")]
    cells[2]["outputs"] += code('<figure class="ngb-figure">')["outputs"]
    insert_summary(cells)
    sources = [cell["source"] for cell in cells]

    assert "# A" == sources[0]
    assert ["<table>"] == [output["data"]["text/html"] for output in cells[2]["outputs"]]
    assert ["remove-input"] == cells[2]["metadata"]["tags"]
    assert "Fast.\n\n**More**" == sources[4]
    for number, source in ((2, "draw()"), (3, "## Findings\n\nFast.\n\n### More\n")):
        place = sources.index(f'<a id="findings-{number}" class="ngb-anchor"></a>')
        assert source == sources[place + 1]
        assert any(f'href="#findings-{number}"' in link for link in sources[:place])
    assert len(cells) == len({cell["id"] for cell in cells} | {"draw()"}) + 1  # of the two cells of code that draw


def test_findings_at_the_top_stay() -> None:
    """A notebook that begins with its findings, or has none, is not changed."""
    for cells in ([text("# A"), text("## Findings"), code("")], [code(""), code("")], []):
        before = json.dumps(cells)
        insert_summary(cells)

        assert before == json.dumps(cells)
