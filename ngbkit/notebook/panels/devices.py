"""A panel of the devices: their engines, load and logs, and the trials that they measure now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as widgets

from ngbkit import runs, tabular
from ngbkit.cluster import devices, engines
from ngbkit.cluster.engine import Vitals
from ngbkit.cluster.launchers.base import Starter
from ngbkit.commands.devices import list_devices
from ngbkit.notebook.panels.panel import Panel, render_error
from ngbkit.runs.progress_display import describe_progress

# Between two updates of the table. Only a button queries a device itself, which would disturb a measurement.
_REFRESH_S = 1.0


class DevicesPanel(Panel):
    """A row for each device, and buttons that start, stop, restart and check its engine.

    An engine that measures cannot be checked; its row shows the progress of its run.
    """

    def __init__(self) -> None:
        super().__init__()
        self._vitals: dict[str, Vitals] = {}
        self._in_progress: dict[str, str] = {}
        self._closed = threading.Event()
        self.table, self.engine_log = widgets.HTML(), widgets.HTML()
        labels = list(devices.load())
        self.device = widgets.Dropdown(description="device", options=labels, style={"description_width": "5em"})
        actions: dict[str, Callable[[str], None]] = {
            "Start": self._start,
            "Stop": engines.stop,
            "Restart": self._restart,
            "Check": self._check,
        }
        self.buttons = {name: self._build_button(name, action) for name, action in actions.items()}
        self.device.observe(self._guard(self._show_log), names="value")
        controls = widgets.HBox([self.device, *self.buttons.values()])
        self.children = [self.table, controls, self.message, self.engine_log]
        self.refresh()
        self._start_thread("devices", self._keep_fresh)

    def refresh(self) -> None:
        """Update the table, or show in its place why that is not possible."""
        try:
            html = tabular.to_html([self._build_row(row) for row in list_devices()], "No device.")
        except Exception as error:  # noqa: BLE001  the next refresh may succeed
            html = render_error(error)
        if html != self.table.value:
            self.table.value = html

    def close(self) -> None:
        """Stop updating the table, and close the widget."""
        self._closed.set()
        super().close()

    def _build_row(self, row: dict[str, Any]) -> dict[str, Any]:
        label = str(row["device"])
        cells = {name: row[name] for name in ("device", "launch", "host", "accelerator", "chip")}
        cells["engine"] = self._in_progress.get(label) or ("ready" if label in engines.find_running() else "none")
        run = next((run for run in runs.live() if label in run.sweep.devices), None)
        if run is not None:
            progress = run.progress_of(label)
            cells |= {"engine": "measuring", "now": describe_progress(progress, run.ended)}
        vitals = self._vitals.get(label)
        if vitals is not None:
            cells |= {
                "load": None if vitals.load is None else f"{vitals.load:.2f}",
                "memory free": _format(vitals.memory_available_bytes, 1e-9, " GB"),
                "hottest": _format(vitals.temperature_c, 1, " °C"),
            }
        return cells

    def _keep_fresh(self) -> None:
        while not self._closed.wait(_REFRESH_S):
            self.refresh()

    def _build_button(self, name: str, action: Callable[[str], None]) -> widgets.Button:
        button = widgets.Button(description=name, tooltip=f"{name.lower()} the engine of this device")

        def press(_: Any) -> None:
            # An engine takes seconds to start, a remote one longer: a thread keeps the notebook responsive.
            self._start_thread(name, self._act, name, action, self.device.value)

        button.on_click(press)
        return button

    def _act(self, name: str, action: Callable[[str], None], label: str) -> None:
        self._in_progress[label] = f"{name.lower()}…"
        self._report("")
        self.refresh()
        try:
            action(label)
        except Exception as error:  # noqa: BLE001  the row and the log are updated after it
            self._report_error(error)
        finally:
            self._in_progress.pop(label, None)
        self.refresh()
        self._show_log()

    def _start(self, label: str) -> None:
        engines.acquire(label, Starter(report=self._report, stopped=bool))
        self._check(label)

    def _restart(self, label: str) -> None:
        engines.stop(label)
        self._start(label)

    def _check(self, label: str) -> None:
        engine = engines.find_running().get(label)
        if engine is None:
            self._report(f"{label} has no engine; press Start")
        elif any(label in run.sweep.devices for run in runs.live()):
            self._report(f"{label} is measuring; check it after its run")
        else:
            engine.hello()
            self._vitals[label] = engine.vitals()

    def _show_log(self) -> None:
        vitals = self._vitals.get(self.device.value)
        text = "" if vitals is None else escape(vitals.log) or "(no output)"
        self.engine_log.value = f'<pre aria-label="log of the engine">{text}</pre>' if text else ""


def _format(value: float | None, factor: float, unit: str) -> str | None:
    return None if value is None else f"{value * factor:.3g}{unit}"
