"""What pictures of JupyterLab are made of: a notebook, what is done in it, and what is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab import Notebook
from PIL import Image, ImageChops
from playwright.sync_api import Locator, Page

MEASURING_MS = 600_000
_MARGIN = 24

Save = Callable[["Locator | Rectangle", str], None]
"""Saves a part of a page as the picture of a name, if that picture is asked for."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A part of a page, the empty space at its bottom left out."""

    page: Page
    x: float
    y: float
    width: float
    height: float

    @property
    def clip(self) -> dict[str, float]:
        """The rectangle as playwright takes it."""
        return {"x": self.x, "y": self.y, "width": self.width, "height": self.height}


@dataclass(frozen=True, slots=True)
class Scene:
    """A notebook, and the pictures that are taken of it."""

    pictures: tuple[str, ...]
    cells: tuple[str, ...]
    take: Callable[[Notebook, Save, Path], None]  # with the folder of the notebook
    files: Mapping[str, str] = field(default_factory=dict)  # in that folder
    width: int = 1480
    height: int = 2200
    scale: float = 1.5


def crop_bottom(picture: Image.Image) -> Image.Image:
    """Crop the rows at the bottom that are all like the last one."""
    last = picture.crop((0, picture.height - 1, picture.width, picture.height)).resize(picture.size)
    box = ImageChops.difference(picture, last).getbbox()
    return picture.crop((0, 0, picture.width, min(picture.height, box[3] + _MARGIN))) if box else picture


def add_networks(page: Page, *names: str) -> None:
    """Compose a small sweep of networks in the panel."""
    for name in names:
        page.get_by_label("networks:").fill(name)
        page.get_by_label("networks:").press("Enter")
        page.get_by_role("button", name=f"remove {name}").wait_for()
    page.get_by_label("torchscript", exact=True).check()
    for name, text in (("batch sizes", "1,4"), ("samples", "20")):
        page.get_by_label(name).fill(text)
        page.get_by_label(name).press("Tab")
    page.wait_for_function(
        "[...document.querySelectorAll('.ngbkit input.line')].some(line => line.value.includes('-b 1,4 -r 20'))"
    )
