"""Lines that every reader and every print distinguish, by colour or by dash."""

import re
from itertools import combinations

import pytest
from vision import VISIONS, measure_difference

from ngbkit.figures import theme

_LEAST = 8.0  # more than three just noticeable differences


def find_confused(colours, dashes, visions):
    """The pairs of lines with one dash whose colours are about equal in a vision."""
    return [
        (first, second, vision)
        for first, second in combinations(colours, 2)
        for vision in visions
        if dashes[first] == dashes[second] and measure_difference(colours[first], colours[second], vision) < _LEAST
    ]


def darken(colours):
    """The colours on a dark page."""
    adapted = {label: theme.adapt(colour) for label, colour in colours.items()}
    return {
        label: colour if isinstance(colour, str) else re.search(r"'(#\w+)'", colour["expr"])[1]
        for label, colour in adapted.items()
    }


@pytest.mark.parametrize("series", ["compiler", "network"])
def test_lines_differ_for_every_reader_and_in_grey(series):
    """Two lines with one dash differ for colour-blind readers on light and dark pages, and in a grey print."""
    labels = list(theme.COLOURS) if series == "compiler" else list("abcdef")
    assign = theme.assign_colours if series == "compiler" else theme.assign_network_colours
    assign_dashes = theme.assign_dashes if series == "compiler" else theme.assign_network_dashes
    colours, dashes = assign(labels), assign_dashes(labels)

    assert [] == find_confused(colours, dashes, VISIONS)
    assert [] == find_confused(darken(colours), dashes, set(VISIONS) - {"grey"})


def test_lines_that_are_confused_are_found():
    """Red and green of one lightness and one dash are confused by a deuteranope, and by no other check."""
    colours = {"a": "#AA5500", "b": "#7A7A00"}

    assert ("a", "b", "deuteranopia") in find_confused(colours, {"a": 0, "b": 0}, VISIONS)
    assert [] == find_confused(colours, {"a": 0, "b": 1}, VISIONS)
