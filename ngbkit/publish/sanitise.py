"""Removes from the HTML of authors what would request something from another server, or run a script."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

from ngbkit.errors import UsageError
from ngbkit.publish.cells import read_notebook

_SHAPES = (
    *("svg", "g", "defs", "symbol", "use", "path", "rect", "circle", "ellipse", "line", "polyline", "polygon", "text"),
    *("tspan", "textPath", "title", "desc", "marker", "mask", "pattern", "clipPath", "linearGradient"),
    *("radialGradient", "stop", "filter", "feGaussianBlur", "feOffset", "feBlend", "feMerge", "feMergeNode"),
)
_TAGS = nh3.ALLOWED_TAGS | {*_SHAPES, "style", "input", "label", "video", "audio", "source", "meter", "progress"}
_ATTRIBUTES = {
    *("class", "id", "style", "title", "lang", "dir", "role", "tabindex", "hidden", "open", "name", "value", "type"),
    *("checked", "disabled", "for", "width", "height", "align", "valign", "border", "cellpadding", "cellspacing"),
    "halign",  # pandas, for headers of several levels
    *("bgcolor", "color", "face", "size", "rules", "frame", "start", "reversed", "colspan", "rowspan", "scope", "span"),
    *("headers", "abbr", "scoped", "datetime", "alt", "controls", "loop", "muted", "loading"),
    *("min", "max", "low", "high", "optimum"),
    *("download", "rel", "target", "markdown", "href", "src", "xlink:href", "xmlns", "xmlns:xlink", "version"),
    *("viewBox", "preserveAspectRatio", "d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy"),
    *("points", "transform", "offset", "fill", "fill-opacity", "fill-rule", "stroke", "stroke-width", "opacity"),
    *("stroke-opacity", "stroke-dasharray", "stroke-dashoffset", "stroke-linecap", "stroke-linejoin", "visibility"),
    *("stroke-miterlimit", "font", "font-family", "font-size", "font-style", "font-weight", "text-anchor", "display"),
    *("dominant-baseline", "alignment-baseline", "clip-path", "clip-rule", "clipPathUnits", "marker-start", "mask"),
    *("marker-mid", "marker-end", "markerWidth", "markerHeight", "refX", "refY", "orient", "gradientUnits"),
    *("gradientTransform", "stop-color", "stop-opacity", "pointer-events", "cursor", "xml:space", "textLength"),
    *("patternUnits", "maskUnits", "filter", "stdDeviation", "in", "in2", "result", "mode", "paint-order"),
}
_PREFIXES = {"data-", "aria-"}
# Addresses of links are requested by readers alone.
_LINKS = {("a", "href"), ("area", "href"), ("a", "xlink:href")}
_ADDRESSES = {"href", "src", "xlink:href", "poster", "data", "background", "action", "formaction"}
# Of addresses, and of style sheets, in which an import and an image may be named without `url`.
_OTHER_SERVER = r"(?:[\\/]{2}|(?!data:)[a-z][a-z0-9+.-]*:)"
_ADDRESS = re.compile(_OTHER_SERVER, re.IGNORECASE)
_SCHEMES = {"http", "https", "mailto", "data"}
_CONTROLS = re.compile(r"[\x00-\x20]")
_SCHEME = re.compile(r"([^/?#:]*):")
_STYLE_REQUEST = re.compile(rf"url\(\s*[\"']?\s*{_OTHER_SERVER}|@import|image-set\(|src\(", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:([0-9a-f]{1,6})\s?|(.))", re.IGNORECASE)
_STYLE = re.compile(r"<style[^>]*>(.*?)</style>", re.IGNORECASE | re.DOTALL)
# A page has no kernel for the first, and would execute the second; a reader may open a picture by itself.
_WIDGET, _SCRIPT = "application/vnd.jupyter.widget-view+json", "application/javascript"
_PICTURE = "image/svg+xml"
_ACTIVE = re.compile(r"<(?:[\w-]+:)?(?:script|foreignobject|!entity)|\son\w+\s*=\s*[\"']", re.IGNORECASE)


def clean_html(html: str) -> tuple[str, list[str]]:
    """Return HTML without what requests or runs something, and the names of what was removed; else as it was."""
    cleaned = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"*": _ATTRIBUTES},
        clean_content_tags={"script"},
        generic_attribute_prefixes=_PREFIXES,
        attribute_filter=lambda tag, name, value: None if _requests(tag, name, value) else value,
        url_schemes=_SCHEMES,
        link_rel=None,
    )
    cleaned = _STYLE.sub(lambda match: "" if _loads(match[1]) else match[0], cleaned)
    before, after = _parse(html), _parse(cleaned)
    if before.content == after.content and _is_read_alike(html, before):
        return html, []
    return cleaned, sorted(before.count() - after.count())


def clean_markdown(text: str) -> tuple[str, list[str]]:
    """Return Markdown whose HTML is clean, and whose pictures of other servers are links, and what was removed."""
    removed: list[str] = []
    cleaned, names = _clean_tokens(text)
    while cleaned != text:  # Markdown beside an element that is removed was a part of its block, and is none now
        text, removed = cleaned, [*removed, *names]
        cleaned, names = _clean_tokens(text)
    return text, removed


def clean_notebook(executed: Path, target: Path) -> list[str]:
    """Write an executed notebook with clean outputs and Markdown, and return a sentence for each changed cell."""
    notebook = read_notebook(executed)
    sentences = []
    for number, cell in enumerate(notebook["cells"]):
        removed: list[str] = []
        if cell["cell_type"] == "markdown":
            cell["source"], removed = clean_markdown("".join(cell["source"]))
        elif cell["cell_type"] == "raw":
            cell["source"], removed = clean_html("".join(cell["source"]))
        else:
            outputs = cell.get("outputs", [])
            removed = [name for output in outputs for name in _clean_output(output)]
            cell["outputs"] = [output for output in outputs if _WIDGET not in output.get("data", {})]
        if removed:
            names = ", ".join(dict.fromkeys(removed))
            sentences.append(f"{executed.name}, cell {number}: removed {names}, since pages request nothing")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(notebook), encoding="utf-8")
    return sentences


def clean_text(source: Path, target: Path) -> list[str]:
    """Write a page of Markdown without what requests something, and return a sentence if anything was removed."""
    text, removed = clean_markdown(source.read_text(encoding="utf-8"))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    names = ", ".join(dict.fromkeys(removed))
    return [f"{source.name}: removed {names}, since pages request nothing"] if names else []


def list_requests(page: str) -> list[str]:
    """List the addresses of other servers that a browser would request for a page."""
    parser = _parse(page)
    addresses = {value for tag, name, value in parser.attributes if _requests(tag, name, value)}
    return sorted(addresses | {style.strip()[:80] for style in _STYLE.findall(page) if _loads(style)})


def check_pages(site: Path) -> None:
    """Refuse by UsageError a site with a page that a browser would complete from another server; it names both."""
    for page in sorted(site.glob("*.html")):
        if addresses := list_requests(page.read_text(encoding="utf-8")):
            raise UsageError(
                f"invalid page {page.name}: got a request to {addresses[0]}; expected files of the site. Remove it."
            )


def _clean_tokens(text: str) -> tuple[str, list[str]]:
    """Clean each piece of HTML and each picture that Markdown has as it stands."""
    removed: list[str] = []
    for token in list_tokens(text):
        if token.type == "image" and _is_elsewhere(address := str(token.attrs["src"])):
            text = re.sub(rf"!(\[[^\]]*\]\(\s*<?{re.escape(address)})", r"\1", text)
            removed.append(f"the picture {address}")
        elif token.type in ("html_block", "html_inline") or token.info.startswith("{raw} html"):
            if _is_harmless(token.content):  # perhaps a part of a table, which alone is not valid
                continue
            cleaned, names = clean_html(token.content)
            removed += names
            if cleaned != token.content:  # perhaps indented in a list, or in a quotation
                lines = [re.escape(line.strip()) for line in token.content.strip().splitlines()]
                text = re.sub(r"[ \t]*\n[ \t>]*".join(lines), cleaned.strip().replace("\\", r"\\"), text)
    return text, removed


def list_tokens(text: str) -> Iterator[Token]:
    """List the tokens of Markdown, those within others included."""
    stack = list(reversed(MarkdownIt().parse(text)))
    while stack:
        token = stack.pop()
        yield token
        stack += reversed(token.children or [])


def _clean_output(output: dict[str, Any]) -> list[str]:
    """Clean the HTML of an output of a cell in place, and return the names of what was removed."""
    data = output.get("data", {})
    removed = ["a script"] if data.pop(_SCRIPT, None) else []
    picture = "".join(data.get(_PICTURE, ""))
    if _ACTIVE.search(picture) or list_requests(picture) or _links_to_script(_parse(picture)):
        del data[_PICTURE]
        removed.append("a picture with a script or a request")
    for kind, clean in (("text/html", clean_html), ("text/markdown", clean_markdown)):
        if kind in data:
            data[kind], names = clean("".join(data[kind]))
            removed += names
    return removed


class _Parser(HTMLParser):
    """Collects the elements of a page, their attributes, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text, self.tags = "", 0

    @property
    def content(self) -> tuple[Any, ...]:
        """All that it collects."""
        return self.elements, self.attributes, self.text

    def count(self) -> Counter[str]:
        """Count the elements and the attributes by name."""
        return Counter([*self.elements, *(f"{name} of {tag}" for tag, name, _ in self.attributes)])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += 1
        self.elements.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, _tag: str) -> None:
        self.tags += 1

    def handle_data(self, data: str) -> None:
        self.text += data


