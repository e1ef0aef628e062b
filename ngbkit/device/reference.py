"""Reference of a network: the outputs of a float64 run on its first samples, and the uncompiled network's own error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ngbkit.device import equivalence
from ngbkit.device.equivalence import NOISE, compare, compute_relative_error, select_common_rows
from ngbkit.device.reference_runs import Runs, run_file, run_module
from ngbkit.files import write_atomically
from ngbkit.workloads.base import Network

#: The number of samples of a reference, if the outputs of a sample do not depend on the others.
ROWS = 2

# A gap between single and double precision is rounding if it is at most this multiple of what a change of the inputs in
# the last digit does, which adds the rounding of every operator to it.
_ROUNDING = 30.0
# Below this no gap is questioned.
_SMALL = 1e-4
_OUTPUT, _OTHER, _PROBE = "output_", "other_", "probe_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The expected outputs of a network for its first samples."""

    # One array an output: float64, or the integers, booleans or text that it returns. Empty if nothing could run it.
    outputs: tuple[np.ndarray, ...] = ()
    # The dimension of the samples of each output; None for an output that is compared whole.
    axes: tuple[int | None, ...] = ()
    # The relative error of each output of the uncompiled network itself.
    errors: tuple[float, ...] = ()
    # The same of the first sample alone, for trials of batch size 1: of two samples one may lose ten times more than
    # the other, relative to its own magnitude.
    first_errors: tuple[float, ...] = ()
    # The outputs for other inputs, which a check must not accept; empty if there are none.
    others: tuple[np.ndarray, ...] = ()
    # The outputs for further sets of inputs (`feeds.draw_other`), in the network's own precision, which timed calls are
    # compared with; and the relative error of each output by rounding, with the magnitude that it is relative to.
    probes: tuple[tuple[np.ndarray, ...], ...] = ()
    probe_errors: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    # The samples of each set of inputs.
    rows: int = ROWS
    # The precision of the network's own body.
    precision: str = "f32"
    # Whether it holds at any batch size: the outputs of a sample do not depend on the others.
    row_wise: bool = True
    # Whether the outputs are those of the uncompiled network itself, without double precision.
    is_own: bool = False
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
        arrays = {f"{_OUTPUT}{index:04d}": _to_plain(output) for index, output in enumerate(self.outputs)}
        arrays |= {f"{_OTHER}{index:04d}": _to_plain(output) for index, output in enumerate(self.others)}
        for number, outputs in enumerate(self.probes):
            arrays |= {f"{_PROBE}{number}_{index:04d}": _to_plain(output) for index, output in enumerate(outputs)}
        facts = {
            "axes": np.array([-1 if axis is None else axis for axis in self.axes], dtype=np.int64),
            "errors": np.array(self.errors),
            "first_errors": np.array(self.first_errors),
            "probe_errors": np.array(self.probe_errors),
            "scales": np.array(self.scales),
            "probes": np.array(len(self.probes)),
            "rows": np.array(self.rows),
            "precision": np.array(self.precision),
            "row_wise": np.array(self.row_wise),
            "problem": np.array(self.problem),
        }
        with write_atomically(path) as temporary, open(temporary, "wb") as write:
            np.savez(write, **facts, **arrays)  # type: ignore[arg-type]


def read_reference(path: str | Path) -> Reference:
    """Read the file of `Reference.write`."""
    with np.load(path, allow_pickle=False) as arrays:
        prefixes = (_OUTPUT, _OTHER, *(f"{_PROBE}{number}_" for number in range(int(arrays["probes"]))))
        outputs, others, *probes = (
            tuple(_from_plain(arrays[name]) for name in arrays.files if name.startswith(prefix)) for prefix in prefixes
        )
        return Reference(
            outputs=outputs,
            axes=tuple(None if axis < 0 else axis for axis in arrays["axes"].tolist()),
            errors=tuple(arrays["errors"].tolist()),
            first_errors=tuple(arrays["first_errors"].tolist()),
            others=others,
            probes=tuple(probes),
            probe_errors=tuple(arrays["probe_errors"].tolist()),
            scales=tuple(arrays["scales"].tolist()),
            rows=int(arrays["rows"]),
            precision=str(arrays["precision"]),
            row_wise=bool(arrays["row_wise"]),
            problem=str(arrays["problem"]),
        )


