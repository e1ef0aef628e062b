"""The choices of a form: networks by name, and devices."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path

from ngbkit import options, registry
from ngbkit.errors import NgbkitError

_MOST_SUGGESTIONS = 12


def suggest(typed: str, names: Iterable[str]) -> list[str]:
    """List the first names that have what is typed, those that begin with it before others."""
    text = typed.strip().lower()
    matches = [name for name in names if text in name.lower()]
    begin = (name for name in matches if name.lower().startswith(text))
    others = (name for name in matches if not name.lower().startswith(text))
    return list(islice(chain(begin, others), _MOST_SUGGESTIONS))


def list_networks() -> list[str]:
    """List the ONNX files of the present folder, and the names that the sources of networks know."""
    names = (name for source in registry.load_all(registry.WORKLOADS).values() for name in source.complete(""))
    return [*sorted(path.name for path in Path().glob("*.onnx")), *names]


def list_devices() -> list[str]:
    """List the devices of the devices file; the default device where that cannot be read."""
    from ngbkit.cluster import devices

    try:
        return list(devices.load())
    except (NgbkitError, OSError):  # the command that uses the devices file reports what is invalid in it
        return [options.get_device()]
