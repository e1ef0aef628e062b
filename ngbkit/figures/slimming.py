"""Removes the invisible parts of vega's SVGs: a third of the size, and identical to a hundredth of a pixel."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"
# For interactive pages, which are drawn from the specification beside the picture; a picture needs one label only.
_LIVE = ("role", "aria-label", "aria-hidden", "aria-roledescription", "class", "pointer-events")
# The values of attributes that are absent.
_DEFAULTS = {
    "opacity": "1",
    "fill-opacity": "1",
    "stroke-opacity": "1",
    "stroke-width": "1",
    "font-style": "normal",
    "stroke-dasharray": "1,0",
    "text-anchor": "start",
    "font-weight": "normal",
}
_GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "cx", "cy", "r", "font-size")
_LONG = re.compile(r"(\d+\.\d{2})\d+")
_ZEROS = re.compile(r"\.(?:0+|(\d*[1-9])0+)(?!\d)")
_GRADIENT = re.compile(r"\bgradient_\d+\b")
_NOWHERE = "translate(0,0)"
_GROUP, _TEXT = f"{{{_SVG}}}g", f"{{{_SVG}}}text"
_SHAPES = tuple(f"{{{_SVG}}}{name}" for name in ("path", "rect", "line", "circle"))
_SHARED = ("font-family", "font-size")


def slim(picture: str, title: str) -> str:
    """Shorten an SVG; the title is its label for screen readers."""
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(picture)
    _prune(root)
    for name in _SHARED:
        _hoist(root, name)
    root.set("role", "img")
    root.set("aria-label", title)
    return _rename(ElementTree.tostring(root, encoding="unicode"))


def _rename(picture: str) -> str:
    """Name gradients by the content: vega counts those of all pictures that a process draws."""
    names = {name: f"gradient-{number}" for number, name in enumerate(dict.fromkeys(_GRADIENT.findall(picture)))}
    if not names:
        return picture
    picture = _GRADIENT.sub(lambda match: names[match[0]], picture)
    # A page may have another picture with such names.
    digest = hashlib.blake2b(picture.encode(), digest_size=4).hexdigest()
    return picture.replace("gradient-", f"gradient-{digest}-")


def _prune(element: ElementTree.Element) -> None:
    for name in _LIVE:
        element.attrib.pop(name, None)
    for name, usual in _DEFAULTS.items():
        if element.get(name) == usual:
            del element.attrib[name]
    if element.tag in _SHAPES and "stroke" not in element.attrib:
        element.attrib.pop("stroke-width", None)
    for name in _GEOMETRY:
        if name in element.attrib:
            shorter = _LONG.sub(r"\1", element.attrib[name])
            element.set(name, _ZEROS.sub(lambda decimals: f".{decimals[1]}" if decimals[1] else "", shorter))
    if element.get("transform") == _NOWHERE:
        del element.attrib["transform"]
    children: list[ElementTree.Element] = []
    for child in element:
        _prune(child)
        if child.tag == _GROUP and not child.attrib:  # a redundant group
            children += child
        elif not _is_invisible(child):
            children.append(child)
    element[:] = children


def _is_invisible(element: ElementTree.Element) -> bool:
    """Return whether an element shows nothing; vega's outermost group has no fill, and shapes inherit none."""
    if element.tag == _GROUP:
        return not len(element)
    if element.tag == _TEXT and not element.text and not len(element):
        return True
    return element.get("opacity") == "0" or (element.tag in _SHAPES and not {"fill", "stroke"} & element.attrib.keys())


def _hoist(root: ElementTree.Element, name: str) -> None:
    """Move the most common value of an attribute to the root."""
    counts = Counter(element.attrib[name] for element in root.iter() if name in element.attrib)
    if not counts:
        return
    usual, _ = counts.most_common(1)[0]
    for element in root.iter():
        if element.get(name) == usual:
            del element.attrib[name]
    root.set(name, usual)
