"""The contrast of every text of a figure with what is behind it, by WCAG 2, as its picture shows it."""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
import vl_convert
from PIL import Image, ImageColor

LEAST = 4.5
"""The least contrast of WCAG 2, level AA, for text of normal size."""

PAGES = {"light": "#ffffff", "dark": "#111111"}
"""The colours of the pages of JupyterLab's themes."""

_TEXT = "{http://www.w3.org/2000/svg}text"
_SAMPLES = 15
_ANCHORS = {"start": 0.0, "middle": -0.5, "end": -1.0}
Matrix = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of a picture, its colour, the colour behind it, and their contrast."""

    text: str
    colour: str
    behind: tuple[int, int, int]
    contrast: float


def measure_contrasts(spec: dict, page: str) -> list[Text]:
    """Measure the contrast of every text of a specification on a page, whose theme is merged below the figure's."""
    picture = vl_convert.vegalite_to_svg(spec, theme="dark" if page == "dark" else None)
    root = ElementTree.fromstring(picture)
    labels = list(_list_texts(root, np.eye(3)))
    for parent in list(root.iter()):
        parent[:] = [child for child in parent if child.tag != _TEXT]
    without = vl_convert.svg_to_png(ElementTree.tostring(root, encoding="unicode"), scale=1)
    front = Image.open(io.BytesIO(without)).convert("RGBA")
    pixels = np.asarray(Image.alpha_composite(Image.new("RGBA", front.size, PAGES[page]), front).convert("RGB"))
    return [_measure(element, matrix, pixels) for element, matrix in labels]


def _measure(element: ElementTree.Element, matrix: Matrix, pixels: np.ndarray) -> Text:
    text, size = "".join(element.itertext()), float(element.get("font-size", "11px").removesuffix("px"))
    longest = max([element.text or "", *(part.text or "" for part in element)], key=len)
    width = 0.5 * size * len(longest)
    start = _ANCHORS[element.get("text-anchor", "start")] * width
    points = (matrix @ [start + width * step / _SAMPLES, -size / 3, 1] for step in range(_SAMPLES + 1))
    height, breadth, _ = pixels.shape
    colours = Counter(
        tuple(int(value) for value in pixels[min(max(int(y), 0), height - 1), min(max(int(x), 0), breadth - 1)])
        for x, y, _ in points
    )
    # A line or a mark may cross a text: the most common colour is its background.
    behind = colours.most_common(1)[0][0]
    colour = element.get("fill", "#000000")
    opacity = float(element.get("fill-opacity", 1)) * float(element.get("opacity", 1))
    blend = [opacity * ink + (1 - opacity) * ground for ink, ground in zip(_parse(colour), behind, strict=True)]
    levels = sorted((_compute_luminance(blend), _compute_luminance(behind)))
    return Text(text=text, colour=colour, behind=behind, contrast=(levels[1] + 0.05) / (levels[0] + 0.05))


def _parse(colour: str) -> tuple[int, ...]:
    return ImageColor.getrgb(colour)[:3]


def _compute_luminance(colour: tuple[float, ...] | list[float]) -> float:
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in (value / 255 for value in colour)]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def _list_texts(element: ElementTree.Element, matrix: Matrix) -> Iterator[tuple[ElementTree.Element, Matrix]]:
    """Every visible text, with the matrix from its own coordinates to those of the picture."""
    matrix = matrix @ _parse_transform(element.get("transform", ""))
    if element.tag == _TEXT:
        if "".join(element.itertext()).strip() and float(element.get("opacity", 1)):
            yield element, matrix
        return
    for child in element:
        yield from _list_texts(child, matrix)


def _parse_transform(text: str) -> Matrix:
    """The matrix of vega's transforms: a translation and a rotation."""
    matrix = np.eye(3)
    for part in filter(None, text.split(")")):
        name, _, values = part.strip(" ,").partition("(")
        numbers = [float(value) for value in values.replace(",", " ").split()]
        if name == "translate":
            matrix = matrix @ [[1, 0, numbers[0]], [0, 1, numbers[1] if len(numbers) > 1 else 0], [0, 0, 1]]
        else:
            assert name == "rotate", text
            cosine, sine = math.cos(math.radians(numbers[0])), math.sin(math.radians(numbers[0]))
            matrix = matrix @ [[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]]
    return matrix
