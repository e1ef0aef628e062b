"""Records a session as a student has it: one cell, changed and run again in JupyterLab in a headless browser.

It prints the seconds of each step, to the first number in the output and to the end of the cell, and saves a screenshot
of each in results/screens. Run it alone on a quiet machine: ``python bench/session.py``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil
from lab import THEMES, Notebook, launch_browser, serve

CELL = """%%ngbench -c identity,torchscript,onnxruntime,openvino -b {batch_sizes} -o {name}
{comment}import torch
from torch import nn

def block(channels):
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), {activation})

model = nn.Sequential(nn.Conv2d(3, {width}, 3, stride=2), *(block({width}) for _ in range({depth})), nn.Flatten(1))
input_shape = (3, 64, 64)
"""
START = {
    "batch_sizes": "1,2,4,8",
    "name": "it1",
    "comment": "",
    "activation": "nn.ReLU()",
    "width": 32,
    "depth": 4,
}
# Each step changes these values of the cell.
STEPS = (
    ("the first cell, 16 trials", {}),
    ("unchanged", {}),
    ("another comment", {"comment": "# a first try\n"}),
    ("one batch size more", {"batch_sizes": "1,2,4,8,16", "name": "it2"}),
    ("another activation", {"activation": "nn.SiLU()", "name": "it3"}),
    ("a wider block", {"activation": "nn.SiLU()", "width": 48, "name": "it4"}),
)
# A number with its interval: in a cell of a table, which names no time.
_NUMBER = "/(\\u00b1|\\(\\d[\\d.]* to )/"
MEASURING_MS = 900_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--theme", choices=sorted(THEMES), default="light")
    theme = parser.parse_args().theme
    with (
        tempfile.TemporaryDirectory() as folder,
        serve(Path(folder), Path(folder) / "state", theme=theme) as address,
        launch_browser() as browser,
    ):
        page = browser.new_page(viewport={"width": 1400, "height": 1000})
        notebook = Notebook(page, address, Path(folder) / "work", "%load_ext ngbkit", CELL.format(**START))
        notebook.run(0)
        for number, (title, seconds) in enumerate(_run_steps(notebook), 1):
            _report(title, *seconds)
            _save(notebook, f"session-{theme}-{number}")
        _restart(notebook)
        _report("Run All after the kernel was restarted", *_time(notebook, 0, 1))
        _save(notebook, f"session-{theme}-restarted")
        browser.close()


def _run_steps(notebook: Notebook) -> Iterator[tuple[str, tuple[float, float]]]:
    values = dict(START)
    for title, changes in STEPS:
        values |= changes
        _write(notebook, 1, CELL.format(**values))
        yield title, _time(notebook, 1)


def _write(notebook: Notebook, number: int, source: str) -> None:
    """Write the source of a cell as by hand: click into it, select all, insert."""
    notebook.cell(number).locator(".cm-content").first.click()
    notebook.page.keyboard.press("Control+a")
    notebook.page.keyboard.insert_text(source)


def _time(notebook: Notebook, *numbers: int) -> tuple[float, float]:
    """Run cells; the seconds to the first number with an interval in the output of the last, and to its end."""
    page, last = notebook.page, numbers[-1]
    page.evaluate(_clear(last))
    began = time.perf_counter()
    for number in numbers:
        page.evaluate(f"window.jupyterapp.shell.currentWidget.content.activeCellIndex = {number}")
        notebook.execute("notebook:run-cell")
    page.wait_for_function(
        f"() => {{ const output = document.querySelectorAll('.jp-Notebook .jp-CodeCell')[{last}]"
        f".querySelector('.jp-Cell-outputArea'); return output && {_NUMBER}.test(output.innerText); }}",
        polling=50,
        timeout=MEASURING_MS,
    )
    first = time.perf_counter() - began
    page.wait_for_function(
        f"() => {{ const cells = document.querySelectorAll('.jp-Notebook .jp-CodeCell');"
        f" return !cells[{last}].querySelector('.jp-InputPrompt').innerText.includes('*') && window.ngbkitIdle(); }}",
        polling=50,
        timeout=MEASURING_MS,
    )
    return first, time.perf_counter() - began


def _clear(number: int) -> str:
    """Build a script that empties the output of a cell, so that no number of an earlier step is read."""
    return (
        "(() => { const content = window.jupyterapp.shell.currentWidget.content;"
        f" content.widgets[{number}].model.clearExecution(); content.widgets[{number}].outputArea.model.clear(); }})()"
    )


def _restart(notebook: Notebook) -> None:
    page = notebook.page
    page.evaluate("void window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.wait_for_timeout(3000)
    notebook.wait_until_idle()


def _save(notebook: Notebook, name: str) -> None:
    notebook.page.wait_for_timeout(1000)
    output = notebook.cell(1).locator(".jp-Cell-outputArea")
    height = int(output.evaluate("element => element.scrollHeight")) + 700
    notebook.page.set_viewport_size({"width": 1400, "height": max(1000, height)})
    notebook.page.wait_for_timeout(500)
    notebook.screenshot(name)


def _report(title: str, first_s: float, end_s: float) -> None:
    load = psutil.getloadavg()[0]
    print(f"{title:40s} first number {first_s:6.1f} s, end {end_s:6.1f} s; load {load:.1f}", flush=True)


if __name__ == "__main__":
    main()