def build_reference(
    network: Network,
    seed: int,
    *,
    threads: int,
    onnx: Callable[[int], Path],
    batch_size: int | None = None,
    rebuild: Callable[[], Network] | None = None,
) -> Reference:
    """Build the reference of a network on inputs drawn from `seed`.

    Without a `batch_size` it is of two samples, or of the only batch size, and for any batch size if the outputs of a
    sample do not depend on the others; else `row_wise` is False, and each batch size needs one. `onnx` returns the ONNX
    file at a batch size, whose baseline has so many `threads`; `rebuild` builds a network whose copy is another one.
    """
    rows, is_general = batch_size or network.batch_size or ROWS, batch_size is None and network.batch_size is None
    if network.module is not None:
        runs = run_module(network, seed, rows, rebuild, alone=is_general)
    else:
        runs = run_file(network, seed, rows, onnx, threads, alone=is_general)
    reference = replace(compare_runs(runs), rows=rows)
    if is_general:
        split = add_probes(split_samples(reference, runs), runs)
        return replace(split, row_wise=split.row_wise and _are_independent(split, runs))
    return add_probes(replace(reference, row_wise=network.batch_size is not None), runs)


def add_probes(reference: Reference, runs: Runs) -> Reference:
    """Add the outputs that timed calls are compared with: for further inputs, or for the same if there are no others.

    An output of a single sample may be almost zero by chance: errors are relative to the magnitude of all samples.
    """
    if runs.single is None or reference.problem:
        return reference
    shapes = _list_shapes(runs.single)
    pairs = [pair for pair in runs.probes if all(_list_shapes(outputs) == shapes for outputs in pair)]
    is_complete = len(pairs) == len(runs.probes)
    probes = tuple(tuple(outputs) for outputs, _ in pairs) if is_complete else ()
    sets = [*probes, tuple(runs.single)]
    scales = tuple(equivalence.compute_scale(outputs) for outputs in zip(*sets, strict=True))
    errors = [max(pair) for pair in zip(reference.errors, reference.first_errors, strict=True)]
    for outputs, nudged in pairs:
        for index, (want, got) in enumerate(zip(outputs, nudged, strict=True)):
            errors[index] = max(errors[index], compute_relative_error(got, want, scales[index])[0])
    return replace(reference, probes=probes, probe_errors=tuple(errors), scales=scales)


def _are_independent(reference: Reference, runs: Runs) -> bool:
    """Return whether samples have the same outputs among others: two that agree once may do so by chance."""
    if not reference.probes:
        return True
    errors = [max(error, _SMALL) for error in reference.probe_errors]
    for number, outputs in enumerate(runs.crossed):
        pair = zip(reference.probes[number], reference.probes[(number + 1) % len(reference.probes)], strict=True)
        expected = [_cross(before, after, axis) for (before, after), axis in zip(pair, reference.axes, strict=True)]
        check = compare(
            outputs or [],
            expected,
            baseline_rmse=errors,
            precision=reference.precision,
            axes=[None] * len(expected),
            scales=reference.scales,
        )
        if check.problem:
            return False
    return True


