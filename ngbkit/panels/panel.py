"""The panel: it composes a sweep, follows its run, reads the results, and shows the devices."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, Literal

import htpy as h
from IPython.core.getipython import get_ipython
from IPython.display import HTML, display
from markupsafe import Markup

from ngbkit import figures, runs
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.figures import renderer
from ngbkit.notebook import modules, objects
from ngbkit.panels.compose import ComposeSection
from ngbkit.panels.devices import DevicesSection
from ngbkit.panels.line import MAGIC, Line
from ngbkit.panels.page import Page
from ngbkit.panels.read import ReadSection
from ngbkit.panels.watch import WatchSection
from ngbkit.runs.run import Run, live
from ngbkit.runs.run_context import CELL, RunContext
from ngbkit.runs.summary import Summary
from ngbkit.user_text import format_duration

Tab = Literal["sweep", "results", "devices"]
_TABS: Mapping[Tab, str] = {"sweep": "Sweep", "results": "Results", "devices": "Devices"}
# The panel looks for its run among this many of the latest.
_LATEST = 50
# A live panel hides what is stored for a page without a kernel or widgets, which in turn hides the place of the panel.
_OUTPUT = ":is(.jp-OutputArea-child, .output_area)"  # of JupyterLab and Notebook 7, of the classic notebook
_SAVED = (
    f"<style>{_OUTPUT}:has(.ngbkit-saved):has(+ {_OUTPUT} .ngbkit), "
    f"{_OUTPUT}:has(.ngbkit-saved) + {_OUTPUT}:not(:has(.ngbkit)) {{ display: none; }}</style>"
    '<div class="ngbkit-saved">CONTENT</div>'
)
_MOST_PICTURE_BYTES = 150_000
# The picture is drawn for a light page.
_PAPER = "background: #fff; color: #1a1a1a; color-scheme: light; padding: 8px; overflow-x: auto; width: fit-content;"


class Panel(Page):
    """Compose a sweep, watch its run, read its results and take them away; see the devices.

    It does what the line of a magic does, shows that line, and takes one that is pasted. Its runs are remembered by the
    notebook and the cell: a panel that is opened again finds them.

    Parameters
    ----------
    data
        A dataset or a tree to read; None for none.
    name
        The variable that holds it.
    tab
        The tab that is open.
    """

    def __init__(self, data: Data | None = None, name: str = "ds", tab: Tab = "sweep") -> None:
        self._shell: Any = get_ipython()
        if self._shell is None:
            raise UsageError("no IPython: a panel needs a notebook. `ngbkit run` measures from a shell.")
        super().__init__()
        if MAGIC not in self._shell.magics_manager.magics["line"]:
            self._shell.run_line_magic("load_ext", "ngbkit")
        self._tab: Tab = tab
        self._context = RunContext.capture()
        self._unfinished = ""
        self._display: Any = None
        self._stored = _render_fallback(data)
        self.actions |= {"tab": self._on_tab, "resume": lambda _: self._resume()}
        self.show("page", self._render())
        self.show("message", "")
        self.compose = ComposeSection(self, lambda: modules.find(self._shell.user_ns), self._start, self._list_cells)
        self.watch = WatchSection(self, self._on_end)
        self.show("read", h.p(".hint")["A run that ends is shown here; so is a dataset, by %ngpanel explore ds."])
        self.read = ReadSection(self, self._settle)
        self.devices = DevicesSection(self)
        if data is not None:
            self.read.show_data(data, name)
        else:
            self.guard(self._find_run)
        self.compose.refresh()
        self._on_tab(self._tab)

    def close(self) -> None:
        """Follow nothing any more, and close the widget."""
        for name in ("compose", "watch", "devices"):  # fewer, where Python closes one that could not be made
            if (section := getattr(self, name, None)) is not None:
                section.close()
        super().close()

    def _repr_mimebundle_(self, **keywords: Any) -> Any:
        bundle = super()._repr_mimebundle_(**keywords)
        if self._display is None and getattr(self._shell, "kernel", None) is not None:
            # Before the panel itself: a saved notebook shows it where there is no kernel.
            self._display = display(self._build_saved(), display_id=True)  # type: ignore[no-untyped-call]
        return bundle

    def _render(self) -> h.Element:
        return h.div[
            h.div({"data-arrows": ""}, role="tablist", aria_label="parts of the panel")[
                (
                    h.button(
                        {"data-click": "tab", "data-value": name},
                        type="button",
                        role="tab",
                        id=f"{self.model_id}-tab-{name}",
                        aria_selected=str(name == self._tab).lower(),
                        aria_controls=f"{self.model_id}-{name}",
                        tabindex="0" if name == self._tab else "-1",
                    )[title]
                    for name, title in _TABS.items()
                )
            ],
            h.div({"data-part": "message"}),
            self._render_tab("sweep", "compose", "resume", "watch"),
            self._render_tab("results", "read"),
            self._render_tab("devices", "devices"),
        ]

    def _render_tab(self, name: Tab, *parts: str) -> h.Element:
        return h.div(
            {"data-key": name},
            role="tabpanel",
            id=f"{self.model_id}-{name}",
            aria_labelledby=f"{self.model_id}-tab-{name}",
            hidden=name != self._tab,
        )[(h.div({"data-part": part}) for part in parts)]

    def _on_tab(self, name: Tab) -> None:
        self._tab = name
        self.show("page", self._render())
        if name == "devices":
            self.devices.begin()
        else:
            self.devices.close()

    def _list_cells(self) -> dict[str, str]:
        """List the executed cells that define networks below a line of the magic, by their names in Jupyter."""
        return {
            f"In[{number}]": text.partition("\n")[2]
            for number, text in enumerate(self._shell.user_ns.get("In", ()))
            if text.startswith(f"%%{MAGIC}") and "\n" in text
        }

    def _start(self, line: Line) -> None:
        self._measure(MAGIC, f"{line.to_text()} --background", line.source)

    def _resume(self) -> None:
        self._measure("ngruns", f"--resume {self._unfinished} -o {self.compose.line.out} --background")

    def _settle(self, run_id: str) -> None:
        """Measure the trials of a run that are not conclusive again."""
        self._measure("ngruns", f"--resume {run_id} --retry inconclusive -o {self.compose.line.out} --background")

    def _measure(self, magic: str, line: str, source: str = "") -> None:
        """Measure by the line of a magic, and the source below it, and follow the run."""
        self.report("")
        token = CELL.set(f"{self._context.cell}\n{self.compose.line.to_line()}")
        shell = self._shell
        try:
            run: Run = shell.run_cell_magic(magic, line, source) if source else shell.run_line_magic(magic, line)
        finally:
            CELL.reset(token)
        self._follow(run)

    def _follow(self, run: Run) -> None:
        self._offer_resume("")
        self.compose.is_busy = True
        self.compose.refresh()
        self._on_tab("sweep")
        self.watch.follow(run)

    def _on_end(self, run: Run) -> None:
        """Report the end of a run; the magic binds its dataset."""
        self.compose.is_busy = False
        missing = run.progress.total - run.progress.done
        self._offer_resume(run.id if missing else "")
        name = self.compose.line.out
        data = run.dataset()
        self._shell.user_ns[name] = data  # before the user reads that it is there
        if run.error is not None:
            self.report(f"run {run.id} failed: {run.error}")
        elif missing:
            self.report(f"run {run.id} was stopped: {missing} trials are missing; Resume measures them")
        else:
            self.report(f"run {run.id} has ended; {name} is its dataset")
            self.guard(self._on_tab, "results")
        self.guard(self.compose.refresh)
        self.flush()
        if run.progress.done:
            self._read(data, run.id)

    def _read(self, data: Data, run_id: str) -> None:
        """Show the dataset of a run, and store what a notebook shows without a kernel."""
        self.read.show_data(data, self.compose.line.out, run_id)
        self._stored = render_saved(data, run_id, self.compose.line.to_cell())
        if self._display is not None:
            self._display.update(self._build_saved())

    def _build_saved(self) -> HTML:
        """Build what a saved notebook shows where there is no kernel."""
        return HTML(_SAVED.replace("CONTENT", self._stored))  # type: ignore[no-untyped-call]

    def _offer_resume(self, run_id: str) -> None:
        self._unfinished = run_id
        button = h.button({"data-click": "resume"}, type="button")["Resume"]
        self.show("resume", h.div(".row")[button, h.small["measures the missing trials of ", run_id]] if run_id else "")

    def _find_run(self) -> None:
        """Find the latest run of this panel: of the same cell of the same notebook."""
        summary = next(filter(self._is_mine, islice(runs.summaries(), _LATEST)), None)
        if summary is None:
            return
        try:
            line = Line.from_text(summary.context.cell.splitlines()[-1])
            sources = [network.spec["source"] for network in summary.sweep.workloads if network.source == "cell"]
            self.compose.line = (
                replace(line, source=sources[0].removeprefix("\n")) if sources and not line.workloads else line
            )
        except NgbkitError:  # a line of an option that is no more
            return
        current = next((run for run in live() if run.id == summary.id), None)
        if current is not None:
            self._follow(current)
            return
        ago = format_duration(time.time() - summary.created)
        if summary.is_resumable:
            missing = summary.statuses["pending"]
            self._offer_resume(summary.id)
            self.report(f"run {summary.id} of {ago} ago: {missing} of {summary.trials} trials are missing")
        if len(summary.statuses) > ("pending" in summary.statuses):
            data = runs.load_dataset(runs.find(summary.id))
            name = self.compose.line.out
            self._shell.user_ns[name] = data
            self._read(data, summary.id)
            if not summary.is_resumable:
                self._tab = "results" if self._tab == "sweep" else self._tab
                self.report(f"run {summary.id} of {ago} ago; {name} is its dataset. Nothing was measured again.")

    def _is_mine(self, summary: Summary) -> bool:
        """True for a run that a panel of this cell started."""
        context = summary.context
        cell, _, _ = context.cell.rpartition("\n")
        return bool(cell) and (context.notebook, cell) == (self._context.notebook, self._context.cell)


def render_saved(data: Data, run_id: str, line: str) -> str:
    """Render a finished run as HTML without scripts, requests and style sheets, legible on light and dark pages."""
    page = h.div[
        h.p[h.code[line]],
        _render_results(data),
        h.p[h.small[f"Run {run_id}. ", h.code[f"%ngruns --open {run_id} -o ds"], " opens it in this notebook."]],
    ]
    # A plain text: markup would escape what a caller joins to it.
    return str(Markup(page))


def _render_fallback(data: Data | None) -> str:
    """Render what a page without a kernel or widgets shows: the remedy, and the results of a dataset, if any."""
    remedy = h.p[
        "The panel needs a kernel and widgets. Run this cell; if no panel appears, ",
        h.code["pip install jupyterlab_widgets anywidget"],
        " in the environment of the server, such as JupyterLab's, and reload the page. ",
        h.code["%ngbench?"],
        " lists what a line can do without.",
    ]
    return str(Markup(h.div[remedy, _render_results(data) if data is not None else None]))


def _render_results(data: Data) -> h.Node:
    """Render the report and the picture; a large run has none of them, since they take minutes."""
    report = objects.build_report(data)
    if report is None:
        return h.p["It has too many trials, or too few labels, for a table."]
    picture = _draw(data)
    return [Markup(report._repr_html_()), h.div(style=_PAPER)[Markup(picture)] if picture else None]


def _draw(data: Data) -> str:
    """Draw the overview as a picture; empty if it is too large, or if there is nothing to draw."""
    try:
        picture = renderer.to_html(figures.overview(data).to_dict())
    except NgbkitError:
        return ""
    return picture if len(picture.encode()) <= _MOST_PICTURE_BYTES else ""
