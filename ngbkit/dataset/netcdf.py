"""Reading of netCDF files that may come from anywhere: a child process runs HDF5, under limits of time and memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.limits import describe_memory

_CHILD = str(Path(__file__).with_name("netcdf_child.py"))
# The child limits its own time on the processor; this is for one that waits, as for a file of a lost network.
_LIMIT_S = 300.0


class UnreadableError(Exception):
    """The file does not read as a netCDF file; the message is the reason."""


class ReaderError(Exception):
    """The file was not read, which is not its fault; the message is the reason, and the remedy."""


def read(source: Path) -> dict[str, xr.Dataset]:
    """Read the groups of a netCDF file by path; UnreadableError if damaged, ReaderError if no reader is here."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-netcdf-") as folder:
        content = Path(folder, "content")
        groups = _run(source, content)
        with content.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            arrays: list[np.ndarray[Any, Any]] = []
            while file.tell() < size:
                arrays.append(np.lib.format.read_array(file, allow_pickle=False))
    try:
        decoded = {path: _decode(group, arrays) for path, group in groups.items()}
        return {node.path: node.to_dataset() for node in xr.DataTree.from_dict(decoded).subtree}
    except MemoryError:
        raise
    except Exception as error:  # xarray raises anything about variables and attributes that contradict each other
        raise UnreadableError(" ".join(f"{type(error).__name__}: {error}".split())[:300]) from error


def _run(source: Path, content: Path) -> dict[str, Any]:
    """Run the child on a file; return its groups as JSON."""
    try:
        child = _start(source, content)
        answer = json.loads(child.stdout)
    except subprocess.TimeoutExpired:
        raise ReaderError(f"it did not read within {_LIMIT_S:g} s. Copy it to a disk of this machine") from None
    except OSError as error:
        raise ReaderError(f"no process could be started to read it ({error}). End other processes") from error
    except (ValueError, RecursionError):
        if child.returncode != -signal.SIGXCPU and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
            raise ReaderError(f"{describe_memory()} ({_explain(child)}). Raise the limit") from None
        raise UnreadableError(_explain(child)) from None
    if "limit" in answer:
        reason = answer["limit"].replace("memory", describe_memory())
        raise ReaderError(f"{reason}. Raise the limit, or free some space of {tempfile.gettempdir()}")
    if "error" in answer:
        raise UnreadableError(answer["error"])
    groups: dict[str, Any] = answer["groups"]
    return groups


def _start(source: Path, content: Path) -> subprocess.CompletedProcess[bytes]:
    # One thread: each thread of BLAS reserves memory. And no plugin of HDF5, which is code that a file may ask for.
    settings = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "HDF5_PLUGIN_PRELOAD": "::"}
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.run(
        [sys.executable, _CHILD, str(source.absolute()), str(content)],
        env={**os.environ, **settings, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )


def _explain(child: subprocess.CompletedProcess[bytes]) -> str:
    if child.returncode == -signal.SIGXCPU:
        return "HDF5 finds no end of it"
    if child.returncode < 0:
        return f"HDF5 crashes on it (signal {-child.returncode})"
    lines = child.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its reader ended with {child.returncode}"


def _decode(group: Mapping[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> xr.Dataset:
    variables = {
        name: xr.Variable(
            tuple(variable["dims"]), _build(variable["values"], arrays), _build_all(variable["attributes"], arrays)
        )
        for name, variable in group["variables"].items()
    }
    attributes = _build_all(group["attributes"], arrays)
    store = xr.backends.InMemoryDataStore(variables, attributes)  # type: ignore[no-untyped-call]
    return xr.decode_cf(store).load()


def _build_all(values: Mapping[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> dict[str, Any]:
    return {name: _build(value, arrays) for name, value in values.items()}


def _build(value: Mapping[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> Any:
    """Build a value from what stands for it in the child's answer."""
    if "text" in value:
        return value["text"]
    if "texts" in value:
        return np.array(value["texts"], dtype=object).reshape(value["shape"])
    array = arrays[value["array"]]
    return array if array.ndim else array[()]
