"""The section of the devices: their engines, load, self-checks and logs, and the trials that they measure now."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from htpy import Element, Node, button, div, p, pre, progress, small, table, tbody, td, th, thead, tr

from ngbkit import files, options, registry
from ngbkit.cluster import devices, engines
from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Vitals
from ngbkit.cluster.launchers.base import Starter
from ngbkit.commands.selfcheck import REPORT
from ngbkit.dataset.storage import Data
from ngbkit.device import lock
from ngbkit.errors import DeviceError, NgbkitError, translate_commands
from ngbkit.hardware import environment
from ngbkit.panels.page import Page, render_error
from ngbkit.runs import Run, selfcheck
from ngbkit.runs.progress import Progress
from ngbkit.runs.progress_display import describe_interrupt, describe_progress
from ngbkit.runs.run import live
from ngbkit.runs.selfcheck.store import load
from ngbkit.user_text import format_age, format_size, parse_path

# Between two updates of the table. Only a button queries a device itself, which would disturb a measurement.
_REFRESH_S = 1.0
# The devices of these launchers have the Python of their user.
_NOT_DEPLOYED = ("local", "attach")
# The step of a device that is self-checked.
_SELFCHECK = "self-check…"
_MOST_LINES = 200
_BLANK = "–"
# The columns: their names, and their help.
_HEADS = (
    ("device", "its label, how it is reached, and its chip"),
    ("engine", "the process there that measures; a run starts it where there is none"),
    ("load", "average number of processes that want a core, over a minute, at the last check"),
    ("memory free", "at the last check"),
    ("hottest", "its hottest sensor at the last check"),
    ("self-check", "the last measurement of its noise: fit if two copies of one program measure alike there"),
    ("actions", "start, check, deploy and self-check act on the device itself"),
)


@dataclass(slots=True)
class DeviceState:
    """The knowledge of a panel about a device, and the step that goes on there."""

    # Such as "starting…"; empty between steps. Its latest sentence is the detail.
    step: str = ""
    detail: str = ""
    # The sentence after the last step: why it failed, or what it did.
    error: str = ""
    note: str = ""
    vitals: Vitals | None = None
    checked_at: str = ""
    chip: str = ""
    has_open_log: bool = False
    # The output of the last deployment.
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_MOST_LINES))
    # Set to give up a start or a self-check.
    stopped: threading.Event = field(default_factory=threading.Event)
    can_stop: bool = False
    selfcheck: Run | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device as its row shows it."""

    device: Device
    chip: str
    state: DeviceState
    has_engine: bool
    # Another process measures on its cores.
    is_busy: bool
    # That of the run of this process on the device; None for none.
    progress: Progress | None
    # As `ngbkit.runs.selfcheck.latest`.
    selfcheck: Mapping[str, Any] | None
    is_deployable: bool


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
            "device-selfcheck": lambda label: self._launch(label, _SELFCHECK, self._run_selfcheck),
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
            html = str(_render_table([self._describe(device) for device in devices.load().values()]))
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
    return next((run for run in live() if label in run.sweep.devices), None)


def _is_busy(device: Device) -> bool:
    """Return whether a process measures on the cores of a device of this machine."""
    state_dir = parse_path(device.state_dir) if device.state_dir else options.get_state_dir()
    cores = device.cores or environment.list_usable_cores()
    return any(files.is_locked(lock.locate_core(state_dir / options.LAYOUT.cores, core)) for core in cores)


def _render_table(rows: Sequence[DeviceRow]) -> Element:
    """Render the table of the devices."""
    heads = [th(scope="col", title=help_text)[name] for name, help_text in _HEADS]
    return div(".scroll", tabindex="0", role="region", aria_label="table of devices")[
        table(aria_label="devices and their engines")[
            thead[tr[heads]],
            tbody[(part for row in rows for part in _render_row(row))],
        ]
    ]


def _render_row(row: DeviceRow) -> Iterator[Element]:
    label, state, vitals = row.device.label, row.state, row.state.vitals
    checked = f"checked at {state.checked_at}" if vitals is not None else "not checked yet"
    numbers: Iterable[str] = (_BLANK,) * 3
    if vitals is not None:
        numbers = (
            _BLANK if vitals.load is None else f"{vitals.load:.3g}",
            _BLANK if vitals.memory_available_bytes is None else format_size(vitals.memory_available_bytes),
            _BLANK if vitals.temperature_c is None else f"{vitals.temperature_c:.3g} °C",
        )
    yield tr(data_key=label)[
        th(scope="row")[label, div[small[row.device.description]], row.chip and div[small[row.chip]]],
        td[_render_engine(row)],
        (td(".number", title=checked)[number] for number in numbers),
        td[_render_selfcheck(row.selfcheck)],
        td[div(".row")[_list_buttons(row)]],
    ]
    if state.has_open_log:
        yield tr(data_key=f"{label} log")[
            td(colspan=len(_HEADS))[pre(tabindex="0", role="region", aria_label=f"log of {label}")[_write_log(state)]]
        ]