def _cross(before: np.ndarray, after: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None:
        return before
    half = before.shape[axis] // ROWS
    return np.concatenate([before.take(range(half, 2 * half), axis), after.take(range(half), axis)], axis)


def split_samples(reference: Reference, runs: Runs) -> Reference:
    """Find the samples in the outputs of a reference for two; it is not row-wise if they depend on each other."""
    axes = _find_axes(runs, reference)
    if axes is None or runs.single is None:
        return replace(reference, row_wise=False)
    versions = [version for version in (runs.single, _join(runs, axes)) if version is not None]
    errors, first_errors = [], []
    for index, (want, axis) in enumerate(zip(reference.outputs, axes, strict=True)):
        got = [version[index] for version in versions]
        errors.append(max(reference.errors[index], *(compute_relative_error(output, want)[0] for output in got)))
        if reference.is_own and runs.nudged is not None and runs.nudged[index].shape == want.shape:
            got.append(runs.nudged[index])
        first_errors.append(max(compute_relative_error(*_select_first(output, want, axis))[0] for output in got))
    return replace(reference, axes=axes, errors=tuple(errors), first_errors=tuple(first_errors), row_wise=True)


def judge(reference: Reference, outputs: Sequence[np.ndarray], batch_size: int, requested: str = "f32") -> Verdict:
    """Judge the outputs of a trial: compare them, unless a wrong output would pass too, or the reference is none."""
    if reference.problem or not reference.outputs:  # an error against such a reference means nothing
        return Verdict(unchecked=reference.problem or reference.name or "there is no reference")
    errors = reference.select_errors(batch_size)
    precision = equivalence.choose_precision(reference.precision, requested)
    axes, expected = reference.axes, reference.outputs
    check = compare(outputs, expected, baseline_rmse=errors, precision=precision, axes=axes)
    if check.problem:
        return Verdict(check=check)
    void = equivalence.find_void(expected, reference.others, baseline_rmse=errors, precision=precision, axes=axes)
    reason = (
        f"{void} would pass the check too: its reference cannot tell a wrong answer from a right one" if void else ""
    )
    return Verdict(check=check, unchecked=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on the outputs of a trial."""

    check: equivalence.EquivalenceCheck | None = None
    # Why the check was not made, or says nothing; ``""`` where it was made.
    unchecked: str = ""


def compare_runs(runs: Runs) -> Reference:
    """Build the reference of some runs, whose outputs are compared whole."""
    if runs.single is None and runs.precise.outputs is None:
        return Reference(name=f"none: {runs.refusal}; {runs.precise.problem}", precision=runs.precision)
    reference = Reference(precision=runs.precision, others=tuple(runs.others or ()))
    if runs.single is None:
        precise = tuple(runs.precise.outputs or ())
        reference = replace(reference, outputs=precise, name=runs.precise.name)
    else:
        reference = _choose_outputs(reference, runs, runs.single)
        reference = replace(reference, problem=_find_problem(runs, runs.single))
    errors = reference.errors or (0.0,) * len(reference.outputs)
    return replace(reference, axes=(None,) * len(errors), errors=errors, first_errors=errors)


def _choose_outputs(reference: Reference, runs: Runs, single: Sequence[np.ndarray]) -> Reference:
    """Choose the outputs in double precision, unless there are none, or they differ by more than rounding.

    The errors are those of single precision against them; without double precision, what the last digit of the inputs
    changes.
    """
    precise, problem = runs.precise.outputs, runs.precise.problem
    rounding = _measure_errors(runs.nudged, single)
    if precise is not None and _list_shapes(precise) != _list_shapes(single):
        precise, problem = None, "its shapes differ"
    if precise is not None:
        outputs = tuple(map(_limit_range, single, precise))
        errors = _measure_errors(single, outputs) or ()
        limits = [NOISE] * len(errors) if rounding is None else [max(_SMALL, _ROUNDING * least) for least in rounding]
        excess = max((error for error, limit in zip(errors, limits, strict=True) if error > limit), default=0.0)
        if not excess:
            return replace(reference, outputs=outputs, errors=errors, name=runs.precise.name)
        problem = f"it is {excess:.2g} away, more than rounding"
    outputs = tuple(output.astype(np.float64) if output.dtype.kind == "f" else output for output in single)
    name = f"{runs.name}; no float64: {problem}"
    return replace(reference, outputs=outputs, errors=rounding or (), name=name, is_own=True)


def _measure_errors(got: Sequence[np.ndarray] | None, want: Sequence[np.ndarray]) -> tuple[float, ...] | None:
    """Measure the relative error of each output; None if they are none, or have other shapes."""
    if got is None or _list_shapes(got) != _list_shapes(want):
        return None
    return tuple(compute_relative_error(output, expected)[0] for output, expected in zip(got, want, strict=True))


def _find_problem(runs: Runs, single: Sequence[np.ndarray]) -> str:
    """Return why the outputs of the uncompiled network are no reference, or ``""``."""
    numbers = [output for output in single if output.dtype.kind in "fc" and output.size]
    if numbers and not any(np.isfinite(output).any() for output in numbers):
        return (
            "the outputs of the uncompiled network itself are NaN or infinite, all of them, so that none can be "
            "compared; check its weights, and give it inputs that it accepts: --inputs FILE"
        )
    if runs.is_late:
        return (
            "its calls return before they have computed: threads that they started still run, so that no time is that "
            "of a call. Wait for them in forward()"
        )
    if runs.changed:
        return (
            f"it changes its input {runs.changed} in place, so that every call sees another one; clone the input in "
            "forward()"
        )
    check = compare(runs.again or single, single, precision=runs.precision, axes=[None] * len(single))
    if not check.problem:
        return _find_unstable_shapes(runs, single)
    gap = f"relative RMSE {check.rmse:.2g}" if np.isfinite(check.rmse) else check.problem
    return (
        f"the uncompiled network itself is random or keeps a state: two calls with the same inputs differ ({gap}), so "
        "that no output can be compared; switch off its dropout, reset its state in each call, or make its noise or "
        "state an input"
    )


def _find_unstable_shapes(runs: Runs, single: Sequence[np.ndarray]) -> str:
    """Return that the shapes of outputs depend on rounding, if they do."""
    # onnx's own operators in double precision are no witness: some return other shapes than every runtime.
    precise = runs.precise.outputs if runs.name.startswith("torch") else None
    for outputs, where in ((precise, "in float64"), (runs.nudged, "with the last digit of the inputs changed")):
        if outputs is not None and _list_shapes(outputs) != _list_shapes(single):
            return (
                f"the shapes of its outputs depend on rounding: they are {_list_shapes(single)}, and "
                f"{_list_shapes(outputs)} {where}"
            )
    return ""


def _find_axes(runs: Runs, reference: Reference) -> tuple[int | None, ...] | None:
    """Find the dimension of the samples of each output; None if outputs of a sample depend on the others."""
    if runs.single is None or runs.alone is None or len(runs.alone) != len(runs.single):
        return None
    axes = [_find_axis(both.shape, alone.shape) for both, alone in zip(runs.single, runs.alone, strict=True)]
    if any(
        axis is None and both.shape != alone.shape
        for axis, both, alone in zip(axes, runs.single, runs.alone, strict=True)
    ):
        return None
    errors = tuple(max(error, _SMALL) for error in reference.errors)
    check = compare(runs.alone, runs.single, baseline_rmse=errors, precision=runs.precision, axes=axes)
    return None if check.problem else tuple(axes)


def _find_axis(both: tuple[int, ...], alone: tuple[int, ...]) -> int | None:
    """Find the only dimension that is twice as long for two samples as for one; None without one."""
    if len(both) != len(alone):
        return None
    changed = [axis for axis, (long, short) in enumerate(zip(both, alone, strict=True)) if long != short]
    return changed[0] if len(changed) == 1 and both[changed[0]] == 2 * alone[changed[0]] else None


def _join(runs: Runs, axes: Sequence[int | None]) -> list[np.ndarray] | None:
    """Join the outputs of the first sample by itself with the outputs of the others."""
    if runs.single is None or runs.alone is None:
        return None
    return [
        alone
        if axis is None
        else np.concatenate([alone, both.take(range(alone.shape[axis], both.shape[axis]), axis)], axis)
        for alone, both, axis in zip(runs.alone, runs.single, axes, strict=True)
    ]


def _select_first(got: np.ndarray, want: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Select the first of two samples."""
    if axis is None:
        return got, want
    rows = range(want.shape[axis] // ROWS)
    got, want = select_common_rows(got, want, axis)
    return got.take(rows, axis), want.take(rows, axis)


def _limit_range(single: np.ndarray, precise: np.ndarray) -> np.ndarray:
    """Limit precise values to the range of single precision, beyond which no compiler can follow."""
    if precise.dtype.kind not in "fiub":
        return precise
    wide = precise.astype(np.float64) if precise.dtype.kind == "f" else precise
    same = np.isfinite(single) == np.isfinite(wide)
    return wide if same.all() else np.where(same, wide, single)


def _list_shapes(outputs: Sequence[np.ndarray]) -> list[tuple[int, ...]]:
    return [output.shape for output in outputs]


def _to_plain(output: np.ndarray) -> np.ndarray:
    """Return text as fixed-width characters, which a file of NumPy stores without pickles."""
    return output.astype(str) if output.dtype.kind == "O" else output


def _from_plain(output: np.ndarray) -> np.ndarray:
    return output.astype(object) if output.dtype.kind == "U" else output
