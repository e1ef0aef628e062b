"""A picture of vega's without what nobody sees: a third as large, and the same to a hundredth of a dot.

What vega writes for a page that is alive (roles and labels of every mark, classes, axis labels that are hidden since
they overlap) is in the specification beside it, from which a notebook draws; a picture is one thing with one name.
"""

from __future__ import annotations

import re
from collections import Counter
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"
_LIVE = ("role", "aria-label", "aria-hidden", "aria-roledescription", "class", "pointer-events")
# What is so where nothing else is said.
_DEFAULTS = {"opacity": "1", "fill-opacity": "1", "stroke-opacity": "1", "stroke-width": "1", "font-style": "normal"}
_GEOMETRY = ("d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "cx", "cy", "r")
_LONG = re.compile(r"(\d+\.\d{2})\d+")
_NOWHERE = "translate(0,0)"
_GROUP = f"{{{_SVG}}}g"
_SHAPES = tuple(f"{{{_SVG}}}{name}" for name in ("path", "rect", "line", "circle"))
_SHARED = ("font-family", "font-size")


def slim(picture: str, title: str) -> str:
    """The same picture, whose one name is its title.

    Parameters
    ----------
    picture
        An SVG.
    title
        For who has it read aloud.
    """
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(picture)
    _prune(root)
    for name in _SHARED:
        _hoist(root, name)
    root.set("role", "img")
    root.set("aria-label", title)
    return ElementTree.tostring(root, encoding="unicode")


def _prune(element: ElementTree.Element) -> None:
    for name in _LIVE:
        element.attrib.pop(name, None)
    for name, usual in _DEFAULTS.items():
        if element.get(name) == usual:
            del element.attrib[name]
    for name in _GEOMETRY:
        if name in element.attrib:
            element.set(name, _LONG.sub(r"\1", element.attrib[name]))
    if element.get("transform") == _NOWHERE:
        del element.attrib["transform"]
    kept: list[ElementTree.Element] = []
    for child in element:
        _prune(child)
        if child.tag == _GROUP and not child.attrib:  # it groups for nothing
            kept += child
        elif not _is_unseen(child):
            kept.append(child)
    element[:] = kept


def _is_unseen(element: ElementTree.Element) -> bool:
    """Whether nothing of it can be seen; vega's outermost group has no fill, and a shape has none but its own."""
    if element.tag == _GROUP:
        return not len(element)
    return element.get("opacity") == "0" or (element.tag in _SHAPES and not {"fill", "stroke"} & element.attrib.keys())


def _hoist(root: ElementTree.Element, name: str) -> None:
    """Say once what most texts say."""
    found = Counter(one.attrib[name] for one in root.iter() if name in one.attrib)
    if not found:
        return
    usual, _ = found.most_common(1)[0]
    for one in root.iter():
        if one.get(name) == usual:
            del one.attrib[name]
    root.set(name, usual)
