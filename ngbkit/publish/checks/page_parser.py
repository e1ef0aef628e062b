"""Parses a page: its elements that show a figure or a statement on a dataset, each with its texts and links."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from ngbkit.figures.statements import ATTRIBUTE
from ngbkit.user_text import shorten

_LONGEST = 60

FIGURE = "ngb-figure"
"""The class of a figure's element."""

_VOID = frozenset(
    {
        *("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track"),
        "wbr",
    }
)


@dataclass(slots=True)
class PageElement:
    """An element of a page that shows a figure or a statement."""

    id: str
    provenance: str | None  # as JSON, of a statement
    parts: list[str] = field(default_factory=list)  # its texts and the addresses of its links and pictures
    spec: str = ""  # of a figure, as JSON


class _PageParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[PageElement] = []
        # The open tags, each with the element that it begins, if any.
        self._open: list[tuple[str, PageElement | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        for _, element in self._open:
            if element is not None:
                element.parts += [attributes[name] for name in ("href", "src") if name in attributes]
        if tag in _VOID:
            return
        begun = None
        if FIGURE in attributes.get("class", "").split() or ATTRIBUTE in attributes:
            begun = PageElement(attributes.get("id", ""), attributes.get(ATTRIBUTE))
            self.elements.append(begun)
        self._open.append((tag if "ngb-spec" not in attributes.get("class", "") else "ngb-spec", begun))

    def handle_endtag(self, tag: str) -> None:
        names = [name.replace("ngb-spec", "script") for name, _ in self._open]
        if tag in names:
            del self._open[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        is_spec = bool(self._open) and self._open[-1][0] == "ngb-spec"
        for _, element in self._open:
            if element is not None and is_spec:
                element.spec += data
            elif element is not None and (text := " ".join(data.split())):
                element.parts.append(text)


def parse_page(html: str) -> list[PageElement]:
    """Parse the elements of a page, in order."""
    parser = _PageParser()
    parser.feed(html)
    parser.close()
    return parser.elements


def find_difference(element: PageElement, expected: PageElement) -> str:
    """Find the first text in which two elements differ, in words; empty if they show the same."""
    pairs = zip(element.parts, expected.parts, strict=False)
    for text, origin in pairs:
        if text != origin:
            return f"shows {shorten(text, _LONGEST)!r}; expected {shorten(origin, _LONGEST)!r}"
    if len(element.parts) != len(expected.parts):
        longer = max(element.parts, expected.parts, key=len)
        text = longer[min(len(element.parts), len(expected.parts))]
        verb = "lacks" if longer is expected.parts else "adds"
        return f"{verb} {shorten(text, _LONGEST)!r}"
    return ""
