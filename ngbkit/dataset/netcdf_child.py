"""Reads a netCDF file in a process of its own: ``python netcdf_child.py FILE CONTENT`` answers on its standard output.

HDF5 hangs and crashes on damaged files, and Python cannot interrupt it. So this process has limits of time and memory,
and the client reads what it wrote: arrays one after another in CONTENT, and all else as JSON.

    {"/": {"attributes": {…}, "variables": {"latency": {"dims": […], "attributes": {…}, "values": VALUE}}}, "/node": …}

A VALUE is ``{"array": 3}``, the fourth array of CONTENT; ``{"text": "s"}``; or ``{"texts": ["a"], "shape": [1]}``. It
imports nothing of ngbkit, whose package would double the time that it takes to start.
"""

from __future__ import annotations

import errno
import json
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import h5netcdf
import h5py
import numpy as np

# A dataset of a million trials has 0.8 GB.
MOST_BYTES = 8 << 30
_MOST_OBJECTS = 100_000
_MOST_LEVELS = 16
# What HDF5 needs beside the content of a file.
_MARGIN_BYTES = 1 << 30
_CPU_S, _CPU_BYTES_PER_S = 10, 10_000_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


class InvalidFileError(Exception):
    """The file is no dataset that may be read; the message is the reason."""


def main(source: str, target: str) -> None:
    """Read the file `source`, write its arrays to `target`, and answer with all else, or with the error."""
    inherited = {kind: resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)}
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _limit_cpu(Path(source).stat().st_size, inherited)
    _limit_memory(0, inherited)
    try:
        size = _measure(source)
        _limit_cpu(size, inherited)
        _limit_memory(3 * size, inherited)
        with open(target, "wb") as content, h5netcdf.File(source, "r", decode_vlen_strings=True) as file:
            arrays = _Arrays(content)
            answer: Any = {"groups": {path: _read_group(group, arrays) for path, group in _find_groups(file)}}
    except MemoryError:
        is_ours = resource.getrlimit(resource.RLIMIT_AS)[0] != inherited[resource.RLIMIT_AS]
        answer = {"error": "it asks for more memory than its content needs"} if is_ours else {"limit": "memory"}
    except (InvalidFileError, OSError, ValueError) as error:
        kind = "limit" if getattr(error, "errno", None) in _NO_ROOM else "error"
        answer = {kind: _shorten(str(error))}
    except Exception as error:  # noqa: BLE001  h5py and h5netcdf raise anything about a damaged file
        answer = {"error": _shorten(f"{type(error).__name__}: {error}")}
    sys.stdout.write(json.dumps(answer))


def _shorten(text: str) -> str:
    return " ".join(text.split())[:300]


def _limit_cpu(size: int, inherited: Mapping[int, int]) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + _CPU_S + size // _CPU_BYTES_PER_S
    _set_limit(resource.RLIMIT_CPU, seconds, inherited)


def _limit_memory(size: int, inherited: Mapping[int, int]) -> None:
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    _set_limit(resource.RLIMIT_AS, used + _MARGIN_BYTES + size, inherited)


def _set_limit(kind: int, most: int, inherited: Mapping[int, int]) -> None:
    """Set a limit, at most the one that this process inherited, which it may not raise."""
    allowed = most if inherited[kind] == resource.RLIM_INFINITY else min(most, inherited[kind])
    resource.setrlimit(kind, (allowed, resource.getrlimit(kind)[1]))


def _measure(source: str) -> int:
    """Return the bytes of all values; `InvalidFileError` if they are too many, or not all in this file."""
    total, objects = 0, set()
    with h5py.File(source, "r") as file:
        for path, item in _walk(file, 0):
            address = h5py.h5o.get_info(item.id).addr
            if address in objects:
                raise InvalidFileError(f"{path} is a link to another part of the file")
            objects.add(address)
            if len(objects) > _MOST_OBJECTS:
                raise InvalidFileError(f"it has more than {_MOST_OBJECTS} variables and groups")
            if isinstance(item, h5py.Dataset):
                settings = item.id.get_create_plist()
                if settings.get_external_count() or settings.get_layout() == h5py.h5d.VIRTUAL:
                    raise InvalidFileError(f"the values of {path} are in another file")
                total += item.size * item.dtype.itemsize if item.shape is not None else 0
            if total > MOST_BYTES:
                raise InvalidFileError(f"it asks for {total / (1 << 30):.1f} GiB; the most is {MOST_BYTES >> 30} GiB")
    return total


def _walk(group: Any, level: int) -> Iterator[tuple[str, Any]]:
    if level > _MOST_LEVELS:
        raise InvalidFileError(f"its groups are nested more than {_MOST_LEVELS} deep")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise InvalidFileError(f"{name} is a link to another file or another part of this file")
        item = group[name]
        yield item.name, item
        if isinstance(item, h5py.Group):
            yield from _walk(item, level + 1)


def _find_groups(group: Any) -> Iterator[tuple[str, Any]]:
    yield group.name, group
    for child in group.groups.values():
        yield from _find_groups(child)


def _read_group(group: Any, arrays: _Arrays) -> dict[str, Any]:
    variables = {
        name: {
            "dims": list(variable.dimensions),
            "attributes": _read_attributes(variable.attrs, arrays),
            "values": arrays.encode(variable[...]),
        }
        for name, variable in group.variables.items()
    }
    return {"attributes": _read_attributes(group.attrs, arrays), "variables": variables}


def _read_attributes(attributes: Mapping[str, Any], arrays: _Arrays) -> dict[str, Any]:
    return {name: arrays.encode(value) for name, value in attributes.items()}


class _Arrays:
    """The arrays in the file that the client reads, in order."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._count = file, 0

    def encode(self, value: Any) -> dict[str, Any]:
        """Write an array, and return what stands for a value in JSON."""
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, str):
            return {"text": value}
        array = np.asarray(value)
        if array.dtype.kind in "OU":
            texts = [text.decode() if isinstance(text, bytes) else text for text in array.ravel().tolist()]
            if not all(isinstance(text, str) for text in texts):
                raise InvalidFileError("it has values that are neither numbers nor texts")
            return {"texts": texts, "shape": array.shape}
        np.lib.format.write_array(self._file, array, allow_pickle=False)
        self._count += 1
        return {"array": self._count - 1}


if __name__ == "__main__":
    main(*sys.argv[1:])
