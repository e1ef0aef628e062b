"""The sweep panel in JupyterLab in a browser: run, stop and resume a sweep, and find it again."""

from __future__ import annotations

from lab_panels import Open, expect_status, fill_form, find_button, find_field, show_panel
from playwright.sync_api import expect

# The placeholders, longer than a character, that are wider than their field.
_LIST_CUT = """inputs => inputs.filter(input => {
  const style = getComputedStyle(input), context = document.createElement("canvas").getContext("2d");
  context.font = style.font;
  const room = input.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return input.placeholder.length > 1 && context.measureText(input.placeholder).width > room;
}).map(input => input.placeholder)"""


def test_from_a_form_to_a_chart_and_a_cell(open_notebook: Open, network: str) -> None:
    """The form is not cut; its sweep is bound to its name and drawn; and the copied cell measures the same trials."""
    notebook = show_panel(open_notebook, "print(ds.sizes, sorted(ds.compiler.values))")
    notebook.page.set_viewport_size({"width": 1400, "height": 1000})
    expect(notebook.page.get_by_placeholder("search: resnet")).to_be_visible()
    cut = notebook.page.locator(".jp-OutputArea input[placeholder]").evaluate_all(_LIST_CUT)
    notebook.screenshot("sweep-form")

    assert [] == cut
    fill_form(notebook, network, "1,4")
    find_button(notebook, "Copy as cell").click()
    expect(find_button(notebook, "Copied")).to_be_visible()
    cell = notebook.page.evaluate("navigator.clipboard.readText()")

    assert cell.startswith(f"%ngbench {network} -c identity,onnxruntime,openvino -b 1,4 -r 5")
    find_button(notebook, "Run").click()
    expect_status(notebook, "has ended; ds is its dataset")
    expect(notebook.page.get_by_label("status of the trials")).to_contain_text("●●")
    expect(notebook.page.locator(".vega-embed .marks")).to_be_visible()
    notebook.screenshot("sweep-panel")
    code = f"{cell.replace('-o ds', '-o again')}\nprint(ds.sizes, [ds[name].equals(again[name]) for name in ds.coords])"
    notebook.page.evaluate(
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
    expect(notebook.page.get_by_label("status of the trials")).to_contain_text("●")
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
    expect(notebook.page.get_by_label("status of the trials")).to_contain_text("●")
    notebook.execute("kernelmenu:restart")
    notebook.page.locator(".jp-Dialog .jp-mod-accept").click()
    notebook.page.wait_for_timeout(1000)
    notebook.wait_until_idle()
    notebook.run_all()
    expect_status(notebook, "trials are missing; Resume measures them")

    find_button(notebook, "Resume").click()
    expect_status(notebook, "has ended; ds is its dataset")
