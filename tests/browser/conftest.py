"""One server for all tests, and a notebook in a page for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Notebook, serve
from playwright.sync_api import Browser
from state import make_state_dir


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server's files; notebooks are in ``work``."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="session")
def address(home: Path, tmp_path_factory: pytest.TempPathFactory, peaks_file: Path) -> Iterator[str]:
    """The address of a running JupyterLab."""
    with serve(home, make_state_dir(tmp_path_factory, peaks_file)) as address:
        yield address


@pytest.fixture
def open_notebook(browser: Browser, address: str, home: Path) -> Iterator[Callable[..., Notebook]]:
    """A function that opens a notebook with the given cells; its pages must request nothing from other servers."""
    opened: list[Notebook] = []
    context = browser.new_context(
        viewport={"width": 1280, "height": 1600}, permissions=["clipboard-read", "clipboard-write"]
    )

    def open_(*cells: str) -> Notebook:
        opened.append(Notebook(context.new_page(), address, home / "work", *cells))
        return opened[-1]

    yield open_
    for notebook in opened:
        notebook.execute("kernelmenu:shutdown")
    context.close()
    assert [] == [url for notebook in opened for url in notebook.foreign_requests]


@pytest.fixture
def network(home: Path) -> str:
    """The file name of a tiny network beside the notebooks."""
    target = home / "work" / "tiny.py"
    target.write_text("from torch import nn\n\nmodel = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\ninput_shape = (8,)\n")
    return target.name