def _render_engine(row: DeviceRow) -> Node:
    """Render the state of an engine, its progress, and the sentence after the last step."""
    state = row.state
    text = "ready" if row.has_engine else "none"
    use = "busy: another run uses its cores" if row.is_busy else "free" if row.has_engine else ""
    detail: Node = use and small[use]
    if state.step:
        text, detail = state.step, state.detail and small[state.detail]
    if row.progress is not None:
        label = f"progress of {row.device.label}"
        bar = progress(value=f"{row.progress.share:.3f}", max="1", aria_label=label)
        text, detail = state.step or "measuring", [div[bar], small[describe_progress(row.progress, False)]]
    return [
        text,
        div[detail],
        state.error and p(".error", role="alert")[translate_commands(state.error, "magic")],
        state.note and p(role="status")[small[state.note]],
    ]


def _render_selfcheck(data: Mapping[str, Any] | None) -> Node:
    """Render a self-check: fit or why not, since when, and its conclusions as help."""
    if data is None or "faults" not in data:  # never checked, or by another version
        return "not yet"
    age = time.time() - datetime.fromisoformat(data["created"]).timestamp()
    verdict = "not fit" if data["faults"] else f"fit: speed-ups from {data['smallest_speedup']:.3f} on show"
    # In whole minutes at least, so that it changes seldom.
    ago = "just now" if age < 60 else format_age(age)
    return div(title=" ".join(data["conclusions"]))[
        verdict, (div[small[fault]] for fault in data["faults"]), div[small[ago]]
    ]


def _list_buttons(row: DeviceRow) -> Iterator[Element]:
    """List the buttons of a row; one that would do nothing now stays, so that the focus does."""
    label, state = row.device.label, row.state
    is_idle = not state.step and row.progress is None
    has_stop = row.has_engine or state.can_stop
    is_checking = state.step == _SELFCHECK
    yield _build_button(
        "toggle",
        "device-stop" if has_stop else "device-start",
        label,
        ("Stop", f"Stop the engine of {label}") if has_stop else ("Start", f"Start the engine of {label}"),
        is_idle or state.can_stop,
    )
    has_engine = is_idle and row.has_engine
    yield _build_button("restart", "device-restart", label, ("Restart", f"Restart the engine of {label}"), has_engine)
    help_text = f"Check {label}: its load, memory, temperature and log"
    yield _build_button("check", "device-check", label, ("Check", help_text), has_engine)
    # Actions of their own: a click that comes too late stops nothing, rather than starting another.
    action = "device-stop-selfcheck" if is_checking else "device-selfcheck"
    words = ("Stop self-check", f"Stop self-check of {label}") if is_checking else ("Self-check", f"Self-check {label}")
    yield _build_button("selfcheck", action, label, words, is_idle or is_checking)
    if row.is_deployable:
        help_text = f"Deploy this ngbkit to {label}"
        yield _build_button("deploy", "device-deploy", label, ("Deploy", help_text), is_idle)
    yield _build_button("log", "device-log", label, ("Log", f"Log of {label}"), True, is_open=state.has_open_log)


def _build_button(
    key: str, action: str, label: str, words: tuple[str, str], is_enabled: bool, *, is_open: bool | None = None
) -> Element:
    """Build a button by its text and by its text for screen readers, which begins with the same words."""
    text, full_text = words
    attributes = {"data-key": key, "data-click": action, "data-value": label, "title": full_text}
    states = {
        "aria-disabled": None if is_enabled else "true",
        "aria-expanded": None if is_open is None else str(is_open).lower(),
    }
    return button({**attributes, **states}, aria_label=full_text)[text]


def _write_log(state: DeviceState) -> str:
    """Write the output of the engine at the last check, and that of the last deployment."""
    engine = [] if state.vitals is None else [f"engine, at {state.checked_at}:", state.vitals.log or "(no output)"]
    deployment = ["deployment:", *state.lines] if state.lines else []
    return "\n".join([*engine, *deployment]) or "No output yet: start the engine, or check it."
