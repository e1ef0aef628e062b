"""A panel that composes a sweep, measures it, and shows it meanwhile."""

from __future__ import annotations

from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython.core.error import UsageError as IPythonUsageError
from IPython.core.getipython import get_ipython

from ngbkit import runs
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.notebook import modules
from ngbkit.notebook.panels import ahead
from ngbkit.notebook.panels.copying import CopyButton
from ngbkit.notebook.panels.form import Form
from ngbkit.notebook.panels.line import MAGIC
from ngbkit.notebook.panels.live import Live
from ngbkit.predictor.forecast import expected

if TYPE_CHECKING:
    from ngbkit.runs import Run

# A run that was not finished is looked for among so many of the latest.
_LATEST = 20


class SweepPanel(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """Pick networks, compilers, devices and batch sizes; run, stop, resume; the dataset is bound to a variable.

    The panel is the line of a magic, which it shows: what it does a cell can do, and "Copy as cell" gives that cell.
    """

    def __init__(self) -> None:
        self._shell: Any = get_ipython()
        if self._shell is None:
            raise UsageError("a panel is for a notebook: there is no IPython here. `ngbkit run` measures from a shell.")
        if MAGIC not in self._shell.magics_manager.magics["line"]:
            self._shell.run_line_magic("load_ext", "ngbkit")
        self.active: Run | None = None
        self.run = widgets.Button(description="Run", button_style="primary", tooltip="measure this sweep")
        self.stop = widgets.Button(description="Stop", disabled=True, tooltip="stop; what was measured is kept")
        self.resume = widgets.Button(description="Resume", disabled=True, tooltip="measure what is missing")
        self.copy = CopyButton()
        self.line = widgets.HTML()
        self.outlook = widgets.HTML()
        self.message = widgets.HTML()
        self.live = Live()
        self._unfinished = ""
        self._ahead = False
        self.form = Form(lambda: modules.find(self._shell.user_ns), self._refresh)
        self.run.on_click(lambda _: self._start(MAGIC, f"{self.form.line.text()} --background"))
        self.resume.on_click(lambda _: self._start("ngruns", self._resuming()))
        self.stop.on_click(lambda _: self._stop())
        buttons = widgets.HBox([self.run, self.stop, self.resume, self.copy])
        super().__init__([self.form, self.line, self.outlook, buttons, self.message, self.live])
        self._find_unfinished()
        self._refresh()

    def _refresh(self) -> None:
        """Say what the form asks for, how much that is, and whether it is valid."""
        try:
            line = self.form.line
            cell = line.cell()
            sweep = line.sweep(modules.find(self._shell.user_ns))
            told = expected.describe(sweep, expected.expected_s(sweep))
        except NgbkitError as error:
            self.copy.text, self.line.value = "", ""
            self.outlook.value = f"<em>{escape(str(error))}</em>"
            self.run.disabled = True
            return
        self.copy.text = cell
        self.line.value = f"<code>{escape(cell)}</code>"
        self.outlook.value = escape(told)
        self.run.disabled = self.active is not None
        if not self._ahead:
            self._ahead = True
            ahead.start(sweep)

    def _start(self, magic: str, line: str) -> None:
        self._say("")
        try:
            found: Run = self._shell.run_line_magic(magic, line)
        except (NgbkitError, IPythonUsageError) as error:
            self._say(str(error))
            return
        self.active = found
        self.run.disabled, self.stop.disabled, self.resume.disabled = True, False, True
        self.live.follow(found, self._ended)

    def _stop(self) -> None:
        if self.active is not None:
            self.active.stop()
            self.stop.disabled = True
            self._say("stopping: what was measured is kept")

    def _ended(self, run: Run) -> None:
        """The run is over, by itself or not; its dataset is bound by the magic."""
        self.active = None
        left = run.progress.total - run.progress.done
        self._unfinished = run.id if left else ""
        self.stop.disabled, self.resume.disabled = True, not self._unfinished
        self._refresh()
        if run.error is not None:
            self._say(f"run {run.id} failed: {run.error}")
        elif left:
            self._say(f"run {run.id} was stopped; {left} trials are missing, and Resume measures them")
        else:
            self._say(f"run {run.id} has ended; {self.form.out.value} holds its dataset")

    def _resuming(self) -> str:
        return f"--resume {self._unfinished} -o {self.form.out.value} --background"

    def _find_unfinished(self) -> None:
        """A run that the notebook's last kernel did not finish can be gone on with."""
        found = next((one for one in islice(runs.summaries(), _LATEST) if one.statuses.get("pending")), None)
        if found is not None:
            self._unfinished, self.resume.disabled = found.id, False
            missing = found.statuses["pending"]
            networks = ", ".join(dict.fromkeys(one.name for one in found.sweep.workloads))
            self._say(f"run {found.id} ({networks}) has {missing} of {len(found.sweep)} trials missing: Resume")

    def _say(self, text: str) -> None:
        self.message.value = f'<span role="status">{escape(text)}</span>' if text else ""
