"""The table of the devices, as HTML: a row for each, with its buttons."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from htpy import Element, Node, button, div, p, pre, progress, small, table, tbody, td, th, thead, tr

from ngbkit.cluster.devices import Device
from ngbkit.cluster.engine import Vitals
from ngbkit.errors import translate_commands
from ngbkit.runs import Progress, Run
from ngbkit.runs.progress_display import describe_progress
from ngbkit.user_text import format_age, format_size

SELFCHECK = "self-check…"
"""The step of a device that is self-checked."""
_MOST_LINES = 200
_BLANK = "–"
# Their names, and their help.
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


def render(rows: Sequence[DeviceRow]) -> Element:
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
    return div(title=" ".join(data["conclusions"]))[
        verdict,
        (div[small[fault]] for fault in data["faults"]),
        div[small["just now" if age < 60 else format_age(age)]],
    ]


def _list_buttons(row: DeviceRow) -> Iterator[Element]:
    """List the buttons of a row; one that would do nothing now stays, so that the focus does."""
    label, state = row.device.label, row.state
    is_idle = not state.step and row.progress is None
    has_stop = row.has_engine or state.can_stop
    is_checking = state.step == SELFCHECK
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
