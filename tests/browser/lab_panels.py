"""The parts of a panel in a page, as a person finds them."""

from __future__ import annotations

from collections.abc import Callable

from lab import Notebook
from playwright.sync_api import Locator, expect

Open = Callable[..., Notebook]


def show_panel(open_notebook: Open, *more: str) -> Notebook:
    """A notebook with a sweep panel in its second cell."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel", *more)
    notebook.run(0, 1)
    expect(button(notebook, "Run")).to_be_visible()
    return notebook


def button(notebook: Notebook, name: str) -> Locator:
    return notebook.page.get_by_role("button", name=name, exact=True)


def field(notebook: Notebook, name: str) -> Locator:
    return notebook.page.locator(".widget-inline-hbox", has_text=name).locator("input[type=text]").first


def ask(notebook: Notebook, network: str, batch_sizes: str = "1") -> None:
    """Fill the form in."""
    field(notebook, "network").fill(network)
    button(notebook, "Add").click()
    expect(notebook.page.locator(".jupyter-widget-tag", has_text=network)).to_be_visible()
    field(notebook, "samples").fill("5")
    field(notebook, "batch sizes").fill(batch_sizes)
    field(notebook, "batch sizes").press("Tab")
    expect(notebook.page.get_by_text(f"-b {batch_sizes} -r 5 -o ds")).to_be_visible()


def status(notebook: Notebook, text: str) -> None:
    """Wait until the panel says so."""
    expect(notebook.page.locator("[role=status]", has_text=text)).to_be_visible()
