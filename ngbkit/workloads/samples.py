"""Samples of a network, by which lower precisions are calibrated and judged: checked, divided, and in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ngbkit.errors import NgbkitError, WorkloadError
from ngbkit.workloads import feeds, targets, values
from ngbkit.workloads.base import RANDOM, TensorSpec, Workload
from ngbkit.workloads.targets import Targets

# Of either kind; NNCF takes 300 by default, and more hardly change the ranges.
_MOST = 512
TRANSFORM = "ngbkit.transform"
"""The entry of an artifact that says how pictures were converted to its arrays."""
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
    # Of labelled samples, in the order of `places`.
    targets: Targets | None = None

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


def read_transform(workload: Workload) -> str:
    """Read how the pictures that calibrate a network were converted; empty for other samples."""
    path = workload.artifacts.get(workload.calibration)
    if path is None:
        return ""
    with np.load(path, allow_pickle=False) as arrays:
        key = next((key for key in arrays.files if key.endswith(TRANSFORM)), None)
        return "" if key is None else str(arrays[key])


def _read_arrays(path: Path) -> dict[str, np.ndarray]:
    return {name: array for name, array in values.read(path).items() if name != TRANSFORM}


def attach(workload: Workload, path: Path) -> Workload:
    """Return the workload with an artifact of samples; WorkloadError if they are no samples of it, where that shows."""
    _check_where_known(workload, _read_arrays(path), _Subject(network=workload.name))
    return replace(workload, calibration=path.name, artifacts={**workload.artifacts, path.name: path})


def attach_labelled(workload: Workload, path: Path) -> Workload:
    """Return the workload with an artifact of labelled samples, as `attach`."""
    arrays, labelled = targets.split(values.read(path), [spec.name for spec in workload.inputs], workload.name)
    _check_where_known(workload, arrays, _Subject(network=workload.name, targets=labelled))
    return replace(workload, evaluation=path.name, artifacts={**workload.artifacts, path.name: path})


def calibrate(
    workload: Workload, inputs: Sequence[TensorSpec], examples: Mapping[str, np.ndarray], seed: int
) -> Samples:
    """Choose the samples that calibrate a built network: every second one, unless labelled ones judge."""
    if workload.calibration == RANDOM:
        noise = feeds.draw(inputs, examples, _DRAWN, seed + _SEED)
        arrays = {spec.name: array for spec, array in zip(inputs, noise, strict=True)}
        return Samples(inputs=inputs, arrays=arrays, examples=examples, places=range(_DRAWN), seed=seed)
    samples = _read(workload, inputs, examples, seed)
    return replace(samples, places=_spread(range(0, len(samples), 1 if workload.evaluation else 2)))


def select_judging(
    workload: Workload, inputs: Sequence[TensorSpec], examples: Mapping[str, np.ndarray], seed: int
) -> Samples | None:
    """Select the samples that judge a built network; None if they are drawn.

    Those with labels, if there are any, or every second one of those that calibrate. None of these calibrates: ranges
    that were fitted to a sample suit it too well.
    """
    if workload.evaluation:
        return _read(workload, inputs, examples, seed, is_labelled=True)
    if workload.calibration == RANDOM:
        return None
    samples = _read(workload, inputs, examples, seed)
    return replace(samples, places=_spread(range(1, len(samples), 2)))


def _read(
    workload: Workload,
    inputs: Sequence[TensorSpec],
    examples: Mapping[str, np.ndarray],
    seed: int,
    *,
    is_labelled: bool = False,
) -> Samples:
    artifact = workload.evaluation if is_labelled else workload.calibration
    arrays, labelled = _read_arrays(workload.artifacts[artifact]), None
    if is_labelled:
        arrays, labelled = targets.split(arrays, [spec.name for spec in inputs], workload.name)
    subject = _Subject(network=workload.name, targets=labelled)
    arrays = _check(inputs, arrays, subject)
    places = range(_count(inputs, arrays, subject))
    return Samples(inputs=inputs, arrays=arrays, examples=examples, places=places, seed=seed, targets=labelled)


def _spread(places: range) -> Sequence[int]:
    """Return at most `_MOST` of the places, at even distances."""
    return places if len(places) <= _MOST else [places[place * len(places) // _MOST] for place in range(_MOST)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """The samples of an error, with their targets if they judge by these."""

    network: str
    targets: Targets | None = None

    @property
    def noun(self) -> str:
        return "calibration data" if self.targets is None else "evaluation data"

    def refuse(self, got: str, expected: str) -> WorkloadError:
        remedy = "Give other samples, or --calibrate random." if self.targets is None else "Give other samples."
        return WorkloadError(f"invalid {self.noun} for {self.network}: got {got}; expected {expected}. {remedy}")


def _check_where_known(workload: Workload, arrays: Mapping[str, np.ndarray], subject: _Subject) -> None:
    """Check samples as far as the description of a workload has its inputs."""
    if workload.inputs and not workload.takes:
        _count(workload.inputs, _check(workload.inputs, arrays, subject), subject)
        return
    for name, array in arrays.items():
        _check_values(name, array, subject)


def _check(inputs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray], subject: _Subject) -> dict[str, np.ndarray]:
    """Return samples by input name in the dtypes of the inputs; WorkloadError if they are none of this network."""
    network = subject.network
    batched = [spec for spec in inputs if spec.batch_axis is not None]
    if not batched:
        raise subject.refuse("a file of samples", f"a network with a batch; no input of {network} has one")
    try:
        matched = values.match([spec.name for spec in batched], arrays, network)
    except NgbkitError as error:
        raise WorkloadError(f"invalid {subject.noun} for {network}: {error}") from error
    checked: dict[str, np.ndarray] = {}
    for spec in batched:
        if spec.name not in matched:
            names = ", ".join(spec.name for spec in batched)
            raise subject.refuse(f"no array for input {spec.name}", f"one for each of {names}")
        array = matched[spec.name]
        if not spec.accepts(array.shape):
            raise subject.refuse(f"shape {array.shape} for input {spec.name}", spec.format_shape())
        checked[spec.name] = values.check_value(spec, array, network)
        _check_values(spec.name, array, subject)
    return checked


def _check_values(name: str, array: np.ndarray, subject: _Subject) -> None:
    """Refuse values by which nothing can be calibrated or judged."""
    if array.dtype.kind not in "fiub" or not array.size:
        return
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        places = int(np.count_nonzero(~np.isfinite(array)))
        raise subject.refuse(f"input {name} with {places} values that are NaN or infinite", "finite numbers")
    if array.dtype.kind == "f" and array.size > 1 and float(np.ptp(array)) == 0:
        raise subject.refuse(f"input {name} that is {array.flat[0]:g} throughout", "values that differ")


def _count(inputs: Sequence[TensorSpec], arrays: Mapping[str, np.ndarray], subject: _Subject) -> int:
    """Count the samples, which every input and the targets have as many of."""
    counts = {
        spec.name: arrays[spec.name].shape[spec.batch_axis]
        for spec in inputs
        if spec.name in arrays and spec.batch_axis is not None
    }
    names = list(counts)
    if subject.targets is not None:
        counts["labels"] = len(subject.targets.values)
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise WorkloadError(f"invalid {subject.noun}: got {listed}; expected as many samples of each input.")
    count: int = min(counts.values())
    if count < 2:
        use = "half of them calibrate, and the others judge" if subject.targets is None else "they judge"
        raise WorkloadError(
            f"invalid {subject.noun}: got {'a single sample' if count else 'no sample'}; expected at least 2, and "
            f"better 200: {use}. Give more{', or --calibrate random' if subject.targets is None else ''}."
        )
    if all(_repeats_a_row(arrays[spec.name], spec.batch_axis or 0) for spec in inputs if spec.name in names):
        raise WorkloadError(
            f"invalid {subject.noun}: got the same sample {count} times; expected samples that differ. Give others"
            f"{', or --calibrate random' if subject.targets is None else ''}."
        )
    return count


def _repeats_a_row(array: np.ndarray, axis: int) -> bool:
    return bool((array == array.take([0], axis)).all())
