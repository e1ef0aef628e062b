"""Takes the pictures of the README and of its pages, in JupyterLab in a headless browser, with real measurements.

They are saved in notebooks/screens. Run ``make screens`` on a quiet machine after a visible change.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from documents import parse_blocks
from lab import Notebook, launch_browser, serve
from PIL import Image
from playwright.sync_api import Locator

ROOT = Path(__file__).parents[1]
OUT = ROOT / "notebooks" / "screens"
STORED = "03-blocks.nc"
DEVICES = '[core0]\nlaunch = "local"\ncores = "0"\n\n[core1]\nlaunch = "local"\ncores = "1"\n'
_MEASURING_MS = 600_000
_CHART = ".vega-embed svg.marks"
# A palette takes a quarter of the size of full colour, and text and flat colours look the same.
_COLOURS = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(_PICTURES), help="take this picture alone")
    only = parser.parse_args().only
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), Path(folder) / "state") as address,
        launch_browser() as browser,
    ):
        work = Path(folder) / "work"
        shutil.copy(ROOT / "notebooks" / "data" / STORED, work)
        for name in [only] if only else _PICTURES:
            if name == "devices":
                (work / "devices.toml").write_text(DEVICES)
            cells, take = _PICTURES[name]
            page = browser.new_page(viewport={"width": 1480, "height": 2200}, device_scale_factor=1.5)
            notebook = Notebook(page, address, work, *cells)
            notebook.execute("notebook:run-all-cells")
            take(notebook)
            _save(notebook.cell(len(cells) - 1), name)
            page.close()
        browser.close()


def _read_first_cell() -> str:
    """Read the first cell of the README, which the picture shows with its output."""
    return next(block.text for block in parse_blocks(ROOT / "README.md") if block.kind == "cell")


def _take_notebook(notebook: Notebook) -> None:
    cell = notebook.cell(0)
    cell.locator(".vega-embed .marks").wait_for(timeout=_MEASURING_MS)
    notebook.page.wait_for_timeout(1000)


def _take_sweep(notebook: Notebook) -> None:
    page = notebook.page
    for network in ("resnet18", "mobilenetv3_small_100"):
        page.get_by_placeholder("search: resnet").fill(network)
        page.get_by_role("button", name="Add", exact=True).click()
        page.locator(".jupyter-widget-tag", has_text=network).wait_for()
    page.get_by_label("torchscript", exact=True).check()
    for name, text in (("batch sizes", "1,4"), ("samples", "20")):
        field = page.locator(".widget-inline-hbox", has_text=name).locator("input[type=text]").first
        field.fill(text)
        field.press("Tab")
    page.get_by_text("-b 1,4 -r 20 -o ds").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("[role=status]", has_text="has ended").wait_for(timeout=_MEASURING_MS)


def _take_explorer(notebook: Notebook) -> None:
    panel = notebook.cell(1)
    panel.locator(_CHART).wait_for(timeout=_MEASURING_MS)
    panel.get_by_label("figure", exact=True).select_option("speedup")
    for name, labels in (("workload", ["conv"]), ("width", ["32", "64"]), ("depth", ["4"])):
        panel.get_by_label(name, exact=True).select_option(labels)
    panel.get_by_text("depth=[4]").wait_for()
    notebook.page.wait_for_timeout(2000)
    panel.locator(f"{_CHART} .role-mark.mark-symbol path").nth(5).click()
    panel.get_by_text("90 % between").wait_for()
    notebook.page.mouse.move(5, 5)  # hides the tooltip of a mark
    notebook.page.wait_for_timeout(500)


def _take_devices(notebook: Notebook) -> None:
    panel = notebook.cell(1)
    for device in ("core0", "core1"):
        panel.get_by_label("device").select_option(device)
        panel.get_by_role("button", name="Start", exact=True).click()
        panel.get_by_role("row", name=device).get_by_role("cell", name="ready").wait_for(timeout=_MEASURING_MS)
    notebook.page.wait_for_timeout(2000)


def _save(panel: Locator, name: str) -> None:
    picture = Image.open(io.BytesIO(panel.screenshot())).convert("RGB")
    target = OUT / f"{name}.png"
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
    print(f"{target} ({target.stat().st_size / 1e3:.0f} kB)", flush=True)


_LOAD = "%load_ext ngbkit"
# The cells of each picture, of which it shows the last, and what is done before it is taken.
_PICTURES: dict[str, tuple[tuple[str, ...], Callable[[Notebook], None]]] = {
    "notebook": ((_read_first_cell(),), _take_notebook),
    "sweep": ((_LOAD, "%ngpanel"), _take_sweep),
    "explorer": (
        (f"{_LOAD}\nimport ngbkit\nblocks = ngbkit.load('{STORED}')", "%ngpanel explore blocks"),
        _take_explorer,
    ),
    "devices": ((_LOAD, "%ngpanel devices"), _take_devices),
}


if __name__ == "__main__":
    main()
