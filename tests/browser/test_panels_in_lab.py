"""The panels in JupyterLab in a browser: from a form to a chart, stopped and gone on with, found again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lab import Notebook
from playwright.sync_api import Locator, expect

Open = Callable[..., Notebook]
# Beside it stands the picture of a button.
CHART = ".vega-embed svg.marks"


@pytest.fixture
def network(home: Path) -> str:
    """The smallest of networks, as a file beside the notebooks."""
    target = home / "work" / "tiny.py"
    target.write_text("from torch import nn\n\nmodel = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\ninput_shape = (8,)\n")
    return target.name


def show_panel(open_notebook: Open, *more: str) -> Notebook:
    """A notebook with a sweep panel in its second cell."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel", *more)
    notebook.run_all()
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


def test_from_a_form_to_a_chart(open_notebook: Open, network: str) -> None:
    """Pick, run, look; the dataset is bound to the name that was given."""
    notebook = show_panel(open_notebook, "print(ds.sizes, sorted(ds.compiler.values))")
    ask(notebook, network, "1,4")
    button(notebook, "Run").click()
    status(notebook, "has ended; ds holds its dataset")

    expect(notebook.page.get_by_label("status of the trials")).to_contain_text("●●")
    expect(notebook.page.get_by_role("img", name="Throughput and speed-up")).to_be_visible()
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
    notebook.execute("notebook:run-cell")
    expect(notebook.cell(2)).to_contain_text("'batch_size': 2")
    notebook.screenshot("sweep-panel")


def test_what_is_copied_asks_for_the_same_trials(open_notebook: Open, network: str) -> None:
    """The clipboard holds the cell that the panel shows, and the cell gives a dataset of the same keys."""
    notebook = show_panel(open_notebook, "")
    ask(notebook, network)
    button(notebook, "Copy as cell").click()
    expect(button(notebook, "Copied")).to_be_visible()
    cell = notebook.page.evaluate("navigator.clipboard.readText()")

    assert cell.startswith(f"%ngbench {network} -c identity,onnxruntime,openvino -b 1 -r 5")
    button(notebook, "Run").click()
    status(notebook, "has ended")
    code = f"{cell.replace('-o ds', '-o again')}\nprint([ds[name].equals(again[name]) for name in ds.coords])"
    notebook.page.evaluate(
        "code => { const content = window.jupyterapp.shell.currentWidget.content; content.activeCellIndex = 2; "
        "content.activeCell.model.sharedModel.setSource(code); }",
        code,
    )
    notebook.execute("notebook:run-cell")
    expect(notebook.cell(2)).to_contain_text("True")
    expect(notebook.cell(2)).not_to_contain_text("False")


@pytest.mark.parametrize("beside", ["", "import asyncio\nawait asyncio.sleep(600)"], ids=["idle", "awaiting"])
def test_stop_and_resume(open_notebook: Open, network: str, beside: str) -> None:
    """Stop is heard while no cell runs, and while one awaits; what was measured is kept, and Resume does the rest."""
    notebook = show_panel(open_notebook, beside)
    ask(notebook, network, "1:8")
    if beside:
        notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
        notebook.execute("notebook:run-cell")
        notebook.page.wait_for_function("!window.ngbkitIdle()")
    button(notebook, "Run").click()
    expect(notebook.page.get_by_label("status of the trials")).to_contain_text("●")
    button(notebook, "Stop").click()
    status(notebook, "trials are missing, and Resume measures them")

    field(notebook, "dataset").fill("rest")
    field(notebook, "dataset").press("Tab")
    button(notebook, "Resume").click()
    status(notebook, "has ended; rest holds its dataset")


def test_a_panel_finds_the_run_of_a_kernel_that_was_restarted(open_notebook: Open, network: str) -> None:
    """Shown again it says what is missing, and measures that."""
    notebook = show_panel(open_notebook)
    ask(notebook, network, "1:8")
    button(notebook, "Run").click()
    expect(notebook.page.get_by_label("status of the trials")).to_contain_text("●")
    notebook.execute("kernelmenu:restart")
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.page.wait_for_timeout(1000)
    notebook.wait_until_idle()
    notebook.run_all()
    status(notebook, "trials missing: Resume")

    button(notebook, "Resume").click()
    status(notebook, "has ended; ds holds its dataset")


def test_the_explorer_draws_and_tells(open_notebook: Open, network: str) -> None:
    """Another figure at a choice, the trial that is looked into, the code that draws the same."""
    notebook = open_notebook(
        "%load_ext ngbkit", f"%ngbench {network} -c identity,onnxruntime -b 1,4 -r 10 -o ds", "%ngpanel explore ds", ""
    )
    notebook.run_all()
    panel = notebook.cell(2)
    expect(panel.locator(CHART)).to_be_visible()
    panel.get_by_label("figure", exact=True).select_option("status")
    expect(panel.get_by_text("ds.ngb.plot.status()")).to_be_visible()
    expect(panel.locator(f"{CHART} .role-mark.mark-rect path")).to_have_count(4)
    panel.get_by_label("trial", exact=True).select_option("tiny, onnxruntime, batch 4 on cpu")
    expect(panel.get_by_text("nine in ten from")).to_be_visible()


def test_a_click_on_a_mark_tells_of_its_trial(open_notebook: Open, network: str) -> None:
    """The sheet below the figure is that of the trial that the mark is drawn from."""
    notebook = open_notebook(
        "%load_ext ngbkit", f"%ngbench {network} -c identity,onnxruntime -b 1,4 -r 10 -o ds", "%ngpanel explore ds", ""
    )
    notebook.run_all()
    panel = notebook.cell(2)
    circles = panel.locator(f"{CHART} .role-mark.mark-symbol path")
    expect(circles).to_have_count(4)
    for at, trial in ((3, "tiny, onnxruntime, batch 4 on cpu"), (0, "tiny, identity, batch 1 on cpu")):
        circles.nth(at).click()
        expect(panel.locator("table", has_text="nine in ten from")).to_contain_text(trial)
        expect(panel.get_by_label("trial", exact=True).locator("option:checked")).to_have_text(trial)
    notebook.screenshot("explorer")


def test_the_panel_of_devices_starts_an_engine(open_notebook: Open) -> None:
    """Its line says that it is ready, how loaded the device is, and its log can be read."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel devices")
    notebook.run_all()
    button(notebook, "Start").click()
    expect(notebook.cell(1).get_by_role("cell", name="ready")).to_be_visible()
    expect(notebook.cell(1).get_by_role("cell", name="GB")).to_be_visible()
    notebook.screenshot("devices-panel")
    button(notebook, "Stop").click()
    expect(notebook.cell(1).get_by_role("cell", name="none")).to_be_visible()
