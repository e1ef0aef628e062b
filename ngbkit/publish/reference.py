"""Formats the reference to a site: a sentence, and an entry of BibTeX."""

from __future__ import annotations

import re

from ngbkit.publish.citation import Citation

_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_ESCAPES |= {character: f"\\{character}" for character in "&%$#_{}"}


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
