"""A real JupyterLab in a real browser, for tests of the user interface: a server, and a notebook in a page."""

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

# The folder of screenshots, to inspect after the tests; git ignores it.
SCREENS = Path(__file__).parents[1] / "results" / "screens"
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
_SWITCHES = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")
_IDLE = "window.ngbkitIdle = () => { const widget = window.jupyterapp.shell.currentWidget; \
const session = widget && widget.sessionContext && widget.sessionContext.session; \
const kernel = session && session.kernel; \
return Boolean(kernel && kernel.status === 'idle'); }"


@contextlib.contextmanager
def launch_browser() -> Iterator[Browser]:
    """Launch a browser without a window; expectations of it wait as long as this machine needs."""
    path = require_program(BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_SWITCHES, timeout=limit_ms())
        expect.set_options(timeout=limit_ms())
        yield browser
        browser.close()


def limit_ms() -> float:
    """Return the current limit for an action in a page."""
    return limit_s(WAIT_S) * 1000


@contextlib.contextmanager
def serve(home: Path, state_dir: Path, theme: str = "light") -> Iterator[str]:
    """Run a JupyterLab server on loopback whose files are all in `home`; its address, with a token."""
    token = secrets.token_hex(16)
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    # A question about news would cover the page.
    (settings / "notification.jupyterlab-settings").write_text(json.dumps({"fetchNews": "false"}))
    (settings / "themes.jupyterlab-settings").write_text(json.dumps({"theme": THEMES[theme]}))
    (home / "work").mkdir()
    folders = {
        "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces",
        "JUPYTER_CONFIG_DIR": home / "config",
        "JUPYTER_RUNTIME_DIR": home / "runtime",
        "IPYTHONDIR": home / "ipython",
        "NGBKIT_STATE_DIR": state_dir,
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    command += [
        "--ServerApp.ip=127.0.0.1",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={home / 'work'}",
    ]
    command += ["--LabApp.expose_app_in_browser=True"]
    with open(home / "server.log", "wb") as log:
        environment = {**os.environ, **{name: str(path) for name, path in folders.items()}}
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=home)
        try:
            info = home / "runtime" / f"jpserver-{server.pid}.json"
            wait_until(lambda: (info.exists() and info.stat().st_size) or server.poll() is not None)
            assert server.poll() is None, (home / "server.log").read_text()
            port = json.loads(info.read_text())["port"]
            yield f"http://127.0.0.1:{port}/lab/tree/{{name}}?token={token}&reset"
        finally:
            server.terminate()
            server.wait()


class Notebook:
    """A notebook with the given cells, opened in a page from the `address` and the root folder of a server."""

    def __init__(self, page: Page, address: str, folder: Path, *cells: str) -> None:
        self.file = folder / f"{secrets.token_hex(4)}.ipynb"
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        nbformat.write(notebook, self.file)
        self.page, self.foreign_requests = page, []
        page.set_default_timeout(limit_ms())
        page.on("request", self._check_request)
        page.goto(address.format(name=self.file.name))
        page.wait_for_selector(".jp-Notebook .jp-CodeCell")
        page.evaluate(_IDLE)
        self.wait_until_idle()

    def _check_request(self, request: Any) -> None:
        """Record requests to other machines."""
        parts = urlsplit(request.url)
        if parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in ("127.0.0.1", "localhost"):
            self.foreign_requests.append(request.url)

    def wait_until_idle(self) -> None:
        """Wait until the kernel is idle."""
        self.page.wait_for_function("window.ngbkitIdle()")

    def run(self, *numbers: int) -> None:
        """Run cells one after another, and wait until the kernel is idle."""
        for number in numbers:
            self.page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {number}")
            self.execute("notebook:run-cell")
        self.page.wait_for_timeout(500)
        self.wait_until_idle()

    def run_all(self) -> None:
        """Run every cell, and wait until the kernel is idle."""
        self.execute("notebook:run-all-cells")
        self.page.wait_for_timeout(500)
        self.wait_until_idle()

    def execute(self, command: str) -> None:
        """Execute a command of JupyterLab, without waiting for its effect."""
        self.page.evaluate(f"void window.jupyterapp.commands.execute('{command}')")

    def cell(self, number: int) -> Locator:
        """Locate a cell with its outputs."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(number)

    def screenshot(self, name: str) -> Path:
        """Save a screenshot of the page, to inspect after the tests."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        target = SCREENS / f"{name}.png"
        self.page.screenshot(path=target, full_page=True)
        return target
