"""The elements of a panel in a page, found as users find them."""

from __future__ import annotations

import re
from collections.abc import Callable

from lab import Notebook
from playwright.sync_api import Locator, expect

Open = Callable[..., Notebook]


def show_panel(open_notebook: Open, *cells: str) -> Notebook:
    """Open a notebook with a panel in its second cell, followed by other cells."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel", *cells)
    notebook.run(0, 1)
    expect(find_button(notebook, "Run")).to_be_visible()
    return notebook


def find_button(notebook: Notebook, name: str) -> Locator:
    return notebook.page.get_by_role("button", name=name, exact=True)


def find_field(notebook: Notebook, name: str) -> Locator:
    # The label of a select has the text of its options, too.
    return notebook.page.get_by_label(name).and_(notebook.page.locator(":not(select)"))


def fill_form(notebook: Notebook, network: str, batch_sizes: str = "1") -> None:
    """Fill in the form of a sweep."""
    find_field(notebook, "networks:").fill(network)
    find_field(notebook, "networks:").press("Enter")
    expect(find_button(notebook, f"remove {network}")).to_be_visible()
    find_field(notebook, "samples").fill("5")
    find_field(notebook, "batch sizes").fill(batch_sizes)
    find_field(notebook, "batch sizes").press("Tab")
    expect(find_field(notebook, "the line that")).to_have_value(_end_with(f"-b {batch_sizes} -r 5 -o ds"))


def _end_with(text: str) -> re.Pattern[str]:
    return re.compile(f"{re.escape(text)}$")


def expect_status(notebook: Notebook, text: str) -> None:
    """Wait until the panel shows that status."""
    expect(notebook.page.locator("[role=status]", has_text=text)).to_be_visible()
