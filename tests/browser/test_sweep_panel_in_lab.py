"""The sweep panel in JupyterLab in a browser: from a form to a chart, stopped and gone on with, found again."""

from __future__ import annotations

import pytest
from lab_panels import Open, ask, button, field, show_panel, status
from playwright.sync_api import expect


def test_from_a_form_to_a_chart(open_notebook: Open, network: str) -> None:
    """Pick, run, look; the dataset is bound to the name that was given."""
    notebook = show_panel(open_notebook, "print(ds.sizes, sorted(ds.compiler.values))")
    ask(notebook, network, "1,4")
    button(notebook, "Run").click()
    status(notebook, "has ended; ds is its dataset")

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
    status(notebook, "trials are missing; Resume measures them")

    field(notebook, "dataset").fill("rest")
    field(notebook, "dataset").press("Tab")
    button(notebook, "Resume").click()
    status(notebook, "has ended; rest is its dataset")


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
    status(notebook, "trials are missing; Resume measures them")

    button(notebook, "Resume").click()
    status(notebook, "has ended; ds is its dataset")
