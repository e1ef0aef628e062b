"""Compiled code and weights as files: a folder that any process on this kind of machine can load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.user_text import parse_json

if TYPE_CHECKING:
    from ngbkit.compilers.tvm_relax.lowering import Lowered

_CODE, _WEIGHTS, _INDEX = "library.so", "weights.bin", "library.json"


@dataclass(frozen=True, slots=True)
class Library:
    """Code that can be called, and the weights that it expects after the inputs."""

    machine: Any  # TVM's virtual machine, open on this code
    weights: Sequence[Any]  # on the device
    calls: Sequence[str]
    facts: Mapping[str, Any]

    def bind(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        """Bind inputs, already on the device, to a call of the network."""
        main, arguments = self.machine["main"], (*inputs, *self.weights)
        return lambda: main(*arguments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """A library, and what the program reports about it."""

    library: Library
    facts: Mapping[str, Any]
    notes: str
    reused_s: float = 0.0  # seconds of earlier work in it


def exists(folder: Path) -> bool:
    """Return whether a folder contains a complete library."""
    return (folder / _INDEX).is_file()


def read_facts(folder: Path) -> dict[str, Any]:
    """Read the facts of the library in a folder; return an empty dict if there is none."""
    try:
        facts: dict[str, Any] = parse_json((folder / _INDEX).read_text())["facts"]
    except (OSError, ValueError, KeyError):
        return {}
    return facts


def save(lowered: Lowered, folder: Path, facts: Mapping[str, Any]) -> bool:
    """Save a library to a folder, replacing any there; return False without a C++ compiler, which must link it."""
    from tvm.support import cc

    if cc.get_cc() is None:
        return False
    # Of a save that was killed; the device's lock keeps others away.
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    work = draft / "work"
    work.mkdir(parents=True)
    lowered.executable.export_library(str(draft / _CODE), workspace_dir=str(work))
    shutil.rmtree(work)
    weights = _write_weights(lowered.weights, draft / _WEIGHTS)
    index = {"weights": weights, "calls": list(lowered.calls), "facts": dict(facts)}
    (draft / _INDEX).write_text(json.dumps(index))
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    return True


def load(folder: Path, device: Any) -> Library:
    """Load the library in a folder onto a device."""
    from ngbkit.compilers.tvm_runtime import tvm

    index = json.loads((folder / _INDEX).read_text())
    code = tvm.runtime.load_module(str((folder / _CODE).absolute()))
    with (folder / _WEIGHTS).open("rb") as file:
        arrays = (_read_weight(file, entry) for entry in index["weights"])
        return _build_library(code, arrays, index["calls"], index["facts"], device)


def from_lowered(lowered: Lowered, facts: Mapping[str, Any], device: Any) -> Library:
    """Build a library in memory, for a machine that cannot link."""
    return _build_library(lowered.executable, lowered.weights, lowered.calls, facts, device)


def _build_library(
    code: Any, arrays: Iterable[np.ndarray], calls: Sequence[str], facts: Mapping[str, Any], device: Any
) -> Library:
    from ngbkit.compilers.tvm_runtime import relax, tvm

    weights = [tvm.runtime.tensor(array, device) for array in arrays]
    return Library(relax.VirtualMachine(code, device), weights, calls, facts)


def _write_weights(weights: Sequence[np.ndarray], path: Path) -> list[dict[str, Any]]:
    with path.open("wb") as file:
        for array in weights:
            file.write(np.ascontiguousarray(array).data)
    return [{"shape": list(array.shape), "dtype": str(array.dtype)} for array in weights]


def _read_weight(file: Any, entry: Mapping[str, Any]) -> np.ndarray:
    dtype, shape = np.dtype(entry["dtype"]), entry["shape"]
    return np.fromfile(file, dtype, int(np.prod(shape))).reshape(shape)
