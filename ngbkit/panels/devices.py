"""The section of the devices: their engines, load, self-checks and logs, and the trials that they measure now."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime

from ngbkit import files, options, registry, runs
from ngbkit.cluster import devices, engines
from ngbkit.cluster.devices import Device
from ngbkit.cluster.launchers.base import Starter
from ngbkit.commands.selfcheck import REPORT
from ngbkit.dataset.storage import Data
from ngbkit.device import lock
from ngbkit.errors import DeviceError, NgbkitError
from ngbkit.hardware import environment
from ngbkit.panels import device_table
from ngbkit.panels.device_table import SELFCHECK, DeviceRow, DeviceState
from ngbkit.panels.page import Page, render_error
from ngbkit.runs import Run, selfcheck
from ngbkit.runs.progress_display import describe_interrupt
from ngbkit.runs.selfcheck.store import load
from ngbkit.user_text import parse_path

# Between two updates of the table. Only a button queries a device itself, which would disturb a measurement.
_REFRESH_S = 1.0
# The devices of these launchers have the Python of their user.
_NOT_DEPLOYED = ("local", "attach")


class DevicesSection:
    """A table with a row for each device, whose buttons start, stop, check, deploy and self-check it on a thread."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._states: defaultdict[str, DeviceState] = defaultdict(DeviceState)
        self._hidden = threading.Event()
        self._hidden.set()
        page.actions |= {
            "device-start": lambda label: self._launch(label, "starting…", self._start, can_stop=True),
            "device-stop": self._stop,
            "device-restart": lambda label: self._launch(label, "restarting…", self._restart, can_stop=True),
            "device-check": lambda label: self._launch(label, "checking…", self._check),
            "device-deploy": lambda label: self._launch(label, "deploying…", self._deploy),
            "device-selfcheck": lambda label: self._launch(label, SELFCHECK, self._run_selfcheck),
            "device-stop-selfcheck": self._stop_selfcheck,
            "device-log": self._toggle_log,
        }

    def begin(self) -> None:
        """Show the table, and keep it up to date until `close`."""
        if self._hidden.is_set():
            self._hidden = threading.Event()
            self.refresh()
            self._page.start_thread("devices", self._keep_fresh, self._hidden)

    def close(self) -> None:
        """Leave the table as it is until the next `begin`."""
        self._hidden.set()

    def refresh(self) -> None:
        """Update the table, or show in its place why that is not possible."""
        try:
            html = str(device_table.render([self._describe(device) for device in devices.load().values()]))
        except Exception as error:  # noqa: BLE001  the next refresh may succeed
            html = render_error(error)
        self._page.show("devices", html)

    def _keep_fresh(self, hidden: threading.Event) -> None:
        while not hidden.wait(_REFRESH_S):
            self.refresh()
            self._page.flush()

    def _describe(self, device: Device) -> DeviceRow:
        state, is_local = self._states[device.label], device.launch == "local"
        check = selfcheck.latest(device.label) if is_local else load(device.label)
        chip = environment.read_chip() if is_local else state.chip or (check or {}).get("chip", "")
        run = _find_run(device.label)
        return DeviceRow(
            device=device,
            chip=chip,
            state=state,
            has_engine=device.label in engines.find_running(),
            is_busy=is_local and run is None and _is_busy(device),
            progress=None if run is None else run.progress_of(device.label),
            selfcheck=check,
            is_deployable=device.launch not in _NOT_DEPLOYED and "deploy" in registry.list_names(registry.PANELS),
        )

    def _launch(
        self, label: str, step: str, function: Callable[[str, DeviceState], object], *, can_stop: bool = False
    ) -> None:
        """Carry out a step on a thread, unless another goes on there or the device measures."""
        state = self._states[devices.get(label).label]
        if state.step:
            return
        state.error = state.note = state.detail = ""
        if _find_run(label) is not None:
            state.error = f"{label} is measuring: wait for the end of its run, or stop it."
        else:
            state.step, state.can_stop = step, can_stop
            state.stopped.clear()
            self._page.start_thread(label, self._carry_out, label, function)
        self.refresh()

    def _carry_out(self, label: str, function: Callable[[str, DeviceState], object]) -> None:
        state = self._states[label]
        try:
            function(label, state)
        except InterruptedError:
            state.note = "The start was stopped."
        except Exception as error:
            explained = files.explain(error)
            if explained is None:
                raise
            state.error = str(explained)
        finally:
            state.step, state.detail, state.can_stop = "", "", False
            self.refresh()

    def _start(self, label: str, state: DeviceState) -> None:
        starter = Starter(report=lambda text: setattr(state, "detail", text), stopped=state.stopped.is_set)
        engines.acquire(label, starter)
        self._check(label, state)

    def _restart(self, label: str, state: DeviceState) -> None:
        engines.stop(label)
        self._start(label, state)

    def _stop(self, label: str) -> None:
        """End the engine of a device, or give up its start."""
        state = self._states[label]
        if state.can_stop:
            state.stopped.set()
        else:
            self._launch(label, "stopping…", lambda label, _: engines.stop(label))

    def _check(self, label: str, state: DeviceState) -> None:
        engine = engines.find_running().get(label)
        if engine is None:
            raise DeviceError(f"{label} has no engine: start it first.")
        state.chip = str(engine.hello().get("chip") or "")
        state.vitals = engine.vitals()
        state.checked_at = f"{datetime.now():%H:%M}"

    def _deploy(self, label: str, state: DeviceState) -> None:
        def report(line: str) -> None:
            state.lines.append(line)
            state.detail = line

        state.lines.clear()
        deployment = registry.load(registry.PANELS, "deploy")(devices.get(label), report=report)
        state.lines.extend(["", *deployment.to_text().splitlines()])
        state.note = f"ngbkit {deployment.version} is deployed; its log has the compilers."

    def _stop_selfcheck(self, label: str) -> None:
        """Stop the self-check of a device, also one whose run is about to start."""
        state = self._states[label]
        state.stopped.set()
        if state.selfcheck is not None:
            state.selfcheck.stop()

    def _run_selfcheck(self, label: str, state: DeviceState) -> None:
        def wait(run: Run) -> Data:
            state.selfcheck = run
            if state.stopped.is_set():
                run.stop()
            data = run.result()
            if run.state == "stopped":  # it would be stored as if it were whole
                raise NgbkitError(describe_interrupt(run, then=REPORT))
            return data

        try:
            selfcheck.run(device=label, wait=wait)
        finally:
            state.selfcheck = None

    def _toggle_log(self, label: str) -> None:
        """Fold a log, or open it; the first time, that of a free engine is fetched."""
        state = self._states[label]
        state.has_open_log = not state.has_open_log
        is_free = label in engines.find_running() and _find_run(label) is None
        if state.has_open_log and state.vitals is None and is_free:
            self._launch(label, "checking…", self._check)
        self.refresh()


def _find_run(label: str) -> Run | None:
    """Find the run of this process that measures on a device."""
    return next((run for run in runs.live() if label in run.sweep.devices), None)


def _is_busy(device: Device) -> bool:
    """Return whether a process measures on the cores of a device of this machine."""
    state_dir = parse_path(device.state_dir) if device.state_dir else options.get_state_dir()
    cores = device.cores or environment.list_usable_cores()
    return any(files.is_locked(lock.locate_core(state_dir / options.LAYOUT.cores, core)) for core in cores)
