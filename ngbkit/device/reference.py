"""What a network should give: a float64 run of its first samples, and how far the uncompiled network is from it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Task, Tuning
from ngbkit.device.equivalence import NOISE, relative_error
from ngbkit.files import replacing
from ngbkit.workloads import exact, export, feeds
from ngbkit.workloads.base import Network

if TYPE_CHECKING:
    import torch

#: Samples that the reference is computed for, whatever the batch size of a trial.
ROWS = 2

# How long that of an ONNX file may take; 3 to 12 s are usual, and a child has the sweep's `timeout_s`, 600 s.
_BUDGET_S = 150.0
_BASELINE = "onnxruntime, graph optimisations off"
_OUTPUT, _ERRORS, _FIRST = "output_", "errors", "first_errors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """What a network should give for its first samples.

    Parameters
    ----------
    outputs
        One array an output: float64, or the integers or booleans that it returns. None where nothing could run it.
    errors
        The `relative_error` of each output that the uncompiled network itself gives.
    first_errors
        The same of the first sample alone, which is all that a trial of batch size 1 is held against: of two samples
        one may lose ten times more than the other, relative to its own magnitude.
    name
        What computed it.
    """

    outputs: tuple[np.ndarray, ...] = ()
    errors: tuple[float, ...] = ()
    first_errors: tuple[float, ...] = ()
    name: str = ""

    @property
    def baseline_rmse(self) -> float:
        """The largest of `errors`."""
        return max(self.errors, default=0.0)

    def errors_of(self, samples: int) -> tuple[float, ...]:
        """The error of each output over as many samples as a trial of that batch size has in common with this."""
        return self.first_errors if samples == 1 else self.errors

    def write(self, path: Path) -> None:
        """Write all but the name as an ``.npz`` file."""
        arrays = {f"{_OUTPUT}{index:04d}": output for index, output in enumerate(self.outputs)}
        with replacing(path) as temporary, open(temporary, "wb") as write:
            errors = {_ERRORS: np.array(self.errors), _FIRST: np.array(self.first_errors)}
            np.savez(write, **errors, **arrays)  # type: ignore[arg-type]


def read(path: str | Path) -> Reference:
    """The reference that `Reference.write` wrote."""
    with np.load(path, allow_pickle=False) as arrays:
        outputs = tuple(arrays[name] for name in arrays.files if name.startswith(_OUTPUT))
        errors, first = (tuple(arrays[name].tolist()) for name in (_ERRORS, _FIRST))
        return Reference(outputs=outputs, errors=errors, first_errors=first)


def of(network: Network, seed: int, *, threads: int, onnx: Callable[[int], Path]) -> Reference:
    """The reference of a network.

    Parameters
    ----------
    network
        A module, or an ONNX file.
    seed
        What it is fed is drawn from it.
    threads
        That the baseline of an ONNX file may use.
    onnx
        Gives that file at a batch of so many rows.
    """
    arrays = feeds.draw(network.inputs, network.examples, network.batch_size or ROWS, seed)
    if network.module is not None:
        return _of_module(network.module, arrays)
    return _of_file(network, arrays, onnx, threads)


def _of_module(module: torch.nn.Module, arrays: Sequence[np.ndarray]) -> Reference:
    """The outputs of a float64 copy of the module, and how far the module itself is from them."""
    import torch

    def run(called: torch.nn.Module, fed: Sequence[np.ndarray]) -> list[np.ndarray]:
        flat = export.flatten(called(*(torch.from_numpy(array) for array in fed)))
        return [(one.float() if one.dtype is torch.bfloat16 else one).numpy() for one in flat]

    with torch.inference_mode():
        single = run(module, arrays)
        alone, _ = _attempt(lambda: run(module, [array[:1] for array in arrays]))
        try:
            wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
            precise = run(copy.deepcopy(module).double(), wide)
        except (RuntimeError, TypeError, NotImplementedError):
            # An operator or a buffer without float64: the float32 outputs are then held against themselves.
            return _hold(single, single, "torch eager, float32")
    reference = _hold(single, precise, "torch eager, float64", alone)
    if reference.baseline_rmse <= NOISE:
        return reference
    name = f"torch eager, float64; float32 is {reference.baseline_rmse:.2g} away from it, so that little can be told"
    return replace(reference, name=name)


def _of_file(network: Network, arrays: Sequence[np.ndarray], onnx: Callable[[int], Path], threads: int) -> Reference:
    """The outputs of the file in float64, and how far ONNX Runtime with its graph optimisations off is from them.

    Where onnx has no float64 of it, those of ONNX Runtime; and where that cannot run it either, none: the trials
    themselves will show what is wrong with the file.
    """
    try:
        file = onnx(len(arrays[0]))
    except Exception as error:  # noqa: BLE001  as in `_attempt`
        return Reference(name=f"none: {error}")
    single, refused = _attempt(partial(_run_baseline, network, arrays, file, threads))
    fed = {spec.name: array for spec, array in zip(network.inputs, arrays, strict=True)}
    precise, problem = _attempt(partial(exact.run, file, fed, budget_s=_BUDGET_S))
    if single is None:
        if precise is None:
            return Reference(name=f"none: {refused}; {problem}")
        return _hold(precise, precise, "onnx, float64")
    if precise is not None and [one.shape for one in single] == [one.shape for one in precise]:
        first = [array[:1] for array in arrays]
        alone, _ = _attempt(lambda: _run_baseline(network, first, onnx(1), threads))
        reference = _hold(single, precise, "onnx, float64", alone)
        # float32 does not lose that much: one of the two is wrong, and a wrong reference would let everything pass.
        if reference.baseline_rmse <= NOISE:
            return reference
        problem = f"it is {reference.baseline_rmse:.2g} away"
    return _hold(single, single, f"{_BASELINE}; no float64: {problem or 'its shapes are others'}")


def _run_baseline(network: Network, arrays: Sequence[np.ndarray], file: Path, threads: int) -> list[np.ndarray]:
    compiler: Compiler = registry.load(registry.COMPILERS, "identity")
    task = Task(
        form="onnx",
        module=None,
        onnx=file,
        inputs=tuple(network.inputs),
        arrays=tuple(arrays),
        batch_size=len(arrays[0]),
        options=compiler.settle({}),
        threads=threads,
        cache=file.parent,
        tuning=Tuning(folder=file.parent),
    )
    program = compiler.compile(task)
    return program.fetch(program.run())


def _attempt(make: Callable[[], list[np.ndarray]]) -> tuple[list[np.ndarray] | None, str]:
    """What `make` gives, or why it gives nothing."""
    try:
        return make(), ""
    except Exception as error:  # noqa: BLE001  a runtime may raise anything about a file of the user's own
        return None, " ".join(str(error).split())[:200]


def _hold(
    single: Sequence[np.ndarray], precise: Sequence[np.ndarray], name: str, alone: Sequence[np.ndarray] | None = None
) -> Reference:
    """The reference of a network that gave `single` in its own precision, and should have given `precise`.

    `alone` is what it gave for the first sample by itself. There the same sums are taken in another order: a network
    that enlarges what float32 rounds off may be five times further off so, and no compiler can do better but by chance.
    The error that counts is the larger.
    """
    outputs = tuple(_within_reach(one, two) for one, two in zip(single, precise, strict=True))
    runs = [list(single)]
    if alone is not None and [one.shape for one in alone] == [one[:1].shape for one in single if one.ndim]:
        runs.append([np.concatenate([first, both[1:]]) for first, both in zip(alone, single, strict=True)])
    errors, first = (
        tuple(
            max(relative_error(_rows(run[at], many), _rows(two, many))[0] for run in runs)
            for at, two in enumerate(outputs)
        )
        for many in (None, 1)
    )
    return Reference(outputs=outputs, errors=errors, first_errors=first, name=name)


def _within_reach(single: np.ndarray, precise: np.ndarray) -> np.ndarray:
    """The precise values, but where the range of single precision ends: what it cannot hold is asked of no compiler."""
    wide = precise.astype(np.float64) if precise.dtype.kind == "f" else precise
    same = np.isfinite(single) == np.isfinite(wide)
    return wide if same.all() else np.where(same, wide, single)


def _rows(array: np.ndarray, many: int | None) -> np.ndarray:
    """So many samples of an output; all of one that has no batch."""
    return array[:many] if array.ndim else array
