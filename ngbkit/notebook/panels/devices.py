"""A panel of the devices: which have an engine, what each measures now, how each is, and what its engine printed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as widgets

from ngbkit import runs
from ngbkit.cluster import devices, engines
from ngbkit.cluster.engine import Vitals
from ngbkit.cluster.launchers.base import Starter
from ngbkit.commands import listing

# Between two looks at what runs; devices themselves are only looked at when asked, so as not to disturb them.
_REFRESH_S = 1.0


class DevicesPanel(widgets.VBox):  # type: ignore[misc, unused-ignore]
    """A line a device; start, stop and restart its engine, look at how it is, read its log.

    An engine that measures has no time to answer: what it measures stands in its line.
    """

    def __init__(self) -> None:
        self._vitals: dict[str, Vitals] = {}
        self._doing: dict[str, str] = {}
        self._closed = threading.Event()
        self.table, self.printed = widgets.HTML(), widgets.HTML()
        self.message = widgets.HTML()
        labels = list(devices.load())
        self.device = widgets.Dropdown(description="device", options=labels, style={"description_width": "5em"})
        actions: dict[str, Callable[[str], None]] = {
            "Start": self._start,
            "Stop": engines.stop,
            "Restart": self._restart,
            "Look": self._look,
        }
        self.buttons = {name: self._button(name, act) for name, act in actions.items()}
        self.device.observe(lambda _: self._show_log(), names="value")
        super().__init__([self.table, widgets.HBox([self.device, *self.buttons.values()]), self.message, self.printed])
        self.refresh()
        threading.Thread(target=self._keep_fresh, name="ngbkit-panel-devices", daemon=True).start()

    def refresh(self) -> None:
        """Show what is known now."""
        html = listing.to_html([self._row(row) for row in listing.list_devices()], "There is no device.")
        if html != self.table.value:
            self.table.value = html

    def close(self) -> None:
        """Look no more, and go."""
        self._closed.set()
        super().close()

    def _row(self, row: dict[str, Any]) -> dict[str, Any]:
        label = str(row["device"])
        found = {name: row[name] for name in ("device", "launch", "host", "accelerator", "chip")}
        found["engine"] = self._doing.get(label) or ("ready" if label in engines.running() else "none")
        measured = [run for run in runs.live() if label in run.sweep.devices]
        if measured:
            now = measured[0].progress_of(label)
            found |= {"engine": "measures", "now": f"{now.done} of {now.total} trials: {now.text}"}
        vitals = self._vitals.get(label)
        if vitals is not None:
            found |= {
                "load": None if vitals.load is None else f"{vitals.load:.2f}",
                "memory free": _written(vitals.memory_available_bytes, 1e-9, " GB"),
                "hottest": _written(vitals.temperature_c, 1, " °C"),
            }
        return found

    def _keep_fresh(self) -> None:
        while not self._closed.wait(_REFRESH_S):
            self.refresh()

    def _button(self, name: str, act: Callable[[str], None]) -> widgets.Button:
        button = widgets.Button(description=name, tooltip=f"{name.lower()} the engine of this device")

        def press(_: Any) -> None:
            # An engine takes seconds to come up, and a far one longer: the notebook stays free meanwhile.
            threading.Thread(target=self._act, args=(name, act, self.device.value), daemon=True).start()

        button.on_click(press)
        return button

    def _act(self, name: str, act: Callable[[str], None], label: str) -> None:
        self._doing[label] = f"{name.lower()}…"
        self._say("")
        self.refresh()
        try:
            act(label)
        except Exception as error:  # noqa: BLE001  nobody would see what ends this thread
            self._say(str(error))
        finally:
            self._doing.pop(label, None)
        self.refresh()
        self._show_log()

    def _start(self, label: str) -> None:
        engines.engine(label, Starter(say=self._say, stopped=bool))
        self._look(label)

    def _restart(self, label: str) -> None:
        engines.stop(label)
        self._start(label)

    def _look(self, label: str) -> None:
        running = engines.running().get(label)
        if running is None:
            self._say(f"{label} has no engine here: Start gives it one")
        elif any(label in run.sweep.devices for run in runs.live()):
            self._say(f"{label} measures, and is left alone meanwhile")
        else:
            running.hello()
            self._vitals[label] = running.vitals()

    def _show_log(self) -> None:
        vitals = self._vitals.get(self.device.value)
        text = "" if vitals is None else escape(vitals.log) or "(nothing was printed)"
        self.printed.value = f'<pre aria-label="log of the engine">{text}</pre>' if text else ""

    def _say(self, text: str) -> None:
        self.message.value = f'<span role="status">{escape(text)}</span>' if text else ""


def _written(value: float | None, factor: float, unit: str) -> str | None:
    return None if value is None else f"{value * factor:.3g}{unit}"
