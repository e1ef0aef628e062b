"""A panel that composes a sweep, measures it, and shows its progress."""

from __future__ import annotations

import threading
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython.core.getipython import get_ipython

from ngbkit import runs
from ngbkit.commands.run import list_notices
from ngbkit.errors import NgbkitError, UsageError, translate_commands
from ngbkit.notebook import modules, preload
from ngbkit.notebook.panels.copying import CopyButton
from ngbkit.notebook.panels.form import Form
from ngbkit.notebook.panels.line import MAGIC
from ngbkit.notebook.panels.live import Live
from ngbkit.notebook.panels.panel import Panel, render_error

if TYPE_CHECKING:
    from ngbkit.runs import Run

# The panel offers to resume an unfinished run among this many of the latest.
_LATEST = 20


class SweepPanel(Panel):
    """Pick networks, compilers, devices and batch sizes; run, stop and resume; the dataset is bound to a variable.

    The panel shows the line of the magic that it runs, and "Copy as cell" copies that line.
    """

    def __init__(self) -> None:
        self._shell: Any = get_ipython()
        if self._shell is None:
            raise UsageError("no IPython: a panel needs a notebook. `ngbkit run` measures from a shell.")
        super().__init__()
        if MAGIC not in self._shell.magics_manager.magics["line"]:
            self._shell.run_line_magic("load_ext", "ngbkit")
        self.active: Run | None = None
        self.run = widgets.Button(description="Run", button_style="primary", tooltip="measure this sweep")
        self.stop = widgets.Button(description="Stop", disabled=True, tooltip="stop; measurements are kept")
        self.resume = widgets.Button(description="Resume", disabled=True, tooltip="measure the missing trials")
        self.copy = CopyButton()
        self.line = widgets.HTML()
        self.outlook = widgets.HTML()
        self.live = Live()
        self._unfinished = ""
        self._engines_started = False
        # The form's probe and the end of a run refresh the panel from threads of their own.
        self._refreshing = threading.Lock()
        self.form = Form(lambda: modules.find(self._shell.user_ns), self._refresh)
        self.run.on_click(self._guard(lambda: self._start(MAGIC, f"{self.form.line.to_text()} --background")))
        self.resume.on_click(self._guard(lambda: self._start("ngruns", self._resume_line())))
        self.stop.on_click(self._guard(self._stop))
        buttons = widgets.HBox([self.run, self.stop, self.resume, self.copy])
        self.children = [self.form, self.line, self.outlook, buttons, self.form.reasons, self.message, self.live]
        self._guard(self._find_unfinished)()
        self._refresh()

    def _refresh(self) -> None:
        """Show the line that the controls compose now, whichever thread asks: the last one to ask reads it last."""
        with self._refreshing:
            try:
                self._show_line()
            except Exception as error:  # noqa: BLE001  Run may work, and reports its own error
                self.run.disabled = self.active is not None
                self.outlook.value = render_error(error)

    def _show_line(self) -> None:
        """Show the line, the number of its trials and the expected time, or why it is invalid."""
        try:
            line = self.form.line
            cell = line.to_cell()
            sweep = line.to_sweep(modules.find(self._shell.user_ns))
            outlook = list_notices(sweep, with_time="--budget" not in line.to_words())
        except NgbkitError as error:
            self.copy.text, self.line.value = "", ""
            self.outlook.value = f"<em>{escape(translate_commands(str(error), 'magic'))}</em>"
            self.run.disabled = True
            return
        self.copy.text = cell
        self.line.value = f"<code>{escape(cell)}</code>"
        self.outlook.value = "<br>".join(map(escape, outlook))
        self.run.disabled = self.active is not None
        if not self._engines_started:
            self._engines_started = True
            preload.start_engines(sweep)

    def _start(self, magic: str, line: str) -> None:
        self._report("")
        run: Run = self._shell.run_line_magic(magic, line)
        self.active = run
        self.run.disabled, self.stop.disabled, self.resume.disabled = True, False, True
        self.live.follow(run, self._guard(self._on_end, run))

    def _stop(self) -> None:
        if self.active is not None:
            self.active.stop()
            self.stop.disabled = True
            self._report("stopping; measurements are kept")

    def _on_end(self, run: Run) -> None:
        """Report the end of a run; the magic binds its dataset."""
        self.active = None
        missing = run.progress.total - run.progress.done
        self._unfinished = run.id if missing else ""
        self.stop.disabled, self.resume.disabled = True, not self._unfinished
        self._refresh()
        if run.error is not None:
            self._report(f"run {run.id} failed: {run.error}")
        elif missing:
            self._report(f"run {run.id} was stopped: {missing} trials are missing; Resume measures them")
        else:
            self._report(f"run {run.id} has ended; {self.form.out.value} is its dataset")

    def _resume_line(self) -> str:
        return f"--resume {self._unfinished} -o {self.form.out.value} --background"

    def _find_unfinished(self) -> None:
        """Offer to resume the latest run that an earlier kernel did not finish."""
        latest = islice(runs.summaries(), _LATEST)
        summary = next((summary for summary in latest if summary.is_resumable), None)
        if summary is not None:
            self._unfinished, self.resume.disabled = summary.id, False
            missing, total = summary.statuses["pending"], summary.trials
            networks = ", ".join(summary.networks)
            self._report(
                f"run {summary.id} ({networks}): {missing} of {total} trials are missing; Resume measures them"
            )
