"""What there is: the devices, compilers and runs that the notebook and the shell list, as rows."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import environment, registry
from ngbkit.arguments import Argument, to_words
from ngbkit.compilers.base import Compiler, version
from ngbkit.errors import UsageError
from ngbkit.sweep import split_labels

if TYPE_CHECKING:
    from ngbkit.cluster.devices import Device

Row = dict[str, Any]
ACTIONS = ("list", "init", "check")
#: The words of the verb that is about devices.
DEVICES: tuple[Argument, ...] = (
    Argument(
        flags=("action",),
        help="list them (the default); init: write a devices file to begin with; check: say of each whether it is "
        "reached and has ngbkit",
        completes="action",
        settings={"nargs": "?", "choices": ACTIONS, "default": ACTIONS[0], "metavar": "|".join(ACTIONS)},
    ),
    Argument(
        flags=("names",),
        help="which of them to check (default: all)",
        completes="device",
        settings={"nargs": "*", "metavar": "DEVICE"},
    ),
)
_LINE = "padding: 0.25em 0.8em; text-align: left; border-bottom: 1px solid rgba(128, 128, 128, 0.4);"


def see_to_devices(action: str, names: Sequence[str]) -> list[Row]:
    """Carry out the verb that is about devices, one of `ACTIONS`.

    Raises
    ------
    UsageError
        The devices file is not valid, or has no such device; or there is one already where one is to be written.
    """
    if names and action != "check":
        raise UsageError(f"{' '.join(names)!r} is too much: {action} takes no devices, and check does.")
    if action == "check":
        return check_devices([label for name in names for label in split_labels(name)])
    return list_devices() if action == "list" else [init_devices()]


def list_devices() -> list[Row]:
    """The devices that can be named: ``device``, ``launch``, ``host``, ``accelerator``, ``cores``, ``chip``, ``what``.

    ``cores`` is a number of cores; that of another machine and its chip are not known here.
    """
    from ngbkit.cluster import devices

    return [_device(device) for device in devices.load().values()]


def check_devices(labels: Sequence[str] = ()) -> list[Row]:
    """What a look at those devices, or at all, finds: whether each is ``fit``, and `ngbkit.cluster.checkup.Finding`.

    Raises
    ------
    UsageError
        The devices file is not valid, or has no such device.
    """
    from ngbkit.cluster import checkup, devices

    devices.check(labels)
    known = devices.load()
    return [
        {"device": found.device, "fit": not found.problem, **asdict(found)}
        for found in checkup.look([known[label] for label in dict.fromkeys(labels or known)])
    ]


def init_devices() -> Row:
    """Write a devices file into the current folder: ``file``, and what to do ``next``.

    Raises
    ------
    UsageError
        There is one already.
    """
    from ngbkit.cluster import devices

    return {"file": str(devices.init(Path(devices.NAME))), "next": "edit it, then `ngbkit devices check`"}


def list_compilers() -> list[Row]:
    """Every compiler: ``compiler``, ``version``, ``available``, ``summary``, ``options``, ``missing``.

    ``missing`` says why it is not available, with the way out; ``options`` holds the defaults.
    """
    return [_compiler(compiler) for compiler in registry.load_all(registry.COMPILERS).values()]


def list_runs() -> list[Row]:
    """Every run, the latest first: ``run``, ``created``, ``trials``, ``statuses``, ``workloads``, ``options``."""
    from ngbkit import runs

    return [
        {
            "run": summary.id,
            "created": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(summary.created)),
            "trials": len(summary.sweep),
            "statuses": dict(summary.statuses),
            "workloads": [workload.name for workload in summary.sweep.workloads],
            "options": shlex.join(to_words(summary.sweep)),
        }
        for summary in runs.summaries()
    ]


def to_text(rows: Iterable[Row], empty: str) -> str:
    """The rows as aligned columns; the sentence `empty` where there is none."""
    header, cells = _written(rows)
    if not cells:
        return empty
    widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *cells))
    return "\n".join(line.rstrip() for line in lines)


def to_html(rows: Iterable[Row], empty: str) -> str:
    """The rows as one table without script or request; the sentence `empty` where there is none."""
    header, cells = _written(rows)
    if not cells:
        return f"<p>{escape(empty)}</p>"
    head = "".join(f'<th style="{_LINE}">{escape(name)}</th>' for name in header)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_LINE}">{escape(cell)}</td>' for cell in row) + "</tr>" for row in cells
    )
    style = "border-collapse: collapse; color: inherit;"
    return f'<table style="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _device(device: Device) -> Row:
    is_here = device.launch == "local"
    return {
        "device": device.label,
        "launch": device.launch,
        "host": device.host,
        "accelerator": device.accelerator,
        "cores": len(device.cores) if device.cores else environment.cores_usable() if is_here else None,
        "chip": environment.chip() if is_here else None,
        "what": device.what,
    }


def _compiler(compiler: Compiler) -> Row:
    missing = compiler.unavailable()
    return {
        "compiler": compiler.name,
        "version": version(compiler.packages[0]) if compiler.packages else None,
        "available": not missing,
        "summary": compiler.summary,
        "options": {name: option.default for name, option in compiler.options.items()},
        "missing": missing,
    }


def _written(rows: Iterable[Row]) -> tuple[list[str], list[list[str]]]:
    found = list(rows)
    names = list(dict.fromkeys(name for row in found for name in row))
    return names, [[_cell(row.get(name)) for name in names] for row in found]


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number}" for name, number in value.items())
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
