"""The page of a figure in windows of several widths."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import measured, network
from playwright.sync_api import Browser

from ngbkit import figures

_PARTS = ("document.body", "document.querySelector('svg.marks')")


@pytest.mark.parametrize("width", [390, 1400])
def test_a_figure_fits_its_window(browser: Browser, tmp_path: Path, width: int) -> None:
    """A figure is scaled down to its window, and nothing is cut off on a phone."""
    path = _save_figure(tmp_path)
    page = browser.new_page(viewport={"width": width, "height": 600})
    try:
        page.goto(path.as_uri())
        page.wait_for_selector("svg.marks")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        page.close()


@pytest.mark.parametrize(("scheme", "colour"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(51, 51, 51)")])
def test_a_page_has_the_colours_of_the_system(browser: Browser, tmp_path: Path, scheme: str, colour: str) -> None:
    """The figure and the page around it are dark where the system is."""
    page = browser.new_page(color_scheme=scheme)
    try:
        page.goto(_save_figure(tmp_path).as_uri())
        page.wait_for_selector("svg.marks")
        grounds = [page.evaluate(f"getComputedStyle({part}).backgroundColor") for part in _PARTS]
    finally:
        page.close()

    assert [colour, colour] == grounds


def _save_figure(folder: Path) -> Path:
    return figures.save(figures.throughput(measured(*map(network, "abcde"))), folder / "figure.html")
