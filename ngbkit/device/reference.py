"""Reference of a network: the outputs of a float64 run on its first samples, and the uncompiled network's own error."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Task, Tuning
from ngbkit.device.equivalence import NOISE, compare, compute_relative_error
from ngbkit.files import write_atomically
from ngbkit.workloads import exact, export, feeds
from ngbkit.workloads.base import Network

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")

#: The number of samples of a reference, whatever the batch size of a trial.
ROWS = 2

# The limit for an ONNX file; 3 to 12 s are usual, and a child has the sweep's `timeout_s`, 600 s.
_BUDGET_S = 150.0
_BASELINE = "onnxruntime, graph optimisations off"
_OUTPUT, _ERRORS, _FIRST, _PROBLEM = "output_", "errors", "first_errors", "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The expected outputs of a network for its first samples."""

    # One array an output: float64, or the integers or booleans that it returns. Empty if nothing could run it.
    outputs: tuple[np.ndarray, ...] = ()
    # The relative error of each output of the uncompiled network itself.
    errors: tuple[float, ...] = ()
    # The same of the first sample alone, for trials of batch size 1: of two samples one may lose ten times more than
    # the other, relative to its own magnitude.
    first_errors: tuple[float, ...] = ()
    # The runtime and precision of the reference.
    name: str = ""
    # Why no output can be compared with these, or ``""``.
    problem: str = ""

    @property
    def baseline_rmse(self) -> float:
        """The largest of `errors`."""
        return max(self.errors, default=0.0)

    def select_errors(self, samples: int) -> tuple[float, ...]:
        """Select the errors over the samples that this reference shares with a trial of that batch size."""
        return self.first_errors if samples == 1 else self.errors

    def write(self, path: Path) -> None:
        """Write all but the name as an ``.npz`` file."""
        arrays = {f"{_OUTPUT}{index:04d}": output for index, output in enumerate(self.outputs)}
        with write_atomically(path) as temporary, open(temporary, "wb") as write:
            errors = {_ERRORS: np.array(self.errors), _FIRST: np.array(self.first_errors)}
            np.savez(write, **errors, **{_PROBLEM: np.array(self.problem)}, **arrays)  # type: ignore[arg-type]


def read_reference(path: str | Path) -> Reference:
    """Read the file of `Reference.write`."""
    with np.load(path, allow_pickle=False) as arrays:
        outputs = tuple(arrays[name] for name in arrays.files if name.startswith(_OUTPUT))
        errors, first = (tuple(arrays[name].tolist()) for name in (_ERRORS, _FIRST))
        return Reference(outputs=outputs, errors=errors, first_errors=first, problem=str(arrays[_PROBLEM]))


def build_reference(network: Network, seed: int, *, threads: int, onnx: Callable[[int], Path]) -> Reference:
    """Build the reference of a network on inputs drawn from `seed`.

    If the network is an ONNX file, `onnx` returns it at a batch of that many rows, and its baseline uses `threads`.
    """
    arrays = feeds.draw(network.inputs, network.examples, network.batch_size or ROWS, seed)
    if network.module is not None:
        return _run_module(network.module, arrays)
    return _run_file(network, arrays, onnx, threads)


