"""Outputs that are wrong on purpose: the check of a trial must reject each, or say that it cannot tell."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np

from ngbkit.device import reference
from ngbkit.device.reference import Reference
from ngbkit.testing.networks import NETWORKS, run_reference
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Network

Outputs = Sequence[np.ndarray]
# The observed outputs are for inputs of this seed.
_SEED, _OTHER_SEED = 0, 1
_SCALE = 1.05


def build_reference(build: Callable[[], Network], batch_size: int, folder: Path) -> Reference:
    """Build the reference of a module for a batch size as a trial gets it: by way of a file."""

    def refuse(rows: int) -> Path:
        raise TypeError(f"invalid network: got an ONNX file at {rows} rows; expected a module.")

    describe = partial(reference.build_reference, build(), _SEED, threads=1, onnx=refuse, rebuild=build)
    expected = describe()
    if not expected.row_wise:
        expected = describe(batch_size=batch_size)
    path = folder / "reference.npz"
    expected.write(path)
    return reference.read_reference(path)


@cache
def load_reference(name: str, batch_size: int) -> Reference:
    """Build the reference of a network of the suite, once per process."""
    with tempfile.TemporaryDirectory(prefix="ngbkit-reference-") as folder:
        return build_reference(NETWORKS[name], batch_size, Path(folder))


@cache
def run_other_inputs(name: str, batch_size: int) -> tuple[np.ndarray, ...]:
    """Run a network of the suite on the inputs of another seed."""
    network = NETWORKS[name]()
    return tuple(run_reference(network, feeds.draw(network.inputs, network.examples, batch_size, _OTHER_SEED)))


def find_accepted(
    expected: Reference, outputs: Outputs, others: Outputs, batch_size: int, precision: str = "f32"
) -> list[str]:
    """Find the alterations of right outputs that a trial of that batch size would accept without a word.

    `others` are the outputs for other inputs; `precision` is the one that the compiler's options ask for.
    """
    accepted = []
    for name, altered in _alter(outputs, others).items():
        verdict = reference.judge(expected, altered, batch_size, precision)
        if not verdict.unchecked and not (verdict.check and verdict.check.problem):
            accepted.append(name)
    return accepted


def _alter(outputs: Outputs, others: Outputs) -> Mapping[str, list[np.ndarray]]:
    """Build wrong outputs by the names of their faults, leaving out those that are the right ones."""
    altered = {
        "zeros": [np.zeros_like(output) for output in outputs],
        "outputs that are 5 % too large": [(output * _SCALE).astype(output.dtype) for output in outputs],
        "rows in another order": [np.flip(output, 0) if output.ndim else output for output in outputs],
        "outputs for other inputs": [other.astype(output.dtype) for output, other in zip(outputs, others, strict=True)],
    }
    return {
        name: arrays
        for name, arrays in altered.items()
        if not all(np.array_equal(array, output) for array, output in zip(arrays, outputs, strict=True))
    }
