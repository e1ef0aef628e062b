"""How every figure looks: one colour a compiler wherever it appears, told apart by the colour-blind too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

COLOURS = {
    "identity": "#555555",
    "torchscript": "#E69F00",
    "inductor": "#D55E00",
    "onnxruntime": "#0072B2",
    "openvino": "#009E73",
    "tvm": "#CC79A7",
    "tensorrt": "#56B4E9",
    "aotinductor": "#882255",
    "iree": "#332288",
    "executorch": "#999933",
    "tensorrt-rtx": "#44AA99",
}
"""By compiler: the palette of Okabe and Ito (https://jfly.uni-koeln.de/color/), the baseline in grey; then the muted
one of Paul Tol (https://sronpersonalpages.nl/~pault/)."""

OTHERS = ("#AA4499", "#661100", "#6699CC", "#117733", "#DDCC77", "#CC6677", "#88CCEE")
"""For compilers of other packages: the rest of those, and of his."""

DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
"""A compiler with other options keeps its colour and changes its dash."""

STATUS_SHAPES = {
    "failed": "cross",
    "timeout": "triangle-up",
    "crashed": "diamond",
    "out-of-memory": "square",
    "not-equivalent": "triangle-down",
    "unsupported": "triangle-right",
}
"""By the status of a trial that gave no number."""

STATUS_WORDS = {
    "ok": "ok",
    "pending": "…",
    "predicted": "pred.",
    "failed": "failed",
    "timeout": "timeout",
    "crashed": "crash",
    "out-of-memory": "memory",
    "not-equivalent": "differs",
    "unsupported": "n/a",
}
"""Of each status, short enough for a cell."""

STATUS_COLOURS = {
    "ok": "#B6DBC6",
    "pending": "#F0F0F0",
    "predicted": "#D5E3F0",
    "unsupported": "#C9C9C9",
    "timeout": "#E69F00",
    "failed": "#D55E00",
    "crashed": "#882255",
    "out-of-memory": "#332288",
    "not-equivalent": "#CC79A7",
}
"""Of each status: the more there is to look into, the stronger."""

BLACK, WHITE = "#1B1B1B", "#FFFFFF"
"""Of what is written on a colour."""

# Paul Tol's bright scheme, without its grey.
_NETWORKS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377")

FONT = "system-ui, 'Helvetica Neue', Arial, sans-serif"


def colours(labels: Iterable[str]) -> dict[str, str]:
    """The colour of each compiler's label, by label; options do not change it.

    A compiler that `COLOURS` does not know takes one of `OTHERS` by its name, so that it is the same in every figure
    unless two of the same colour meet.
    """
    wanted = list(labels)
    chosen = dict(COLOURS)
    for name in sorted({_compiler(label) for label in wanted} - set(COLOURS)):
        start = crc32(name.encode()) % len(OTHERS)
        turned = OTHERS[start:] + OTHERS[:start]
        chosen[name] = next((colour for colour in turned if colour not in chosen.values()), turned[0])
    return {label: chosen[_compiler(label)] for label in wanted}


def dashes(labels: Iterable[str]) -> dict[str, list[int]]:
    """The dash of each compiler's label, by label: a full line for the first of a compiler's labels."""
    seen: dict[str, int] = {}
    found: dict[str, list[int]] = {}
    for label in labels:
        number = seen.setdefault(_compiler(label), 0)
        found[label] = list(DASHES[number % len(DASHES)])
        seen[_compiler(label)] = number + 1
    return found


def network_colours(labels: Iterable[str]) -> dict[str, str]:
    """A colour a network, in the order in which they come: those of compilers are taken."""
    return {label: _NETWORKS[at % len(_NETWORKS)] for at, label in enumerate(labels)}


def network_dashes(labels: Iterable[str]) -> dict[str, list[int]]:
    """A dash a network: another one each time when the colours come again."""
    return {label: list(DASHES[at // len(_NETWORKS) % len(DASHES)]) for at, label in enumerate(labels)}


def ink(background: str) -> str:
    """The colour of text on a ``#rrggbb``: black or white, whichever stands out more (WCAG 2's relative luminance)."""
    parts = (int(background[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return BLACK if (luminance + 0.05) ** 2 > 0.05 * 1.05 else WHITE


def _compiler(label: str) -> str:
    return label.partition("{")[0]


CONFIG: Mapping[str, Any] = {
    "background": "white",  # a dark page must not swallow dark axes
    "font": FONT,
    # Wherever an SVG is shown, its text may be set in a wider font than it was measured in.
    "padding": {"left": 5, "top": 5, "right": 24, "bottom": 5},
    "view": {"stroke": None},
    "axis": {
        "domainColor": "#888888",
        "gridColor": "#E6E6E6",
        "labelColor": "#444444",
        "labelFontSize": 11,
        "tickColor": "#888888",
        "titleColor": "#333333",
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "axisY": {"minExtent": 34},  # rows whose numbers are of unlike lengths stay under each other
    "legend": {
        "labelFontSize": 11,
        "labelLimit": 260,
        "symbolSize": 70,
        "titleFontSize": 11,
        "titleFontWeight": "bold",
    },
    "title": {
        "anchor": "start",
        "color": "#222222",
        "fontSize": 13,
        "subtitleColor": "#666666",
        "subtitleFontSize": 11,
    },
}
"""The `config` of every chart."""
