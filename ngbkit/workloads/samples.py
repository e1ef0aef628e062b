"""Samples of a network, by which lower precisions are calibrated and judged: checked, divided, and in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ngbkit.errors import NgbkitError, WorkloadError
from ngbkit.workloads import feeds, values
from ngbkit.workloads.base import RANDOM, TensorSpec, Workload

# Of either kind; NNCF takes 300 by default, and more hardly change the ranges.
_MOST = 512
_DRAWN = 64
# Added to a seed: other values than those that are timed.
_SEED = 2_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples of a network, with their values along the batch of each input."""

    inputs: Sequence[TensorSpec]
    arrays: Mapping[str, np.ndarray]
    # Values of the other inputs, as for `feeds.draw`.
    examples: Mapping[str, np.ndarray]
    # Which of them, by their place.
    places: Sequence[int]
    seed: int

    def __len__(self) -> int:
        return len(self.places)

    def batches(self, size: int) -> Iterator[list[np.ndarray]]:
        """Yield an array per input for each batch; the last is filled up with the first samples."""
        for start in range(0, len(self.places), size):
            rows = [self.places[place % len(self.places)] for place in range(start, start + size)]
            chosen = {
                spec.name: np.take(self.arrays[spec.name], rows, axis=spec.batch_axis)
                for spec in self.inputs
                if spec.name in self.arrays and spec.batch_axis is not None
            }
            yield feeds.draw(self.inputs, {**self.examples, **chosen}, size, self.seed)


def attach(workload: Workload, path: Path) -> Workload:
    """Return the workload with an artifact of samples; WorkloadError if they are no samples of it, where that shows."""
    arrays = values.read(path)
    if workload.inputs and not workload.takes:
        _check(workload.inputs, arrays, workload.name)
    else:
        for name, array in arrays.items():
            _check_values(name, array, workload.name)
    return replace(workload, calibration=path.name, artifacts={**workload.artifacts, path.name: path})


def divide(
    workload: Workload, inputs: Sequence[TensorSpec], examples: Mapping[str, np.ndarray], seed: int
) -> tuple[Samples, Samples | None]:
    """Divide the samples of a built network into those that calibrate and those that judge; None if they are drawn.

    Every second sample judges, and calibrates nothing: ranges that were fitted to a sample suit it too well.
    """
    if workload.calibration == RANDOM:
        noise = feeds.draw(inputs, examples, _DRAWN, seed + _SEED)
        arrays = {spec.name: array for spec, array in zip(inputs, noise, strict=True)}
        return Samples(inputs=inputs, arrays=arrays, examples=examples, places=range(_DRAWN), seed=seed), None
    arrays = _check(inputs, values.read(workload.artifacts[workload.calibration]), workload.name)
    count = _count(inputs, arrays)
    samples = Samples(inputs=inputs, arrays=arrays, examples=examples, places=range(count), seed=seed)
    return (
        replace(samples, places=_spread(range(0, count, 2))),
        replace(samples, places=_spread(range(1, count, 2))),
    )


def _spread(places: range) -> Sequence[int]:
    """Return at most `_MOST` of the places, at even distances."""
    return places if len(places) <= _MOST else [places[place * len(places) // _MOST] for place in range(_MOST)]


def _check(inputs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray], network: str) -> dict[str, np.ndarray]:
    """Return samples by input name in the dtypes of the inputs; WorkloadError if they are none of this network."""
    batched = [spec for spec in inputs if spec.batch_axis is not None]
    if not batched:
        raise _refuse(network, "a file of samples", f"a network with a batch; no input of {network} has one")
    try:
        matched = values.match([spec.name for spec in batched], arrays, network)
    except NgbkitError as error:
        raise WorkloadError(f"invalid calibration data for {network}: {error}") from error
    checked: dict[str, np.ndarray] = {}
    for spec in batched:
        if spec.name not in matched:
            names = ", ".join(spec.name for spec in batched)
            raise _refuse(network, f"no array for input {spec.name}", f"one for each of {names}")
        array = matched[spec.name]
        if not spec.accepts(array.shape):
            raise _refuse(network, f"shape {array.shape} for input {spec.name}", spec.format_shape())
        checked[spec.name] = values.check_value(spec, array, network)
        _check_values(spec.name, array, network)
    _count(batched, checked)
    return checked


def _check_values(name: str, array: np.ndarray, network: str) -> None:
    """Refuse values by which nothing can be calibrated."""
    if array.dtype.kind not in "fiub" or not array.size:
        return
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        places = int(np.count_nonzero(~np.isfinite(array)))
        raise _refuse(network, f"input {name} with {places} values that are NaN or infinite", "finite numbers")
    if array.dtype.kind == "f" and array.size > 1 and float(np.ptp(array)) == 0:
        raise _refuse(network, f"input {name} that is {array.flat[0]:g} throughout", "values that differ")


def _count(inputs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray]) -> int:
    """Count the samples, which every input has as many of."""
    counts = {
        spec.name: arrays[spec.name].shape[spec.batch_axis]
        for spec in inputs
        if spec.name in arrays and spec.batch_axis is not None
    }
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise WorkloadError(f"invalid calibration data: got {listed}; expected as many samples of each input.")
    count: int = min(counts.values())
    if count < 2:
        raise WorkloadError(
            f"invalid calibration data: got {'a single sample' if count else 'no sample'}; expected at least 2, and "
            "better 200: half of them calibrate, and the others judge. Give more, or --calibrate random."
        )
    if all(_repeats_a_row(arrays[spec.name], spec.batch_axis or 0) for spec in inputs if spec.name in counts):
        raise WorkloadError(
            f"invalid calibration data: got the same sample {count} times; expected samples that differ. Give others, "
            "or --calibrate random."
        )
    return count


def _repeats_a_row(array: np.ndarray, axis: int) -> bool:
    return bool((array == array.take([0], axis)).all())


def _refuse(network: str, got: str, expected: str) -> WorkloadError:
    return WorkloadError(
        f"invalid calibration data for {network}: got {got}; expected {expected}. Give other samples, or --calibrate "
        "random."
    )
