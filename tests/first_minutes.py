"""The pictures of a stranger's first five minutes, which notebooks/first-five-minutes.md shows in order."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from lab import THEMES, Notebook
from playwright.sync_api import Locator
from rich.console import Console
from rich.text import Text
from scenes import MEASURING_MS, Rectangle, Save, Scene, add_networks

_LOAD = "%load_ext ngbkit"
_MEASURE = "%ngbench mobilenetv3_small_100 deit_tiny_patch16_224 -c identity,onnxruntime,openvino -b 1,4 -r 30 -o ds"
_NETWORK = """%%ngbench -c identity,openvino -b 1 -r 10 --factor width=16,64 --factor depth=1:3 -o blocks
from torch import nn

def model(width, depth):
    blocks = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(depth)]
    return nn.Sequential(*blocks)

input_shape = lambda width, depth: (width, 56, 56)"""
_CHART = ".vega-embed .marks"
# Of the terminal: as wide as the demo's table.
_COLUMNS = 110


def _take_demo(notebook: Notebook, save: Save, work: Path) -> None:
    """Take what the demo prints in a terminal, and the page that it writes."""
    command = [Path(sys.executable).with_name("ngbkit"), "demo"]
    width = {"COLUMNS": str(_COLUMNS)}
    demo = subprocess.run(
        command,
        cwd=work,
        env=os.environ | width,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=MEASURING_MS / 1000,
    )
    console = Console(record=True, width=_COLUMNS, file=io.StringIO())
    console.print(Text(f"$ ngbkit demo\n{demo.stdout.rstrip()}"))
    page = notebook.page
    page.set_content(f"<body style='margin: 0; width: 1100px'>{console.export_svg(title='ngbkit demo')}</body>")
    save(page.locator("svg").first, "1-terminal")
    page.goto((work / "results" / "demo.html").as_uri())
    page.locator(_CHART).wait_for()
    page.wait_for_timeout(1000)
    save(Rectangle(page, 0, 0, 1100, 1500), "2-page")


def _take_completion(notebook: Notebook, save: Save, _work: Path) -> None:
    """Take the values that Tab offers in an empty notebook."""
    page = notebook.page
    notebook.run(0)
    _type(notebook, 1, "%ngbench resnet18 -c identity,")
    page.keyboard.press("Tab")
    page.locator(".jp-Completer:not(.lm-mod-hidden)").wait_for()
    page.wait_for_timeout(1000)
    save(_frame(notebook, 460), "3-completion")


def _take_run(notebook: Notebook, save: Save, _work: Path) -> None:
    """Take a run while it measures, its table, a figure, and the run reopened by another notebook's line."""
    page = notebook.page
    notebook.run(0)
    page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1")
    notebook.execute("notebook:run-cell")
    running = notebook.cell(1)
    running.locator("progress").wait_for(timeout=MEASURING_MS)
    page.wait_for_function("document.querySelector('progress')?.value > 0.35", timeout=MEASURING_MS)
    save(running, "4-progress")
    running.locator("table").first.wait_for(timeout=MEASURING_MS)
    notebook.wait_until_idle()
    page.wait_for_timeout(1000)
    notebook.run(2, 3)
    notebook.cell(2).locator(_CHART).wait_for()
    table = notebook.cell(3).locator("table")
    table.wait_for()
    run_id = re.search(r"\d{8}-\d{6}-\w+", table.inner_text())
    assert run_id is not None
    _set_source(notebook, 4, f"%ngruns --resume {run_id[0]} -o again")
    notebook.run(4)
    notebook.cell(4).locator("table").first.wait_for()
    _deselect(notebook)
    save(running, "5-table")
    save(notebook.cell(2), "6-figure")
    first, last = notebook.cell(3).bounding_box(), notebook.cell(4).bounding_box()
    assert first is not None
    assert last is not None
    height = last["y"] + last["height"] - first["y"]
    save(Rectangle(page, first["x"], first["y"], first["width"], height), "10-runs")
    _use_theme(notebook, "dark")
    save(running, "5-table-dark")
    save(notebook.cell(2), "6-figure-dark")
    _use_theme(notebook, "light")


