"""Writes the front page of a site whose author wrote none: authors, abstract, a card for each page, how to cite."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from urllib.parse import quote

from ngbkit.publish.citation import Author, Citation, SiteConfig
from ngbkit.publish.manifest import FIGURES, SiteFigure

THUMBNAIL = "thumbnail"
"""The tag of the cell whose figure is on the front page; by default it is the first figure of the notebook."""

_TITLE = re.compile(r"^#\s+(.+)$", re.MULTILINE)
# Of Markdown: headings, lists, tables, quotes, pictures, HTML and directives.
_NOT_A_PARAGRAPH = re.compile(r"\s*(?:[#>|<`!$:]|[-*+]\s|\d+\.\s|    )")
_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_ESCAPES |= {character: f"\\{character}" for character in "&%$#_{}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCard:
    """The entry of a page on the front page."""

    file: Path
    title: str
    paragraph: str  # the first; Markdown
    figure: SiteFigure | None = None


def read_card(file: Path, figures: Iterable[SiteFigure] = ()) -> PageCard:
    """Read the title, the first paragraph and the figure of a page, a text or a notebook."""
    text, figure = file.read_text(), None
    if file.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        candidates = [figure for figure in figures if figure.notebook == file.stem]
        tagged = json.dumps([cell for cell in cells if THUMBNAIL in cell["metadata"].get("tags", [])])
        first = next(iter(candidates), None)
        figure = next((figure for figure in candidates if f'id=\\"{figure.id}\\"' in tagged), first)
    title = _TITLE.search(text)
    paragraphs = (paragraph.strip() for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip())
    paragraph = next((paragraph for paragraph in paragraphs if not _NOT_A_PARAGRAPH.match(paragraph)), "")
    return PageCard(file=file, title=title[1] if title else file.stem, paragraph=paragraph, figure=figure)


def write_front(config: SiteConfig, citation: Citation, cards: Sequence[PageCard], names: Sequence[str]) -> str:
    """Write the front page as Markdown; `names` are those of all pages, for the navigation."""
    licenses = " · ".join(f"[{license.name}]({license.url})" for license in citation.licenses)
    parts = [
        f"# {config.title}",
        _render_authors(citation.authors),
        config.description,
        citation.abstract,
        "\n\n".join(["::::::{container} ngb-cards", *map(_render_card, cards), "::::::"]),
        "```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```",
        "## How to cite",
        format_reference(citation, config.title),
        f"```bibtex\n{format_bibtex(citation, config.title)}\n```",
        f"License: {licenses}" if licenses else "",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _render_authors(authors: Sequence[Author]) -> str:
    """Render the authors as HTML, each with a link and an affiliation."""
    lines = []
    for author in authors:
        address = author.orcid or author.website
        name = f'<a href="{escape(address)}">{escape(author.name)}</a>' if address else escape(author.name)
        badge = ' <span class="ngb-orcid">ORCID</span>' if author.orcid else ""
        place = f' <span class="ngb-affiliation">{escape(author.affiliation)}</span>' if author.affiliation else ""
        lines.append(f"<span>{name}{badge}{place}</span>")
    return f'<p class="ngb-authors">{"".join(lines)}</p>' if lines else ""


def _render_card(card: PageCard) -> str:
    """Render a card as Markdown, so that its paragraph may have formulas and links."""
    address = quote(f"{card.file.stem}.html")
    lines = [f":::::{{container}} ngb-card\n\n**[{card.title}]({card.file.name})**", card.paragraph]
    if figure := card.figure:
        picture = f'<img src="{quote(f"{FIGURES}/{figure.id}.svg")}" alt="{escape(figure.title)}" loading="lazy">'
        lines.insert(1, f'<a class="ngb-thumbnail" href="{address}#{quote(figure.id)}">{picture}</a>')
    if card.file.suffix == ".ipynb":
        lines.append(f'<p class="ngb-more"><a href="notebooks/{quote(card.file.name)}" download>notebook</a></p>')
    return "\n\n".join([*filter(None, lines), ":::::"])


def format_reference(citation: Citation, title: str) -> str:
    """Format a reference as a sentence: authors, year, title, version and address."""
    names = [author.name for author in citation.authors]
    authors = " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
    version = f" (version {citation.version})" if citation.version else ""
    year = citation.date[:4] or "n.d."
    return " ".join(filter(None, [authors, f"({year}).", f"{citation.title or title}{version}.", citation.address]))


def format_bibtex(citation: Citation, title: str) -> str:
    """Format a reference as an entry of BibTeX, whose key is the first author's last name and the year."""
    first = citation.authors[0].name.split()[-1] if citation.authors else title
    key = re.sub(r"\W", "", first.lower()) + citation.date[:4]
    # BibTeX finds the parts of a person's name by itself, and a team's name has none.
    names = [_escape(author.name) if author.is_person else f"{{{_escape(author.name)}}}" for author in citation.authors]
    fields = {
        "author": " and ".join(names),
        "title": f"{{{_escape(citation.title or title)}}}",
        "year": citation.date[:4],
        "version": _escape(citation.version),
        "doi": citation.doi,
        "url": "" if citation.doi else citation.url,
    }
    lines = [f"  {name:7} = {{{value}}}," for name, value in fields.items() if value]
    return "\n".join([f"@misc{{{key},", *lines, "}"])


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(character, character) for character in text)
