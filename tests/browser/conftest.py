"""One server for all tests; a page and a notebook for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab import Notebook, serving
from playwright.sync_api import Browser
from state import make_state_dir


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the server keeps its files; notebooks are in ``work``."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="session")
def address(home: Path, tmp_path_factory: pytest.TempPathFactory, peaks_file: Path) -> Iterator[str]:
    """Of a running JupyterLab."""
    with serving(home, make_state_dir(tmp_path_factory, peaks_file)) as address:
        yield address


@pytest.fixture
def open_notebook(browser: Browser, address: str, home: Path) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook with such cells; after the test no request of any may have left this machine."""
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
    assert [] == [url for notebook in opened for url in notebook.strangers]


@pytest.fixture
def network(home: Path) -> str:
    """The smallest of networks, as a file beside the notebooks."""
    target = home / "work" / "tiny.py"
    target.write_text("from torch import nn\n\nmodel = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\ninput_shape = (8,)\n")
    return target.name
