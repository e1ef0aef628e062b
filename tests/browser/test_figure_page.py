"""The page of a figure in windows of several widths."""

from __future__ import annotations

from pathlib import Path

import pytest
from drawn import measured, network
from playwright.sync_api import Browser

from ngbkit import figures


@pytest.mark.parametrize("width", [390, 1400])
def test_a_figure_fits_its_window(browser: Browser, tmp_path: Path, width: int) -> None:
    """A figure is scaled down to its window, and nothing is cut off on a phone."""
    path = figures.save(figures.throughput(measured(*map(network, "abcde"))), tmp_path / "figure.html")
    page = browser.new_page(viewport={"width": width, "height": 600})
    try:
        page.goto(path.as_uri())
        page.wait_for_selector("svg.marks")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    finally:
        page.close()
