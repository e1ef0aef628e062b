"""The panels of datasets and devices in JupyterLab in a browser."""

from __future__ import annotations

from lab_panels import Open, find_button
from playwright.sync_api import expect

# The page has other drawings too, such as the icons of buttons.
CHART = ".vega-embed svg.marks"


def test_the_explorer_draws_figures_and_trials(open_notebook: Open, network: str) -> None:
    """The explorer draws the selected figure, describes the clicked trial, and shows the figure's code."""
    notebook = open_notebook(
        "%load_ext ngbkit", f"%ngbench {network} -c identity,onnxruntime -b 1,4 -r 10 -o ds", "%ngpanel explore ds", ""
    )
    notebook.run_all()
    panel = notebook.cell(2)
    circles = panel.locator(f"{CHART} .role-mark.mark-symbol path")
    expect(circles).to_have_count(4)
    for index, trial in ((3, "tiny, onnxruntime, batch 4 on cpu"), (0, "tiny, identity, batch 1 on cpu")):
        circles.nth(index).click()
        expect(panel.locator("table", has_text="90 % between")).to_contain_text(trial)
        expect(panel.get_by_label("trial", exact=True).locator("option:checked")).to_have_text(trial)
    notebook.screenshot("explorer")
    panel.get_by_label("figure", exact=True).select_option("status")
    expect(panel.get_by_text("ds.ngb.plot.status()")).to_be_visible()
    expect(panel.locator(f"{CHART} .role-mark.mark-rect path")).to_have_count(4)
    panel.get_by_label("trial", exact=True).select_option("tiny, onnxruntime, batch 4 on cpu")
    expect(panel.locator("table", has_text="90 % between")).to_contain_text("tiny, onnxruntime, batch 4 on cpu")


def test_the_panel_of_devices_starts_an_engine(open_notebook: Open) -> None:
    """The panel of devices starts an engine and shows that it is ready, with the device's load."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel devices")
    notebook.run_all()
    find_button(notebook, "Start").click()
    expect(notebook.cell(1).get_by_role("cell", name="ready")).to_be_visible()
    expect(notebook.cell(1).get_by_role("cell", name="GB")).to_be_visible()
    notebook.screenshot("devices-panel")
    find_button(notebook, "Stop").click()
    expect(notebook.cell(1).get_by_role("cell", name="none")).to_be_visible()