def _parse(html: str) -> _Parser:
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser


def _is_read_alike(html: str, parser: _Parser) -> bool:
    """Return whether a parser took each ``<`` for a tag: of comments and style sheets, browsers know other ends."""
    return html.count("<") == parser.tags


def _links_to_script(parser: _Parser) -> bool:
    """Return whether an address has a scheme that is not of a page, a picture or a message, such as that of scripts."""
    addresses = (_CONTROLS.sub("", value) for _, name, value in parser.attributes if name in _ADDRESSES)
    return any(scheme[1].lower() not in _SCHEMES for scheme in map(_SCHEME.match, addresses) if scheme)


def _is_harmless(html: str) -> bool:
    """Return whether a piece of HTML, valid or not, has neither an element nor an attribute that would be removed."""
    parser = _parse(html)
    elements, attributes = ({name.lower() for name in names} for names in (_TAGS, _ATTRIBUTES))
    return (
        _is_read_alike(html, parser)
        and elements.issuperset(parser.elements)
        and not _links_to_script(parser)
        and all(name in attributes or name.startswith((*_PREFIXES,)) for _, name, _ in parser.attributes)
        and not list_requests(html)
    )


def _requests(tag: str, name: str, value: str) -> bool:
    """Return whether a browser requests something from another server for an attribute."""
    if name == "srcset":
        return any(map(_is_elsewhere, value.split(",")))
    if name in _ADDRESSES:
        return (tag, name) not in _LINKS and _is_elsewhere(value)
    if (tag, name) == ("meta", "content"):
        return bool(re.match(r"\s*[\d.]+\s*[;,]\s*url", value, re.IGNORECASE))
    return (name == "style" or "url(" in value.lower()) and _loads(value)


def _loads(style: str) -> bool:
    """Return whether a style sheet, or a declaration, loads something from another server."""
    text = _ESCAPE.sub(lambda match: chr(min(int(match[1], 16), 0x10FFFF)) if match[1] else match[2], style)
    return bool(_STYLE_REQUEST.search(text))


def _is_elsewhere(address: str) -> bool:
    """Return whether an address is that of another server; browsers ignore control characters in it."""
    return bool(_ADDRESS.match(_CONTROLS.sub("", address)))
