"""Takes the pictures of the README and of the site, in JupyterLab in a headless browser, with real measurements.

They are saved in notebooks/screens: the panels, and the first five minutes as a series. Run ``make screens`` on a quiet
machine after a visible change; it takes about eight minutes. ``make screens ARGS='--only NAME'`` takes one again.
"""

from __future__ import annotations

import argparse
import io
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import first_minutes
from lab import Notebook, launch_browser, serve
from PIL import Image
from playwright.sync_api import Locator
from scenes import MEASURING_MS, Rectangle, Save, Scene, add_networks, crop_bottom

ROOT = Path(__file__).parents[1]
OUT = ROOT / "notebooks" / "screens"
STORED = ("blocks.nc", "paper.nc")
DEVICES = '[core0]\nlaunch = "local"\ncores = "0"\n\n[core1]\nlaunch = "local"\ncores = "1"\n'
_CHART = ".vega-embed svg.marks"
# A palette takes a quarter of the size of full colour; one of fewer colours would give two thin lines the same.
_COLOURS = (0, 256, 128)
_MOST_BYTES = 99_000


def main() -> None:
    names = [name for scene in _SCENES for name in scene.pictures]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=names, metavar="NAME", help=f"take these pictures alone, of {', '.join(names)}"
    )
    selected = parser.parse_args().only or names
    OUT.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), Path(folder) / "state") as address,
        launch_browser() as browser,
    ):
        work = Path(folder) / "work"
        for name in STORED:
            shutil.copy(ROOT / "notebooks" / "data" / name, work)
        for scene in _SCENES:
            if not {*scene.pictures} & {*selected}:
                continue
            for name, text in scene.files.items():
                (work / name).write_text(text)
            page = browser.new_page(
                viewport={"width": scene.width, "height": scene.height}, device_scale_factor=scene.scale
            )
            notebook = Notebook(page, address, work, *scene.cells)
            scene.take(notebook, _build_save(selected), work)
            page.close()
        browser.close()


def _build_save(selected: Sequence[str]) -> Save:
    def save(target: Locator | Rectangle, name: str) -> None:
        if name in selected:
            _write(_capture(target), OUT / f"{name}.png")

    return save


def _capture(target: Locator | Rectangle) -> Image.Image:
    if isinstance(target, Rectangle):
        picture = target.page.screenshot(clip=target.clip)
        return crop_bottom(Image.open(io.BytesIO(picture)).convert("RGB"))
    return Image.open(io.BytesIO(target.screenshot())).convert("RGB")


def _write(picture: Image.Image, target: Path) -> None:
    """Write a picture in true colours, or with as many as its size allows."""
    for colours in _COLOURS:
        buffer = io.BytesIO()
        reduced = picture.quantize(colours, kmeans=2, dither=Image.Dither.NONE) if colours else picture
        reduced.save(buffer, "PNG", optimize=True)
        if buffer.tell() < _MOST_BYTES:
            break
    target.write_bytes(buffer.getvalue())
    print(f"{target} ({target.stat().st_size / 1e3:.0f} kB)", flush=True)


def _take_notebook(notebook: Notebook, save: Save, _work: Path) -> None:
    notebook.execute("notebook:run-all-cells")
    cell = notebook.cell(1)
    cell.locator(".vega-embed .marks").wait_for(timeout=MEASURING_MS)
    notebook.page.wait_for_timeout(1000)
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    notebook.page.mouse.move(5, 5)  # hides the tools of a cell
    notebook.page.wait_for_timeout(500)
    save(cell, "notebook")


def _take_sweep(notebook: Notebook, save: Save, _work: Path) -> None:
    page = notebook.page
    notebook.execute("notebook:run-all-cells")
    add_networks(page, "resnet18", "mobilenetv3_small_100")
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator("[role=status]", has_text="has ended").wait_for(timeout=MEASURING_MS)
    page.locator(_CHART).wait_for(timeout=MEASURING_MS)
    page.wait_for_timeout(2000)
    save(notebook.cell(1), "sweep")


def _take_explorer(notebook: Notebook, save: Save, _work: Path) -> None:
    notebook.execute("notebook:run-all-cells")
    panel = notebook.cell(1)
    panel.locator(_CHART).wait_for(timeout=MEASURING_MS)
    panel.get_by_label("figure", exact=True).select_option("speedup")
    for name, labels in (("workload", ["conv"]), ("width", ["32", "64"]), ("depth", ["4"])):
        title = name.replace("_", " ")
        panel.locator("summary", has_text=f"{title}:").click()
        panel.get_by_role("button", name=f"none {title}").click()
        for label in labels:
            panel.locator("details", has_text=f"{title}:").get_by_label(label, exact=True).check()
        panel.locator("summary", has_text=f"{title}:").click()
    panel.locator("code", has_text="depth=").wait_for()
    notebook.page.wait_for_timeout(2000)
    panel.locator(f"{_CHART} .role-mark.mark-symbol path").nth(5).click()
    panel.locator("table.sheet").wait_for()
    notebook.page.mouse.move(5, 5)  # hides the tooltip of a mark
    notebook.page.wait_for_timeout(500)
    save(panel, "explorer")


def _take_devices(notebook: Notebook, save: Save, _work: Path) -> None:
    notebook.execute("notebook:run-all-cells")
    panel = notebook.cell(1)
    for device in ("core0", "core1"):
        panel.get_by_role("button", name=f"Start the engine of {device}", exact=True).click()
        panel.get_by_role("row", name=device).get_by_role("cell", name="ready").wait_for(timeout=MEASURING_MS)
    notebook.page.wait_for_timeout(2000)
    save(panel, "devices")


_LOAD = "%load_ext ngbkit"
# Stored measurements of two blocks that gain differently.
_BLOCKS = """blocks = {"workload": ["mha", "conv"], "width": [64, 512], "compiler": ["onnxruntime", "openvino"]}
display(paper.ngb.table("speedup", batch_size=1, **blocks))
paper.ngb.plot.speedup(batch_size=1, **blocks)"""
# Each scene is one notebook. The devices file is last: the others measure on this machine as it is.
_SCENES = (
    *first_minutes.SCENES,
    Scene(
        ("notebook",), (f"{_LOAD}\nimport ngbkit\npaper = ngbkit.load('paper.nc')", _BLOCKS), _take_notebook, width=1400
    ),
    Scene(("sweep",), (_LOAD, "%ngpanel"), _take_sweep),
    Scene(
        ("explorer",),
        (f"{_LOAD}\nimport ngbkit\nblocks = ngbkit.load('blocks.nc')", "%ngpanel explore blocks"),
        _take_explorer,
    ),
    Scene(("devices",), (_LOAD, "%ngpanel devices"), _take_devices, files={"devices.toml": DEVICES}),
)


if __name__ == "__main__":
    main()
