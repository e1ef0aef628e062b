"""Measures the panel: first numbers, Stop, messages of a live run, figures and tables of ten thousand trials.

It runs JupyterLab in a headless browser; run it alone. Targets: first numbers in 10 s, Stop in 0.5 s, a figure of ten
thousand points below 1 MB and drawn in 2 s, and a page that responds while ten thousand trials stream in.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from drawn import measured, network
from lab import Notebook, launch_browser, serve
from playwright.sync_api import Page

from ngbkit import figures
from ngbkit.figures import renderer

TINY = "from torch import nn\n\nmodel = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\ninput_shape = (8,)\n"
# Ten thousand records, reported as by a device, twenty at a time.
STREAM = """
import threading, time
from ngbkit.dataset import synthetic
from ngbkit.notebook.panels.page import Page
from ngbkit.notebook.panels.watch import WatchSection
from ngbkit.api import Sweep
from ngbkit.runs.progress import ProgressTracker
from ngbkit.workloads.base import Workload

networks = [Workload(name=f"network{index}", source="timm", spec={"name": str(index)}) for index in range(125)]

class Streamed:
    id, error, warnings, ended = "streamed", None, {}, False
    sweep = Sweep(networks, ["identity", "openvino", "tvm", "iree"], range(1, 21), repeats=5)

    def __init__(self):
        self.trials = {trial.id: trial for trial in self.sweep.trials()}
        self.tracker, self.changed = ProgressTracker(self.trials, {}), threading.Event()
        threading.Thread(target=self.go, daemon=True).start()

    def go(self):
        for index, key in enumerate(self.trials):
            self.tracker.record(key, "ok")
            if index % 20 == 0:
                self.changed.set()
                time.sleep(0.04)
        self.ended = True
        self.changed.set()

    progress = property(lambda self: self.tracker.snapshot())
    statuses = property(lambda self: self.tracker.statuses)
    progress_of = lambda self, device: self.tracker.snapshot(device)
    dataset = lambda self: synthetic.make_dataset(self.sweep)

    def wait_for_change(self, timeout_s):
        self.changed.wait(timeout_s)
        self.changed.clear()

    def wait(self, timeout_s):
        time.sleep(timeout_s)

page = Page()
page.show("page", '<div data-part="message"></div><div data-part="watch"></div>')
watch = WatchSection(page, lambda run: None)
display(page)
watch.follow(Streamed())
page.flush()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    _time_figure("overview", 2)  # altair and vl-convert are imported, once a notebook
    for name in ("throughput", "status", "latency", "traces"):
        _time_figure(name)
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder), Path(folder) / "state") as address:
        (Path(folder) / "work" / "tiny.py").write_text(TINY)
        with _open_browser() as new:
            for when in ("the first ever, which measures the peaks of the machine", "another kernel"):
                _time_sweep(Notebook(new(), address, Path(folder) / "work", "%load_ext ngbkit", "%ngpanel"), when)
            _time_stream(Notebook(new(), address, Path(folder) / "work", STREAM, "print('heard')"))


def _time_figure(name: str, sizes: int = 50) -> None:
    networks = [network(f"{letter * 3}{index}") for letter in "abcde" for index in range(5)]
    if name in ("latency", "traces"):
        data = measured(*networks[:5], batch_sizes=[1, 4]).isel(repeat=[0] * 500)
    else:
        compilers = ["identity", "openvino", "tvm", "onnxruntime", "inductor", "torchscript", "iree", "executorch"]
        data = measured(*networks, compilers=compilers, batch_sizes=range(1, sizes + 1))
    began = time.perf_counter()
    chart = getattr(figures, name)(data).to_dict()
    compute_s = time.perf_counter() - began
    bundle = renderer.to_mimebundle(chart)
    total_s, size = time.perf_counter() - began, len(json.dumps(bundle)) / 1e6
    print(
        f"{name} of {200 * sizes:,} points: {total_s:.1f} s ({compute_s:.1f} s of it for the numbers), {size:.2f} MB",
        flush=True,
    )


@contextmanager
def _open_browser() -> Iterator[Callable[[], Page]]:
    with launch_browser() as browser:
        yield browser.new_page


def _time_sweep(notebook: Notebook, when: str) -> None:
    """Print the time from the click on Run to the first chart, and from the click on Stop to the status of the panel.

    Eight seconds pass between the choice of a network and the click on Run, in which a person would fill in the rest.
    """
    notebook.run_all()
    page = notebook.page
    page.get_by_label("networks:").fill("tiny.py")
    page.get_by_label("networks:").press("Enter")
    page.get_by_label("batch sizes").fill("1:60")
    page.get_by_label("batch sizes").press("Tab")
    page.wait_for_timeout(8000)
    began = time.perf_counter()
    page.get_by_role("button", name="Run", exact=True).click()
    page.locator(".ngbkit table", has_text="so far").wait_for(timeout=120_000)
    print(f"from Run to the first numbers ({when}): {time.perf_counter() - began:.1f} s", flush=True)
    began = time.perf_counter()
    page.get_by_role("button", name="Stop", exact=True).click()
    page.locator("[role=status]", has_text="stop").wait_for()
    print(f"from Stop to its answer: {time.perf_counter() - began:.2f} s", flush=True)


def _time_stream(notebook: Notebook) -> None:
    """Print the duration of a cell while ten thousand trials stream in."""
    notebook.page.evaluate("window.jupyterapp.shell.currentWidget.content.activeCellIndex = 0")
    sizes: list[tuple[float, int]] = []
    session = notebook.page.context.new_cdp_session(notebook.page)
    session.send("Network.enable")
    session.on(
        "Network.webSocketFrameReceived",
        lambda event: sizes.append((time.perf_counter(), len(event["response"]["payloadData"]))),
    )
    notebook.execute("notebook:run-cell")
    notebook.page.get_by_label("status of the trials").first.wait_for(timeout=60_000)
    durations = []
    for _ in range(10):
        notebook.page.wait_for_timeout(1000)
        began = time.perf_counter()
        notebook.page.evaluate(
            "async () => { const panel = window.jupyterapp.shell.currentWidget; "
            "await panel.sessionContext.session.kernel.requestExecute({code: '1'}).done; }"
        )
        durations.append(time.perf_counter() - began)
    print(
        f"messages while they stream in: {_count_rate(sizes):.1f} in the busiest second, "
        f"{max(size for _, size in sizes) / 1e3:.0f} kB at most (base64 where binary)",
        flush=True,
    )
    print(
        f"a cell while 10,000 trials stream in: {sorted(durations)[5]:.2f} s, {max(durations):.2f} s at most",
        flush=True,
    )


def _count_rate(sizes: list[tuple[float, int]]) -> float:
    """Count the messages of a panel in the busiest second."""
    times = [moment for moment, size in sizes if size > 2000]
    return max((sum(start <= moment < start + 1 for moment in times) for start in times), default=0)


if __name__ == "__main__":
    main()
