"""The theme of every figure: one colour per compiler throughout, distinguishable by colour-blind readers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

from ngbkit.sweep.column import Column

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
"""By compiler: the palette of Okabe and Ito (https://jfly.uni-koeln.de/color/), with the baseline in grey; then the
muted palette of Paul Tol (https://sronpersonalpages.nl/~pault/)."""

OTHERS = ("#AA4499", "#661100", "#6699CC", "#117733", "#DDCC77", "#CC6677", "#88CCEE")
"""For compilers of other packages: more colours of those palettes."""

DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3), (12, 4), (1, 4), (12, 3, 1, 3))
"""A compiler with another release or other options has the same colour and another dash."""

# Of compilers and of networks, by their colours: two whose colours a colour-blind reader or a grey print confuses
# differ in their dash (tests/figures/test_vision.py).
_FIRST_DASHES = {
    "inductor": 1,
    "tvm": 2,
    "tensorrt": 2,
    "aotinductor": 3,
    "iree": 1,
    "executorch": 3,
    "tensorrt-rtx": 1,
}
_NETWORK_DASHES = (0, 0, 1, 0, 1, 1)

STATUS_SHAPES = {
    "failed": "cross",
    "timeout": "triangle-up",
    "crashed": "diamond",
    "out-of-memory": "square",
    "not-equivalent": "triangle-down",
    "unsupported": "triangle-right",
}
"""By the status of a trial without a result."""

NETWORK_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-left", "triangle-right", "stroke")
"""The shapes of networks, in order, where colours distinguish compilers."""

STATUS_WORDS = {
    "ok": "ok",
    "not-checked": "no check",
    "pending": "…",
    "predicted": "pred.",
    "failed": "failed",
    "timeout": "timeout",
    "crashed": "crash",
    "out-of-memory": "memory",
    "not-equivalent": "differs",
    "unsupported": "n/a",
}
"""A word for each status, short enough for a cell."""

STATUS_COLOURS = {
    "ok": "#B6DBC6",
    "not-checked": "#F0E442",
    "pending": "#F0F0F0",
    "predicted": "#D5E3F0",
    "unsupported": "#C9C9C9",
    "timeout": "#E69F00",
    "failed": "#D55E00",
    "crashed": "#882255",
    "out-of-memory": "#332288",
    "not-equivalent": "#CC79A7",
}
"""A colour for each status: the more it needs attention, the stronger."""

BLACK, WHITE = "#000000", "#FFFFFF"
"""The colours of text on a coloured background."""

# Paul Tol's bright scheme, without its grey.
_NETWORKS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377")

NAME = "ngbkit"
"""The name of the theme in altair's registry."""

FONT = "system-ui, 'Helvetica Neue', Arial, sans-serif"


def assign_colours(labels: Iterable[str]) -> dict[str, str]:
    """Assign a colour to each label of a compiler, regardless of its options.

    A compiler without an entry in `COLOURS` gets one of `OTHERS` by its name, the same in every figure unless two
    compilers collide.
    """
    compilers = {label: Column.read(label).compiler for label in labels}
    colours = dict(COLOURS)
    for name in sorted(set(compilers.values()) - set(COLOURS)):
        start = crc32(name.encode()) % len(OTHERS)
        candidates = OTHERS[start:] + OTHERS[:start]
        colours[name] = next((colour for colour in candidates if colour not in colours.values()), candidates[0])
    return {label: colours[name] for label, name in compilers.items()}


def assign_dashes(labels: Iterable[str]) -> dict[str, list[int]]:
    """Assign a dash to each label of a compiler, the compiler's own to the first label of each."""
    counts: Counter[str] = Counter()
    dashes: dict[str, list[int]] = {}
    for label in labels:
        name = Column.read(label).compiler
        dashes[label] = list(DASHES[(_FIRST_DASHES.get(name, 0) + counts[name]) % len(DASHES)])
        counts[name] += 1
    return dashes


