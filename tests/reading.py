"""A panel that reads results, for tests without a front end."""

from htpy import div

from ngbkit.dataset.storage import Data
from ngbkit.panels.page import Page
from ngbkit.panels.read import ReadSection


def build_reader(data: Data, name: str) -> Page:
    """Build a panel that shows a dataset, and the variable that holds it."""
    page = Page()
    page.show("page", div[div(data_part="message"), div(data_part="read")])
    ReadSection(page).show_data(data, name)
    return page
