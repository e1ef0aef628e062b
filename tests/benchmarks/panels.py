"""How fast the panels are: the first chart of a sweep, Stop, and figures and tables of ten thousand trials.

In JupyterLab in a headless browser, on this machine; run it alone. Targets: a first chart in 10 s, Stop in 0.5 s, a
figure of ten thousand points below 1 MB and drawn in 2 s, and a page that answers while ten thousand trials stream in.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from drawn import measured, network
from lab import Notebook, launched, serving
from playwright.sync_api import Page

from ngbkit import figures
from ngbkit.figures import renderer

TINY = "from torch import nn\n\nmodel = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\ninput_shape = (8,)\n"
# Ten thousand records, told as a device would, twenty a moment.
STREAM = """
import threading, time
from ngbkit import synthetic
from ngbkit.notebook.panels.live import Live
from ngbkit.sweep.grid import Sweep
from ngbkit.runs.progress import Tally
from ngbkit.workloads.base import Workload

networks = [Workload(name=f"network{at}", source="timm", spec={"name": str(at)}) for at in range(125)]

class Streamed:
    id, error, warnings, ended = "streamed", None, {}, False
    sweep = Sweep(networks, ["identity", "openvino", "tvm", "iree"], range(1, 21), repeats=5)

    def __init__(self):
        self.trials = {one.id: one for one in self.sweep.trials()}
        self.tally, self.changed = Tally(self.trials, {}), threading.Event()
        threading.Thread(target=self.go, daemon=True).start()

    def go(self):
        for at, key in enumerate(self.trials):
            self.tally.count(key, "ok")
            if at % 20 == 0:
                self.changed.set()
                time.sleep(0.04)
        self.ended = True
        self.changed.set()

    progress = property(lambda self: self.tally.progress())
    statuses = property(lambda self: self.tally.statuses)
    progress_of = lambda self, device: self.tally.progress_of(device)
    dataset = lambda self: synthetic.dataset(self.sweep)

    def wait_for_change(self, timeout_s):
        self.changed.wait(timeout_s)
        self.changed.clear()

    def wait(self, timeout_s):
        time.sleep(timeout_s)

live = Live()
display(live)
live.follow(Streamed(), lambda run: None)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    _draw("overview", 2)  # altair and vl-convert are imported, once a notebook
    for name in ("throughput", "status", "latency", "traces"):
        _draw(name)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), Path(folder) / "state") as address:
        (Path(folder) / "work" / "tiny.py").write_text(TINY)
        with _page() as new:
            for when in ("the first ever, which measures the peaks of the machine", "another kernel"):
                _sweep(Notebook(new(), address, Path(folder) / "work", "%load_ext ngbkit", "%ngpanel"), when)
            _stream(Notebook(new(), address, Path(folder) / "work", STREAM, "print('heard')"))


def _draw(name: str, sizes: int = 50) -> None:
    networks = [network(f"{letter * 3}{at}") for letter in "abcde" for at in range(5)]
    if name in ("latency", "traces"):
        data = measured(*networks[:5], batch_sizes=[1, 4]).isel(repeat=[0] * 500)
    else:
        compilers = ["identity", "openvino", "tvm", "onnxruntime", "inductor", "torchscript", "iree", "executorch"]
        data = measured(*networks, compilers=compilers, batch_sizes=range(1, sizes + 1))
    began = time.perf_counter()
    chart = getattr(figures, name)(data).to_dict()
    made = time.perf_counter() - began
    bundle = renderer.mimebundle(chart)
    took, size = time.perf_counter() - began, len(json.dumps(bundle)) / 1e6
    print(
        f"{name} of {200 * sizes:,} points: {took:.1f} s ({made:.1f} s of it for the numbers), {size:.2f} MB",
        flush=True,
    )


@contextmanager
def _page() -> Iterator[Callable[[], Page]]:
    with launched() as browser:
        yield browser.new_page


def _sweep(notebook: Notebook, when: str) -> None:
    """From the click on Run to the first chart, and from that on Stop to the panel's word.

    Between the choice of a network and that click lie eight seconds, in which a person would fill in the rest.
    """
    notebook.run_all()
    page = notebook.page
    page.get_by_placeholder("search: resnet").fill("tiny.py")
    page.get_by_role("button", name="Add", exact=True).click()
    boxes = page.locator(".widget-inline-hbox", has_text="batch sizes").locator("input")
    boxes.fill("1:60")
    boxes.press("Tab")
    page.wait_for_timeout(8000)
    began = time.perf_counter()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("img", name="Throughput and speed-up").wait_for(timeout=120_000)
    print(f"from Run to the first chart ({when}): {time.perf_counter() - began:.1f} s", flush=True)
    began = time.perf_counter()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("[role=status]", has_text="stop").wait_for()
    print(f"from Stop to its answer: {time.perf_counter() - began:.2f} s", flush=True)


def _stream(notebook: Notebook) -> None:
    """How long a cell takes while ten thousand trials stream in."""
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    notebook.execute("notebook:run-cell")
    notebook.page.get_by_label("status of the trials").wait_for(timeout=60_000)
    took = []
    for _ in range(10):
        notebook.page.wait_for_timeout(1000)
        began = time.perf_counter()
        notebook.page.evaluate(
            "async () => { const panel = window.jupyterapp.shell.currentWidget; "
            "await panel.sessionContext.session.kernel.requestExecute({code: '1'}).done; }"
        )
        took.append(time.perf_counter() - began)
    print(f"a cell while 10,000 trials stream in: {sorted(took)[5]:.2f} s, {max(took):.2f} s at most", flush=True)


if __name__ == "__main__":
    main()
