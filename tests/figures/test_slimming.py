"""A picture loses its invisible parts, and nothing else."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

import numpy as np
import pytest
import vl_convert
from drawn import measured, network
from PIL import Image

from ngbkit import figures
from ngbkit.figures.slimming import slim


def dots(picture: str) -> np.ndarray:
    """The pixels of the picture, in 8 bits per colour."""
    image = Image.open(io.BytesIO(vl_convert.svg_to_png(picture, scale=2))).convert("RGB")
    return np.asarray(image).astype(int)


@pytest.mark.parametrize("name", ["throughput", "status", "latency", "break_even", "overview"])
def test_it_looks_the_same(name: str) -> None:
    """A slimmed picture is identical except for edges that moved by less than a hundredth of a pixel."""
    data = measured(*map(network, ("a", "b")), compilers=["identity", "openvino", "tvm"], batch_sizes=[1, 4, 16])
    picture = vl_convert.vegalite_to_svg(getattr(figures, name)(data).to_dict())
    slimmer = slim(picture, "a title")
    pixels, slim_pixels = dots(picture), dots(slimmer)

    assert len(slimmer) < 0.6 * len(picture)
    assert pixels.shape == slim_pixels.shape
    assert np.abs(pixels - slim_pixels).max(axis=2).mean() < 0.05
    assert (np.abs(pixels - slim_pixels).max(axis=2) > 64).mean() < 1e-4


def test_it_is_the_same_in_any_process() -> None:
    """A picture with a gradient is the same after others were drawn, and names it as no other picture does."""
    specs = [figures.heatmap(measured(network(name, width=(8, 16)))).to_dict() for name in ("a", "b")]
    first, other, second = (slim(vl_convert.vegalite_to_svg(spec), "a title") for spec in (*specs, specs[0]))
    names = [set(re.findall(r"url\(#(gradient-[^)]+)\)", picture)) for picture in (first, other)]

    assert first == second
    assert 1 == len(names[0]) == len(names[1])
    assert names[0] != names[1]


def test_it_has_one_name() -> None:
    """A screen reader reads its title, and no mark."""
    picture = vl_convert.vegalite_to_svg(figures.throughput(measured()).to_dict())
    root = ElementTree.fromstring(slim(picture, 'what "it" is'))

    assert ("img", 'what "it" is') == (root.get("role"), root.get("aria-label"))
    assert [] == [element for element in list(root.iter())[1:] if {"role", "aria-label"} & element.attrib.keys()]


def test_texts_stay() -> None:
    """All lines of a title stay; hidden overlapping texts are removed."""
    picture = vl_convert.vegalite_to_svg(figures.status(measured(*map(network, "abc"))).to_dict())
    texts = [
        "".join(element.itertext())
        for element in ElementTree.fromstring(slim(picture, "")).iter()
        if element.tag.endswith("}text")
    ]

    assert any("12 trials" in text for text in texts)
    assert {"a", "b", "c", "identity", "openvino"} <= set(texts)