def _take_network(notebook: Notebook, save: Save, _work: Path) -> None:
    """Take a network of the user's own, swept over its arguments."""
    notebook.run(0)
    notebook.execute("notebook:run-all-cells")
    cell = notebook.cell(2)
    cell.locator(_CHART).wait_for(timeout=MEASURING_MS)
    notebook.wait_until_idle()
    notebook.page.wait_for_timeout(1000)
    _deselect(notebook)
    save(notebook.cell(1), "7-network")


def _take_error(notebook: Notebook, save: Save, _work: Path) -> None:
    """Take an error that knows what was meant."""
    notebook.run(0)
    for number in (1, 2):  # one after another: an error cancels the cells in the queue
        notebook.run(number)
        notebook.cell(number).locator(".jp-OutputArea-output").wait_for()
    _deselect(notebook)
    first, last = notebook.cell(1).bounding_box(), notebook.cell(2).bounding_box()
    assert first is not None
    assert last is not None
    height = last["y"] + last["height"] - first["y"]
    save(Rectangle(notebook.page, first["x"], first["y"], first["width"], height), "8-error")


def _take_panel(notebook: Notebook, save: Save, _work: Path) -> None:
    """Take the form, which composes the line of a magic."""
    notebook.run(0, 1)
    add_networks(notebook.page, "resnet18", "mobilenetv3_small_100")
    notebook.page.wait_for_timeout(1000)
    save(notebook.cell(1), "9-panel")
    _use_theme(notebook, "dark")
    save(notebook.cell(1), "9-panel-dark")
    _use_theme(notebook, "light")


def _frame(notebook: Notebook, height: float) -> Rectangle:
    """The top of the notebook's page."""
    box = notebook.page.locator(".jp-Notebook").bounding_box()
    assert box is not None
    return Rectangle(notebook.page, box["x"], box["y"], box["width"], height)


def _type(notebook: Notebook, number: int, text: str) -> None:
    editor: Locator = notebook.cell(number).locator(".cm-content")
    editor.click()
    notebook.page.keyboard.type(text)


def _set_source(notebook: Notebook, number: int, text: str) -> None:
    cell = f"window.jupyterapp.shell.currentWidget.content.widgets[{number}]"
    notebook.page.evaluate(f"{cell}.model.sharedModel.setSource({json.dumps(text)})")


def _deselect(notebook: Notebook) -> None:
    """Leave the marks of the active cell to another one."""
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    notebook.page.wait_for_timeout(300)


def _use_theme(notebook: Notebook, name: str) -> None:
    """Switch the theme, which the server keeps for the scenes that follow."""
    theme = json.dumps({"theme": THEMES[name]})
    notebook.page.evaluate(f"void window.jupyterapp.commands.execute('apputils:change-theme', {theme})")
    is_light = json.dumps(name == "light")
    notebook.page.locator(f"body[data-jp-theme-light={is_light}]").wait_for(state="attached")  # a body has no height
    notebook.page.wait_for_timeout(1500)


SCENES = (
    Scene(("1-terminal", "2-page"), ("",), _take_demo, width=1100, height=1500, scale=1.0),
    Scene(("3-completion",), (_LOAD, ""), _take_completion, width=1200, height=900, scale=1.25),
    Scene(
        ("4-progress", "5-table", "5-table-dark", "6-figure", "6-figure-dark", "10-runs"),
        (_LOAD, _MEASURE, "ds.ngb.plot.speedup()", "%ngruns", ""),
        _take_run,
        width=1300,
        height=3000,
        scale=1.25,
    ),
    Scene(("7-network",), (_LOAD, _NETWORK, "blocks.ngb.plot.depth()"), _take_network, width=1300, scale=1.25),
    Scene(
        ("8-error",),
        (
            _LOAD,
            "%ngbench resnet18 -c identity,openvno -b 1,4 -o ds",
            "%ngbench resnt18 -c identity,openvino --batch-size 1,4 -o ds",
        ),
        _take_error,
        width=1300,
        scale=1.25,
    ),
    Scene(("9-panel", "9-panel-dark"), (_LOAD, "%ngpanel"), _take_panel, width=1300, scale=1.25),
)
