"""Compiled code and weights as files, and back: a folder that any process of this kind of machine can load."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ngbkit.compilers.tvm_relax.lowering import Lowered

_CODE, _WEIGHTS, _INDEX = "library.so", "weights.bin", "library.json"


@dataclass(frozen=True, slots=True)
class Library:
    """Code that can be called, and the weights that it takes after the inputs.

    Parameters
    ----------
    machine
        The virtual machine.
    weights
        On the device.
    calls
        The names of the functions that a call of it calls.
    facts
        What was said of it when it was kept.
    """

    machine: Any
    weights: Sequence[Any]
    calls: Sequence[str]
    facts: Mapping[str, Any]

    def bind(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        """A call of the network with those inputs, which are on the device."""
        main, arguments = self.machine["main"], (*inputs, *self.weights)
        return lambda: main(*arguments)


def is_kept(folder: Path) -> bool:
    """Whether a whole library lies in that folder."""
    return (folder / _INDEX).is_file()


def read_facts(folder: Path) -> dict[str, Any]:
    """What was said of the library in that folder; empty where there is none."""
    try:
        facts: dict[str, Any] = json.loads((folder / _INDEX).read_text())["facts"]
    except (OSError, ValueError, KeyError):
        return {}
    return facts


def keep(lowered: Lowered, folder: Path, facts: Mapping[str, Any]) -> bool:
    """Write a library to that folder, in place of one that is there; whether that could be done.

    It takes a C++ compiler's linker.
    """
    from tvm.support import cc

    if cc.get_cc() is None:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f"{folder.name}.{os.getpid()}.draft")
    draft.mkdir()
    try:
        work = draft / "work"
        work.mkdir()
        lowered.executable.export_library(str(draft / _CODE), workspace_dir=str(work))
        shutil.rmtree(work)
        index = {
            "weights": _write(lowered.weights, draft / _WEIGHTS),
            "calls": list(lowered.calls),
            "facts": dict(facts),
        }
        (draft / _INDEX).write_text(json.dumps(index))
        _put(draft, folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return True


def load(folder: Path, device: Any) -> Library:
    """The library in that folder, ready on a device."""
    from ngbkit.compilers.tvm_runtime import tvm

    index = json.loads((folder / _INDEX).read_text())
    code = tvm.runtime.load_module(str((folder / _CODE).absolute()))
    with (folder / _WEIGHTS).open("rb") as file:
        arrays = (_read(file, entry) for entry in index["weights"])
        return _ready(code, arrays, index["calls"], index["facts"], device)


def take(lowered: Lowered, facts: Mapping[str, Any], device: Any) -> Library:
    """The same without any file, for a machine that cannot link."""
    return _ready(lowered.executable, lowered.weights, lowered.calls, facts, device)


def _ready(
    code: Any, arrays: Iterable[np.ndarray], calls: Sequence[str], facts: Mapping[str, Any], device: Any
) -> Library:
    from ngbkit.compilers.tvm_runtime import relax, tvm

    weights = [tvm.runtime.tensor(array, device) for array in arrays]
    return Library(relax.VirtualMachine(code, device), weights, calls, facts)


def _write(weights: Sequence[np.ndarray], path: Path) -> list[dict[str, Any]]:
    with path.open("wb") as file:
        for array in weights:
            file.write(np.ascontiguousarray(array).data)
    return [{"shape": list(array.shape), "dtype": str(array.dtype)} for array in weights]


def _read(file: Any, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), entry["shape"]
    return np.fromfile(file, dtype, int(np.prod(shape))).reshape(shape)


def _put(draft: Path, folder: Path) -> None:
    """Rename a folder to its place: whoever looks finds a whole one or none."""
    old = folder.with_name(f"{draft.name}.old")
    try:
        if folder.is_dir():
            folder.rename(old)
        draft.rename(folder)
    except OSError:
        # A sibling that makes the same was faster; its own is as good.
        if not is_kept(folder):
            raise
    finally:
        shutil.rmtree(old, ignore_errors=True)
