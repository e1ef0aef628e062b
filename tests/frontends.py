"""Runs one notebook in every front end, and writes what its user sees of a table, an error and an interrupt.

    python tests/frontends.py --only papermill ipython

The front ends are real: a Jupyter console and an IPython terminal behind a pseudo-terminal, papermill, nbconvert, and a
client that shows the messages of a kernel as VS Code does. The report is results/frontends.md.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import onnxgraphs
import pexpect
import psutil
from jupyter_client.manager import KernelManager
from patience import limit_s, wait_until

from ngbkit import options

OUT = Path(__file__).parents[1] / "results" / "frontends.md"
NOTEBOOK = "notebook.ipynb"
LOAD = "%load_ext ngbkit"
CELLS = {
    "table": "%ngbench net.onnx -c onnxruntime -b 1,2 -r 5 -o ds",
    "error": "%ngbench net.onnx -c onnxrntime -b 1 -o ds",
    "interrupt": "%ngbench net.onnx -c onnxruntime -b 64,65,66 -r 100000 -o long",
}
"""The cells of the notebook after the first, by what each shows."""
EXPECTED = {
    "table": re.compile(r"net\s.*\d.*\n(.*\n)*.*2 of 2 trials"),
    "error": re.compile(r"onnxrntime.*onnxruntime", re.DOTALL),
    "interrupt": re.compile(r"--resume \d{8}|\d{8}-\d{6}-\w+ (.*\n)?.*pending"),
}
"""A pattern of the answer to each cell."""
_PROMPT = r"In \[\d+\]: "
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")
_ERASE = re.compile(r"\x1b\[[02]?K")
_COLUMNS = 160

View = dict[str, str]
"""The text that a user sees, by the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """A folder with the network, its environment, and how long the last cell runs before its interrupt."""

    folder: Path
    measuring_s: float = 3.0
    environment: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        folders = {"NGBKIT_STATE_DIR": "state", "IPYTHONDIR": "ipython", "JUPYTER_CONFIG_DIR": "config"}
        paths = {name: str(self.folder / path) for name, path in folders.items()}
        settings = {"NGBKIT_PATIENCE": "0", "TERM": "dumb", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        object.__setattr__(self, "environment", {**os.environ, **paths, **settings})
        onnxgraphs.residual(self.folder).rename(self.folder / "net.onnx")

    def interrupt(self, action: Callable[[], object], runs: int = 1) -> None:
        """Interrupt the last of so many new runs by `action`, once it has measured for a while."""
        earlier = self._list_runs()
        wait_until(lambda: len(self._list_runs() - earlier) == runs)
        time.sleep(self.measuring_s)
        action()

    def _list_runs(self) -> set[str]:
        return {path.name for path in (self.folder / "state" / options.LAYOUT.runs).glob("*") if path.is_dir()}

    def run(self, command: Sequence[str], interrupt: Callable[[int], object] | None = None, runs: int = 1) -> str:
        """Run a program to its end, or to the interrupt of its last run by its process id, and return its output."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        if interrupt is not None:
            self.interrupt(lambda: interrupt(process.pid), runs)
        return render_terminal(process.communicate(timeout=limit_s())[0])

    def write_notebook(self, *sources: str) -> None:
        """Write a notebook of these cells."""
        kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
        cells = [nbformat.v4.new_code_cell(source) for source in sources]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), self.folder / NOTEBOOK)


def run_terminal(desk: Desk, command: Sequence[str]) -> View:
    """Type the cells at the prompts of a terminal."""
    terminal = pexpect.spawn(
        sys.executable,
        ["-m", *command, "--simple-prompt"],
        cwd=str(desk.folder),
        env=desk.environment,
        encoding="utf-8",
        timeout=limit_s(),
        dimensions=(40, _COLUMNS),
    )
    view = {}
    terminal.expect(_PROMPT)
    for name, source in {"load": LOAD, **CELLS}.items():
        terminal.sendline(source)
        if name == "interrupt":
            desk.interrupt(terminal.sendintr)
        terminal.expect(_PROMPT)
        view[name] = render_terminal(terminal.before).removeprefix(source).strip("\n")
    terminal.sendline("exit")
    terminal.expect(pexpect.EOF)
    terminal.close()
    return view


def run_console(desk: Desk) -> View:
    """Run the cells in a Jupyter console."""
    return run_terminal(
        desk, ["jupyter_console", "--kernel=python3", "--ZMQTerminalInteractiveShell.simple_prompt=True"]
    )


def run_ipython(desk: Desk) -> View:
    """Run the cells in an IPython terminal."""
    return run_terminal(desk, ["IPython", "--no-banner", "--colors=nocolor"])


def run_papermill(desk: Desk) -> View:
    """Run the notebook up to its error, and again up to Ctrl-C, after which papermill reads no output of its kernel."""
    output = desk.folder / "output.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", str(desk.folder / NOTEBOOK), str(output)]
    desk.write_notebook(LOAD, CELLS["table"], CELLS["error"])
    error = desk.run(command)
    table = read_outputs(output)[CELLS["table"]]
    desk.write_notebook(LOAD, CELLS["interrupt"])
    interrupt = desk.run(command, press_ctrl_c)
    listed = desk.run([sys.executable, "-m", "ngbkit", "runs"])
    return {"table": table, "error": _shorten(error), "interrupt": f"{_shorten(interrupt)}\n{listed}"}


def run_nbconvert(desk: Desk) -> View:
    """Run the whole notebook; its kernel is interrupted in the last cell, as at a time limit of nbconvert."""
    desk.write_notebook(LOAD, *CELLS.values())
    switches = ["--to=notebook", "--execute", "--allow-errors", "--output=converted"]
    printed = desk.run([sys.executable, "-m", "nbconvert", *switches, NOTEBOOK], interrupt_kernel, runs=2)
    outputs = read_outputs(desk.folder / "converted.ipynb")
    view = {name: outputs[source] for name, source in CELLS.items()}
    return {**view, "interrupt": f"{view['interrupt']}\n--- in the terminal\n{_shorten(printed)}"}


def press_ctrl_c(pid: int) -> None:
    """Interrupt a program in the foreground of its terminal."""
    os.killpg(pid, signal.SIGINT)


def interrupt_kernel(pid: int) -> None:
    """Interrupt the kernel of a program that runs a notebook."""
    (kernel,) = (child for child in psutil.Process(pid).children() if "ipykernel_launcher" in child.cmdline())
    kernel.send_signal(signal.SIGINT)


def run_client(desk: Desk) -> View:
    """Show the messages of a kernel as VS Code does: a cell shows no update of another cell's displays."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=dict(desk.environment), cwd=str(desk.folder))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=limit_s())
    try:
        view = {}
        for name, source in {"load": LOAD, **CELLS}.items():
            message = client.execute(source)
            if name == "interrupt":
                desk.interrupt(manager.interrupt_kernel)
            view[name] = render_outputs(_collect_outputs(client, message))
        return view
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


FRONT_ENDS: Mapping[str, Callable[[Desk], View]] = {
    "console": run_console,
    "papermill": run_papermill,
    "nbconvert": run_nbconvert,
    "ipython": run_ipython,
    "vscode": run_client,
}


def _collect_outputs(client: Any, request: str) -> list[Mapping[str, Any]]:
    """Collect the outputs of a request until its kernel is idle, each display as it was last."""
    outputs: list[dict[str, Any]] = []
    while True:
        message = client.get_iopub_msg(timeout=limit_s())
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != request:
            continue
        if kind == "status" and content["execution_state"] == "idle":
            return list(outputs)
        if kind in ("stream", "display_data", "execute_result", "error"):
            outputs.append({"output_type": kind, **content})
        elif kind == "update_display_data":
            for output in outputs:
                if output.get("transient") == content["transient"]:
                    output["data"] = content["data"]


def read_outputs(notebook: Path) -> dict[str, str]:
    """Read the outputs of a notebook, as text by the source of the cell."""
    cells = nbformat.read(notebook, as_version=4).cells
    return {cell.source: render_outputs(cell.outputs) for cell in cells if cell.cell_type == "code"}


def render_outputs(outputs: Iterable[Mapping[str, Any]]) -> str:
    """Render the outputs of a cell as text."""
    texts = []
    for output in outputs:
        if output["output_type"] == "stream":
            texts.append(output["text"])
        elif output["output_type"] == "error":
            texts.append("\n".join(output["traceback"]) or f"(an error without a text: {output['ename']})")
        else:
            texts.append(output["data"].get("text/plain", f"({', '.join(output['data'])})"))
    return render_terminal("\n".join(texts)).strip("\n")


def render_terminal(text: str) -> str:
    """Render what a terminal shows at the end: without colours, each line as it was last overwritten."""
    return "\n".join(_render_line(line) for line in text.replace("\r\n", "\n").split("\n"))


def _render_line(line: str) -> str:
    screen = ""
    for part in line.split("\r"):
        *erased, visible = _ERASE.split(part)
        text = _ESCAPE.sub("", visible)
        screen = text if erased else text + screen[len(text) :]
    return screen.rstrip()


def _shorten(text: str, most: int = 12) -> str:
    """Keep the last lines."""
    lines = text.strip("\n").splitlines()
    return "\n".join(lines if len(lines) <= most else [f"({len(lines) - most} lines)", *lines[-most:]])


def render_report(views: Mapping[str, View]) -> str:
    """Render the report as Markdown: whether each front end shows each answer, and then its text."""
    rows = [
        f"| {name} | " + " | ".join("yes" if EXPECTED[cell].search(view[cell]) else "NO" for cell in CELLS) + " |"
        for name, view in views.items()
    ]
    parts = ["# One notebook in every front end", "\n".join([f"| | {' | '.join(CELLS)} |", "| --- " * 4 + "|", *rows])]
    for cell, source in CELLS.items():
        parts.append(f"## {cell}: `{source}`")
        parts += [f"{name}:\n\n```text\n{view[cell]}\n```" for name, view in views.items()]
    return "\n\n".join(parts) + "\n"


def record(front_end: str, measuring_s: float) -> View:
    """Run the notebook in a front end, with a folder and a state folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        return FRONT_ENDS[front_end](Desk(folder=Path(folder), measuring_s=measuring_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=FRONT_ENDS, default=list(FRONT_ENDS), help="run these alone")
    parser.add_argument("--after", type=float, default=3.0, metavar="S", help="interrupt after so many seconds")
    arguments = parser.parse_args()
    # Children of a background job would ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    views = {name: record(name, arguments.after) for name in arguments.only}
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(render_report(views))
    print(OUT.read_text())


if __name__ == "__main__":
    main()
