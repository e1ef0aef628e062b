"""The panel in JupyterLab in a browser: run, stop and resume a sweep by mouse and by keyboard, and find it again."""

from __future__ import annotations

import json

import pytest
from accessible import find_violations
from lab_panels import Open, expect_status, fill_form, find_button, find_field, show_panel
from patience import wait_until
from playwright.sync_api import expect

_CHART = ".chart svg.marks"


@pytest.mark.guard
def test_from_a_form_to_results_and_a_cell(open_notebook: Open, network: str) -> None:
    """Keys alone lead to the results without a fault that axe-core knows; the copied cell measures the same."""
    notebook = show_panel(open_notebook, "print(ds.sizes, sorted(ds.compiler.values))")
    page = notebook.page
    page.set_viewport_size({"width": 1400, "height": 1000})
    find_field(notebook, "networks:").focus()
    page.keyboard.type("tiny")
    page.keyboard.press("Enter")
    expect(page.locator(".error", has_text="unknown workload 'tiny'")).to_be_visible()
    notebook.screenshot("panel-error")

    assert [] == find_violations(page, ".ngbkit")
    fill_form(notebook, network, "1,4")
    find_button(notebook, "Copy as cell").click()
    expect(find_button(notebook, "Copied")).to_be_visible()
    cell = page.evaluate("navigator.clipboard.readText()")

    assert cell.startswith(f"%ngbench {network} -c identity,onnxruntime,openvino -b 1,4 -r 5")
    expect(find_button(notebook, "Run")).to_be_enabled()
    find_button(notebook, "Run").press("Enter")
    expect_status(notebook, "has ended; ds is its dataset")
    expect(page.locator(_CHART)).to_be_visible()
    notebook.screenshot("panel-results")

    assert [] == find_violations(page, ".ngbkit")
    page.get_by_role("tab", name="Results").press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="tiny, identity, batch 1 on cpu: ok")).to_be_visible()
    page.get_by_role("button", name="tiny, identity, batch 1 on cpu: ok").press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator("pre", has_text="samples, median")).to_be_visible()
    notebook.screenshot("panel-sweep")

    assert [] == find_violations(page, ".ngbkit")
    assert page.evaluate(
        "document.querySelector('.ngbkit').scrollWidth <= document.querySelector('.ngbkit').clientWidth"
    )
    code = f"{cell.replace('-o ds', '-o again')}\nprint(ds.sizes, [ds[name].equals(again[name]) for name in ds.coords])"
    page.evaluate(
        "code => { const content = window.jupyterapp.shell.currentWidget.content; content.activeCellIndex = 2; "
        "content.activeCell.model.sharedModel.setSource(code); }",
        code,
    )
    notebook.execute("notebook:run-cell")
    expect(notebook.cell(2)).to_contain_text("'batch_size': 2")
    expect(notebook.cell(2)).to_contain_text("True")
    expect(notebook.cell(2)).not_to_contain_text("False")


def test_stop_and_resume(open_notebook: Open, network: str) -> None:
    """Stop works, even while a cell awaits; measurements are kept, and Resume measures the rest."""
    notebook = show_panel(open_notebook, "import asyncio\nawait asyncio.sleep(600)")
    fill_form(notebook, network, "1:4")
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2")
    notebook.execute("notebook:run-cell")
    notebook.page.wait_for_function("!window.ngbkitIdle()")
    find_button(notebook, "Run").click()
    expect(notebook.page.locator(".trial.ok").first).to_be_visible()
    find_button(notebook, "Stop").click()
    expect_status(notebook, "trials are missing; Resume measures them")

    find_field(notebook, "dataset").fill("rest")
    find_field(notebook, "dataset").press("Tab")
    find_button(notebook, "Resume").click()
    expect_status(notebook, "has ended; rest is its dataset")


def test_a_panel_finds_its_run_after_a_restart_of_the_kernel(open_notebook: Open, network: str) -> None:
    """A panel finds its run after a restart, shows the missing trials, and measures them."""
    notebook = show_panel(open_notebook)
    fill_form(notebook, network, "1:4")
    find_button(notebook, "Run").click()
    expect(notebook.page.locator(".trial.ok").first).to_be_visible()
    notebook.execute("kernelmenu:restart")
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.page.wait_for_timeout(1000)
    notebook.wait_until_idle()
    notebook.run_all()
    expect_status(notebook, "trials are missing")
    expect(find_field(notebook, "batch sizes")).to_have_value("1:4")

    find_button(notebook, "Resume").click()
    expect_status(notebook, "has ended; ds is its dataset")


def test_a_saved_notebook_shows_the_run_without_a_kernel(open_notebook: Open, network: str) -> None:
    """A live panel hides what is stored; the file of the notebook has the tables, the picture and the run's id."""
    notebook = show_panel(open_notebook)
    fill_form(notebook, network)
    find_button(notebook, "Run").click()
    expect_status(notebook, "has ended; ds is its dataset")
    saved = notebook.page.locator(".ngbkit-saved")
    expect(saved).to_contain_text("%ngruns --open")
    expect(saved).to_be_hidden()
    notebook.execute("docmanager:save")
    wait_until(lambda: "ngbkit-saved" in notebook.file.read_text())
    outputs = json.loads(notebook.file.read_text())["cells"][1]["outputs"]
    html = "".join(outputs[0]["data"]["text/html"])

    assert "%ngruns --open" in html
    assert "speed-up" in html
    assert "<svg" in html
