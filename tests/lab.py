"""A real JupyterLab in a real browser, for the tests of what a person sees: a server, and a notebook in a page."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nbformat
from patience import WAIT_S, limit_s, wait_until
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from requirements import BROWSER, require_program

# Kept for whoever looks at a run of the tests; git ignores the folder.
SCREENS = Path(__file__).parents[1] / "results" / "screens"
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_IDLE = "window.ngbkitIdle = () => { const one = window.jupyterapp.shell.currentWidget; \
const kernel = one && one.sessionContext && one.sessionContext.session && one.sessionContext.session.kernel; \
return Boolean(kernel && kernel.status === 'idle'); }"


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """A browser without a window; what a test expects of it is waited for as long as this machine needs."""
    path = require_program(BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_SWITCHES, timeout=limit_ms())
        expect.set_options(timeout=limit_ms())
        yield browser
        browser.close()


def limit_ms() -> float:
    """How long something in a page may take, now."""
    return limit_s(WAIT_S) * 1000


@contextlib.contextmanager
def serving(home: Path, state_dir: Path) -> Iterator[str]:
    """A JupyterLab server on loopback that keeps all that it keeps in `home`; its address, with a token."""
    token = secrets.token_hex(16)
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    # A question about news would lie on the page.
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    (home / "work").mkdir()
    places = {
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "IPYTHONDIR": home / "ipython",
        "NGBKIT_STATE_DIR": state_dir,
    }
    words = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    words += ["--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'work'}"]
    words += ["--LabApp.expose_app_in_browser=True"]
    with open(home / "server.log", "wb") as log:
        environment = {**os.environ, **{name: str(path) for name, path in places.items()}}
        server = subprocess.Popen(words, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=home)
        try:
            about = home / "runtime" / f"jpserver-{server.pid}.json"
            wait_until(lambda: about.exists() or server.poll() is not None)
            assert server.poll() is None, (home / "server.log").read_text()
            port = json.loads(about.read_text())["port"]
            yield f"http://127.0.0.1:{port}/lab/tree/{{name}}?token={token}&reset"
        finally:
            server.terminate()
            server.wait()


class Notebook:
    """A notebook that is open in a page.

    Parameters
    ----------
    page
        The browser's.
    address
        What `serving` gave.
    folder
        The server's root folder.
    cells
        The code of its cells.
    """

    def __init__(self, page: Page, address: str, folder: Path, *cells: str) -> None:
        name = f"{secrets.token_hex(4)}.ipynb"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, folder / name)
        self.page, self.strangers = page, []
        page.set_default_timeout(limit_ms())
        page.on("request", self._heed)
        page.goto(address.format(name=name))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.evaluate(_IDLE)
        self.wait_until_idle()

    def _heed(self, request: Any) -> None:
        """Note requests that leave this machine."""
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in ("127.0.0.1", "localhost"):
            self.strangers.append(request.url)

    def wait_until_idle(self) -> None:
        """Until the kernel has nothing to do."""
        self.page.wait_for_function("window.ngbkitIdle()")

    def run(self, *numbers: int) -> None:
        """Run some cells, one after the other, and wait for the last."""
        for number in numbers:
            self.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {number}")
            self.execute("notebook:run-cell")
        self.page.wait_for_timeout(500)
        self.wait_until_idle()

    def run_all(self) -> None:
        """Run every cell, and wait for the last."""
        self.execute("notebook:run-all-cells")
        self.page.wait_for_timeout(500)
        self.wait_until_idle()

    def execute(self, command: str) -> None:
        """A command of JupyterLab's, without waiting for what it starts."""
        self.page.evaluate(f"void window.jupyterapp.commands.execute('{command}')")

    def cell(self, number: int) -> Locator:
        """A cell, its outputs included."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def screenshot(self, name: str) -> Path:
        """What is seen, kept for whoever looks."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        target = SCREENS / f"{name}.png"
        self.page.screenshot(path=target, full_page=True)
        return target
