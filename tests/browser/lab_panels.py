"""The elements of a panel in a page, found as users find them."""

from __future__ import annotations

from collections.abc import Callable

from lab import Notebook
from playwright.sync_api import Locator, expect

Open = Callable[..., Notebook]


def show_panel(open_notebook: Open, *cells: str) -> Notebook:
    """Open a notebook with a sweep panel in its second cell, followed by other cells."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel", *cells)
    notebook.run(0, 1)
    expect(find_button(notebook, "Run")).to_be_visible()
    return notebook


def find_button(notebook: Notebook, name: str) -> Locator:
    return notebook.page.get_by_role("button", name=name, exact=True)


def find_field(notebook: Notebook, name: str) -> Locator:
    return notebook.page.locator(".widget-inline-hbox", has_text=name).locator("input[type=text]").first


def fill_form(notebook: Notebook, network: str, batch_sizes: str = "1") -> None:
    """Fill in the form of a sweep."""
    find_field(notebook, "network").fill(network)
    find_button(notebook, "Add").click()
    expect(notebook.page.locator(".jupyter-widget-tag", has_text=network)).to_be_visible()
    find_field(notebook, "samples").fill("5")
    find_field(notebook, "batch sizes").fill(batch_sizes)
    find_field(notebook, "batch sizes").press("Tab")
    expect(notebook.page.get_by_text(f"-b {batch_sizes} -r 5 -o ds")).to_be_visible()


def expect_status(notebook: Notebook, text: str) -> None:
    """Wait until the panel shows that status."""
    expect(notebook.page.locator("[role=status]", has_text=text)).to_be_visible()
