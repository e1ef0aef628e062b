"""The panels of datasets and devices in JupyterLab in a browser."""

from __future__ import annotations

from pathlib import Path

import synthetic
from accessible import find_violations
from lab_panels import Open
from playwright.sync_api import expect

# The page has other drawings too, such as the icons of buttons.
CHART = ".chart svg.marks"


def test_the_panel_links_table_and_figure(open_notebook: Open, network: str) -> None:
    """The panel draws the selected figure, describes the clicked trial, marks its row, and downloads a picture."""
    notebook = open_notebook(
        "%load_ext ngbkit", f"%ngbench {network} -c identity,onnxruntime -b 1,4 -r 10 -o ds", "%ngpanel explore ds", ""
    )
    notebook.run_all()
    panel = notebook.cell(2)
    panel.get_by_label("metric", exact=True).select_option("throughput")
    circles = panel.locator(f"{CHART} .role-mark.mark-symbol path")
    expect(circles).to_have_count(4)
    for index, trial in ((3, "tiny, onnxruntime, batch 4 on cpu"), (0, "tiny, identity, batch 1 on cpu")):
        circles.nth(index).click()
        expect(panel.locator("table.sheet")).to_contain_text(trial)
        expect(panel.locator("tr[aria-selected=true] button")).to_have_attribute("aria-label", f"details of {trial}")
    notebook.screenshot("explorer")
    panel.get_by_label("figure", exact=True).select_option("status")
    expect(panel.get_by_text("ds.ngb.plot.status()")).to_be_visible()
    expect(panel.locator(f"{CHART} .role-mark.mark-rect path")).to_have_count(4)
    panel.get_by_label("details of tiny, onnxruntime, batch 4 on cpu").click()
    expect(panel.locator("table.sheet")).to_contain_text("tiny, onnxruntime, batch 4 on cpu")
    panel.get_by_label("figure", exact=True).select_option("heatmap")
    expect(panel.locator(CHART)).to_have_count(0)
    panel.get_by_label("figure", exact=True).select_option("speedup")
    with notebook.page.expect_download() as download:
        panel.get_by_role("button", name="PDF 88 mm").click()

    assert "ds-speedup-88mm.pdf" == download.value.suggested_filename


def test_labels_of_others_run_nothing(open_notebook: Open) -> None:
    """A label with an element is a text in tables, figures and the panel, also where a notebook is trusted."""
    notebook = open_notebook(
        "%load_ext ngbkit",
        f"import sys\nsys.path.append({str(Path(synthetic.__file__).parent)!r})\n"
        "import synthetic\nfrom ngbkit.api import Sweep\nfrom ngbkit.workloads import cell\n"
        'net = cell.from_source("import torch\\nmodel = torch.nn.Linear(8, 2)\\ninput_shape = (8,)")\n'
        'ds = synthetic.make_dataset(Sweep(net, ["identity", "openvino"], [1, 4], repeats=10))\n'
        """ds = ds.assign_coords(workload=["<img src=x onerror='window.ran = true'>"])""",
        "ds",
        "ds.ngb.table('speedup')",
        "ds.ngb.plot.throughput()",
        "%ngpanel explore ds",
    )
    notebook.run_all()
    details = notebook.cell(5).locator("button[aria-label^='details of']")
    details.first.click()
    expect(notebook.cell(5).locator("table.sheet")).to_contain_text("onerror")

    assert notebook.page.evaluate("window.ran") is None


def test_the_panel_of_devices_starts_an_engine(open_notebook: Open) -> None:
    """The panel of devices starts an engine by keyboard, shows its load and its log, and axe-core finds no fault."""
    notebook = open_notebook("%load_ext ngbkit", "%ngpanel devices")
    notebook.run_all()
    page = notebook.page
    page.get_by_role("button", name="Start the engine of cpu", exact=True).press("Enter")
    expect(notebook.cell(1).get_by_role("cell", name="ready")).to_be_visible()
    expect(notebook.cell(1).get_by_role("cell", name="GB")).to_be_visible()
    expect(page.get_by_role("button", name="Stop the engine of cpu")).to_be_focused()
    page.get_by_role("button", name="Log of cpu").press("Space")
    expect(page.get_by_label("log of cpu", exact=True)).to_contain_text("engine, at")
    notebook.screenshot("devices-panel")

    assert [] == find_violations(page, ".ngbkit")

    page.get_by_role("button", name="Stop the engine of cpu").press("Enter")
    expect(notebook.cell(1).get_by_role("cell", name="none").first).to_be_visible()