def _run_module(module: torch.nn.Module, arrays: Sequence[np.ndarray]) -> Reference:
    """Build the reference from a float64 copy of the module, and the error of the module itself."""
    import torch

    def run(network: torch.nn.Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = export.flatten(network(*(torch.from_numpy(array) for array in inputs)))
        return [(output.float() if output.dtype is torch.bfloat16 else output).numpy() for output in outputs]

    with torch.inference_mode():
        single, again = run(module, arrays), run(module, arrays)
        alone, _ = _attempt(lambda: run(module, [array[:1] for array in arrays]))
        try:
            wide = [array.astype(np.float64) if array.dtype.kind == "f" else array for array in arrays]
            precise = run(copy.deepcopy(module).double(), wide)
        except (RuntimeError, TypeError, NotImplementedError):
            # An operator or a buffer without float64: then the float32 outputs are their own reference.
            return _compare(single, single, "torch eager, float32", again=again)
    reference = _compare(single, precise, "torch eager, float64", alone, again)
    if reference.baseline_rmse <= NOISE:
        return reference
    name = f"torch eager, float64; float32 is {reference.baseline_rmse:.2g} away from it, too far for a strict check"
    return replace(reference, name=name)


def _run_file(network: Network, arrays: Sequence[np.ndarray], onnx: Callable[[int], Path], threads: int) -> Reference:
    """Build the reference from the file in float64, and the error of ONNX Runtime without graph optimisations.

    If onnx cannot run it in float64, the reference is ONNX Runtime's outputs; if that fails too, it is empty, and the
    trials themselves will show the fault of the file.
    """
    try:
        file = onnx(len(arrays[0]))
    except Exception as error:  # noqa: BLE001  as in `_attempt`
        return Reference(name=f"none: {error}")
    calls, refusal = _attempt(partial(_run_baseline, network, arrays, file, threads))
    inputs = {spec.name: array for spec, array in zip(network.inputs, arrays, strict=True)}
    precise, problem = _attempt(partial(exact.run, file, inputs, budget_s=_BUDGET_S))
    if calls is None:
        if precise is None:
            return Reference(name=f"none: {refusal}; {problem}")
        return _compare(precise, precise, "onnx, float64")
    single, again = calls
    if precise is not None and [output.shape for output in single] == [output.shape for output in precise]:
        first = [array[:1] for array in arrays]
        alone, _ = _attempt(lambda: _run_baseline(network, first, onnx(1), threads)[0])
        reference = _compare(single, precise, "onnx, float64", alone, again)
        # float32 does not lose that much: one of the two is wrong, and a wrong reference would accept everything.
        if reference.baseline_rmse <= NOISE:
            return reference
        problem = f"it is {reference.baseline_rmse:.2g} away"
    name = f"{_BASELINE}; no float64: {problem or 'its shapes differ'}"
    return _compare(single, single, name, again=again)


def _run_baseline(
    network: Network, arrays: Sequence[np.ndarray], file: Path, threads: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Run ONNX Runtime without graph optimisations, and return the outputs of two calls."""
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
    first = [np.array(output) for output in program.fetch(program.run())]  # copied: a call may overwrite the last one's
    return first, list(program.fetch(program.run()))


def _attempt(run: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return the result of `run`, or None and the reason for its failure."""
    try:
        return run(), ""
    except Exception as error:  # noqa: BLE001  a runtime may raise anything about a user's own file
        return None, " ".join(str(error).split())[:200]


def _compare(
    single: Sequence[np.ndarray],
    precise: Sequence[np.ndarray],
    name: str,
    alone: Sequence[np.ndarray] | None = None,
    again: Sequence[np.ndarray] | None = None,
) -> Reference:
    """Build the reference from the outputs `single` in the network's own precision, and the outputs `precise`.

    `alone` are its outputs for the first sample by itself. That run adds the same terms in another order: in a network
    that amplifies float32 rounding its error may be five times larger, and no compiler is better except by chance. The
    larger error counts. `again` are the outputs of a second call with the same inputs.
    """
    outputs = tuple(_limit_range(output, wide) for output, wide in zip(single, precise, strict=True))
    runs = [list(single)]
    if alone is not None and [row.shape for row in alone] == [output[:1].shape for output in single if output.ndim]:
        runs.append([np.concatenate([first, both[1:]]) for first, both in zip(alone, single, strict=True)])
    errors, first_errors = (
        tuple(
            max(compute_relative_error(_select_rows(run[index], rows), _select_rows(output, rows))[0] for run in runs)
            for index, output in enumerate(outputs)
        )
        for rows in (None, 1)
    )
    problem = _find_problem(single, single if again is None else again)
    return Reference(outputs=outputs, errors=errors, first_errors=first_errors, name=name, problem=problem)


def _find_problem(single: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> str:
    """Return why the outputs of two calls of the uncompiled network are no reference, or ``""``."""
    numbers = [output for output in single if output.dtype.kind in "fc" and output.size]
    if numbers and not any(np.isfinite(output).any() for output in numbers):
        return (
            "the outputs of the uncompiled network itself are NaN or infinite, all of them, so that none can be "
            "compared; check its weights, and feed it inputs that it accepts"
        )
    check = compare(again, single)
    if not check.problem:
        return ""
    return (
        "the uncompiled network itself is random or keeps a state: two calls with the same inputs differ (relative "
        f"RMSE {check.rmse:.2g}), so that no output can be compared; fix its seed, switch off its dropout, or make "
        "its noise an input"
    )


def _limit_range(single: np.ndarray, precise: np.ndarray) -> np.ndarray:
    """Limit precise values to the range of single precision, beyond which no compiler can follow."""
    wide = precise.astype(np.float64) if precise.dtype.kind == "f" else precise
    same = np.isfinite(single) == np.isfinite(wide)
    return wide if same.all() else np.where(same, wide, single)


def _select_rows(array: np.ndarray, rows: int | None) -> np.ndarray:
    """Select that many samples of an output; all of an output without a batch."""
    return array[:rows] if array.ndim else array
