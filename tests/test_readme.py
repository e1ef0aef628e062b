"""The README and the landing page: short, with commands and numbers that are true."""

from __future__ import annotations

import re
from pathlib import Path

import first_minutes
import pages
import pytest

import ngbkit
from ngbkit.commands.command import load_commands

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
README = ROOT / "README.md"
PAGES = [README, *sorted(NOTEBOOKS.glob("*.md"))]
#: A minute's reading.
MOST_BYTES = 7_000


def test_the_readme_is_read_in_a_minute() -> None:
    """The README has at most the bytes that are read in a minute."""
    assert MOST_BYTES >= README.stat().st_size


def test_installing_comes_first() -> None:
    """The README installs first, then measures from the shell, then from a cell."""
    text = README.read_text()

    assert "# ngbkit" == text.splitlines()[0]
    assert text.index("pip install") < text.index("make demo") < text.index("%ngbench")


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_that_of_the_code(page: Path) -> None:
    """Each generated page is equal to what `make pages` writes."""
    assert pages.PAGES[page]() == page.read_text(encoding="utf-8")


def test_every_command_of_the_shell_is_listed() -> None:
    """The page of the shell lists exactly the commands that exist."""
    text = (NOTEBOOKS / "shell-and-python.md").read_text()
    listed = set(re.search(r"`ngbkit ((?:\w+ \| )+\w+)`", text)[1].split(" | "))  # type: ignore[index]

    assert set(load_commands()) == listed


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Pages of the site link to other pages; the README to files of the checkout."""
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    local = [link for link in links if not link.startswith("https://")]

    assert [] == [link for link in local if not (page.parent / link).exists()]
    assert page == README or not [link for link in local if link.startswith("..")]


def test_every_page_is_reached_from_the_landing_page() -> None:
    """The landing page's table of contents names each page and each notebook."""
    contents = "\n".join(re.findall(r"```{toctree}\n(.*?)```", (NOTEBOOKS / "index.md").read_text(), re.DOTALL))
    stems = {path.stem for path in (*NOTEBOOKS.glob("*.md"), *NOTEBOOKS.glob("*.ipynb"))}

    assert stems - {"index"} | {"api"} == {line for line in contents.splitlines() if line and not line.startswith(":")}


def test_the_first_five_minutes_show_every_picture_of_the_series() -> None:
    """The page shows every picture of the series in order."""
    pictures = re.findall(r"\]\(screens/([\w-]+)\.png\)", (NOTEBOOKS / "first-five-minutes.md").read_text())
    numbers = [int(name.partition("-")[0]) for name in pictures]

    assert {name for scene in first_minutes.SCENES for name in scene.pictures} == {*pictures}
    assert sorted(numbers) == numbers


def test_pictures_are_small() -> None:
    """A page of them loads at once, and the checkout stays small."""
    pictures = list((NOTEBOOKS / "screens").glob("*.png"))

    assert len(pictures) > 10
    assert [] == [picture.name for picture in pictures if picture.stat().st_size >= 100_000]


def test_the_numbers_of_the_landing_page_are_those_of_its_command() -> None:
    """The speed-ups are those of the stored dataset, and no network surely changes places, as the text says."""
    text = " ".join((NOTEBOOKS / "index.md").read_text().split())
    data = ngbkit.load(NOTEBOOKS / "data" / "paper.nc")
    blocks = {"workload": ["conv", "mha"], "width": [64, 512], "depth": 6}
    table = data.ngb.table("speedup", **blocks, batch_size=1, compiler="openvino").frame["openvino"]

    assert 'blocks = {"workload": ["conv", "mha"], "width": [64, 512], "depth": 6}' in text
    assert f"six wide attention blocks at {table.xs('mha').item()} times" in text
    assert f"six narrow convolutional blocks at {table.xs('conv').item()} times" in text
    assert not data.ngb.reversals(unlike="mask")["conclusive"].any()