def assign_network_colours(labels: Iterable[str]) -> dict[str, str]:
    """Assign a colour that belongs to no compiler to each network, in order."""
    return {label: _NETWORKS[i % len(_NETWORKS)] for i, label in enumerate(labels)}


def assign_network_dashes(labels: Iterable[str]) -> dict[str, list[int]]:
    """Assign a dash to each network: that of its colour, and another one whenever the colours repeat."""
    dashes = {}
    for number, label in enumerate(labels):
        cycle, colour = divmod(number, len(_NETWORKS))
        dashes[label] = list(DASHES[(_NETWORK_DASHES[colour] + 2 * cycle) % len(DASHES)])
    return dashes


def assign_shapes(labels: Iterable[str]) -> list[str]:
    """Assign a shape to each label, in order, without the last, a mere stroke, which would look like a bar."""
    shapes = NETWORK_SHAPES[:-1]
    return [shapes[number % len(shapes)] for number, _ in enumerate(labels)]


def choose_ink(background: str) -> str:
    """The colour of text on a ``#rrggbb``: black or white, by contrast (WCAG 2's relative luminance)."""
    return BLACK if (_compute_luminance(background) + 0.05) ** 2 > 0.05 * 1.05 else WHITE


def adapt(light: str, dark: str = "", *, contrast: float = 3.0) -> dict[str, str] | str:
    """Adapt a colour to the background of the page, which a dark notebook replaces.

    The colour on a dark page is `dark`, or `light` with as much white as that `contrast` with the page needs; it is
    the plain colour if it needs none.
    """
    colour = dark or _lighten(light, contrast)
    return light if colour == light else {"expr": f"luminance(background) < 0.2 ? '{colour}' : '{light}'"}


def _lighten(colour: str, contrast: float) -> str:
    """Mix a ``#rrggbb`` with white until it has a contrast with the page of a dark notebook."""
    least = contrast * (_compute_luminance(DARK) + 0.05) - 0.05
    for step in range(21):
        channels = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
        mixed = "#" + "".join(f"{round(value + (255 - value) * step / 20):02X}" for value in channels)
        if _compute_luminance(mixed) >= least:
            break
    return mixed if step else colour


def _compute_luminance(colour: str) -> float:
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    red, green, blue = (value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


DARK = "#333333"
"""The background of figures in a dark notebook, where vega-embed merges its dark theme below that of the figure."""

BACKGROUND = {"expr": "background"}
_LABEL, TITLE, SUBTITLE = adapt("#444444", "#DDDDDD"), adapt("#222222", "#EEEEEE"), adapt("#666666", "#BBBBBB")
CONFIG: Mapping[str, Any] = {  # without a background, which is the page's
    "font": FONT,
    # An SVG may be displayed in a wider font than the one its text was measured in.
    "padding": {"left": 5, "top": 5, "right": 24, "bottom": 5},
    "view": {"stroke": None},
    "axis": {
        "domainColor": "#888888",
        "gridColor": adapt("#E6E6E6", "#484848"),
        "labelColor": _LABEL,
        "labelFontSize": 11,
        "tickColor": "#888888",
        "titleColor": TITLE,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    },
    "axisY": {"minExtent": 34},  # aligns panels whose numbers differ in length
    "header": {"labelColor": TITLE, "titleColor": TITLE},
    "legend": {
        "labelColor": _LABEL,
        "labelFontSize": 11,
        "labelLimit": 260,
        "symbolBaseFillColor": TITLE,
        "symbolBaseStrokeColor": TITLE,
        "symbolSize": 70,
        "titleColor": TITLE,
        "titleFontSize": 11,
        "titleFontWeight": "bold",
    },
    "title": {
        "anchor": "start",
        "color": TITLE,
        "fontSize": 13,
        "subtitleColor": SUBTITLE,
        "subtitleFontSize": 11,
    },
}
"""The `config` of every figure; altair knows it as the theme ``ngbkit``."""
