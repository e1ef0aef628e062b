"""The cost of a precision in answers: outputs for a user's samples, against those of the uncompiled network.

evaluation.npz      in the folder of a preparation: the outputs of the uncompiled network in its own precision, along
                    the samples that judge; or why there are none
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.compilers.base import Program
from ngbkit.device.equivalence import EquivalenceCheck
from ngbkit.device.reference import ROWS, Reference, Verdict
from ngbkit.device.reference_runs import run_batches
from ngbkit.files import write_atomically
from ngbkit.sweep.low_precision import Bound
from ngbkit.workloads import samples
from ngbkit.workloads.base import RANDOM, Network, Workload
from ngbkit.workloads.samples import Samples

FILE = "evaluation.npz"
# Of all outputs that are kept: those of a segmentation network are large.
_MOST_BYTES = 256_000_000
# The precisions of a network that is cast.
_LOWER = ("f16", "bf16")
# An error below a rounding of float32 counts as that, or the ratio in decibels would be infinite.
_LEAST = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outputs of the uncompiled network for the samples that judge."""

    # Those of floating-point numbers, by their place among the network's, with the samples first.
    outputs: Mapping[int, np.ndarray]
    # The dimension of the samples of each.
    axes: Mapping[int, int]
    # Why there are none, or ``""``.
    problem: str = ""

    def __len__(self) -> int:
        return min((len(output) for output in self.outputs.values()), default=0)

    def write(self, path: Path) -> None:
        """Write it as an ``.npz`` file."""
        arrays: dict[str, Any] = {f"{place}_{self.axes[place]}": output for place, output in self.outputs.items()}
        with write_atomically(path) as temporary, open(temporary, "wb") as stream:
            np.savez(stream, problem=np.array(self.problem), **arrays)


def read_evaluation(path: Path) -> Evaluation:
    """Read the file of `Evaluation.write`."""
    with np.load(path, allow_pickle=False) as arrays:
        names = [name for name in arrays.files if name != "problem"]
        places = {name: tuple(map(int, name.split("_"))) for name in names}
        return Evaluation(
            outputs={places[name][0]: arrays[name] for name in names},
            axes={places[name][0]: places[name][1] for name in names},
            problem=str(arrays["problem"]),
        )


def build(
    workload: Workload, network: Network, reference: Reference, seed: int, *, onnx: Callable[[int], Path], threads: int
) -> Evaluation:
    """Run the uncompiled network on the samples that judge; WorkloadError if they are no samples of it."""
    _, judging = samples.divide(workload, network.inputs, network.examples, seed)
    size = network.batch_size or ROWS
    if workload.calibration == RANDOM or judging is None:
        return Evaluation(outputs={}, axes={}, problem="its samples are drawn, so that nothing is claimed of accuracy")
    if reference.problem or not reference.row_wise:
        reason = reference.problem or "the outputs of a sample depend on the others of its batch"
        return Evaluation(outputs={}, axes={}, problem=reason)
    axes = _find_axes(reference, size)
    if not axes:
        return Evaluation(outputs={}, axes={}, problem="it returns no floating-point numbers for each sample")
    parts: dict[int, list[np.ndarray]] = {place: [] for place in axes}
    total = 0
    for outputs in run_batches(network, judging.batches(size), size, onnx, threads):
        for place, axis in axes.items():
            parts[place].append(np.moveaxis(outputs[place], axis, 0).astype(np.float32))
            total += parts[place][-1].nbytes
        if total > _MOST_BYTES:
            break
    return Evaluation(
        outputs={place: np.concatenate(arrays)[: len(judging)] for place, arrays in parts.items()}, axes=axes
    )


def _find_axes(reference: Reference, size: int) -> dict[int, int]:
    """Find the dimension of the samples of each output of floating-point numbers."""
    axes: dict[int, int] = {}
    for place, (output, axis) in enumerate(zip(reference.outputs, reference.axes, strict=True)):
        if axis is None and output.ndim and output.shape[0] == size > 1:
            axis = 0  # of a network whose batch is fixed
        if output.dtype.kind == "f" and axis is not None:
            axes[place] = axis
    return axes


def measure(
    program: Program, evaluation: Evaluation, judging: Samples, arrays: Sequence[np.ndarray], batch_size: int
) -> dict[str, float | str]:
    """Measure the cost of a program as facts of its trial, and feed it its own inputs again.

    `agreement` is the share of samples with the same first answer, the largest of the numbers that the first output has
    for a sample. `relative_error` and `sqnr`, the signal to quantisation noise in decibels, are means over samples, of
    the worst output each, with their standard deviations.
    """
    if evaluation.problem or program.feed is None:
        reason = evaluation.problem or "its runtime takes the inputs of a program once"
        return {"cost_problem": reason}
    errors, agreements = [], []
    for rows, outputs in _run(program, judging, batch_size, len(evaluation)):
        pairs = {
            place: (np.moveaxis(outputs[place], axis, 0)[: len(rows)], evaluation.outputs[place][rows])
            for place, axis in evaluation.axes.items()
        }
        errors.append(np.max([_compute_errors(*pair) for pair in pairs.values()], axis=0))
        first, expected = next(iter(pairs.values()))
        if expected.ndim == 2 and expected.shape[1] > 1:
            agreements.append(first.argmax(1) == expected.argmax(1))
    program.feed(arrays)
    error = np.concatenate(errors)
    count = int(np.count_nonzero(~np.isfinite(error)))
    if count:
        return {"evaluated_samples": len(error), "not_finite": count}
    ratio = -20 * np.log10(np.maximum(error, _LEAST))
    agreement = {"agreement": float(np.concatenate(agreements).mean())} if agreements else {}
    return {
        "evaluated_samples": len(error),
        **agreement,
        "relative_error": float(error.mean()),
        "relative_error_sd": float(error.std(ddof=1)) if len(error) > 1 else 0.0,
        "sqnr": float(ratio.mean()),
        "sqnr_sd": float(ratio.std(ddof=1)) if len(error) > 1 else 0.0,
    }


def _run(program: Program, judging: Samples, batch_size: int, count: int) -> Iterator[tuple[range, list[np.ndarray]]]:
    """Run a program on the samples that judge, and yield the places and the outputs of each batch."""
    assert program.feed is not None
    for number, arrays in enumerate(judging.batches(batch_size)):
        rows = range(number * batch_size, min((number + 1) * batch_size, count))
        if not rows:
            return
        program.feed(arrays)
        yield rows, program.fetch(program.run())


def _compute_errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Compute the relative error of each sample: the root of its squared errors over that of its squares."""
    with np.errstate(over="ignore", invalid="ignore"):
        expected = want.reshape(len(want), -1).astype(np.float64)
        noise = np.linalg.norm(got.reshape(len(got), -1).astype(np.float64) - expected, axis=1)
        signal = np.linalg.norm(expected, axis=1)
    errors: np.ndarray = noise / np.where(signal > 0, signal, 1.0)
    return errors


def judge(
    verdict: Verdict, cost: Mapping[str, Any], precision: str, bounds: Sequence[str], *, is_quantised: bool
) -> Verdict:
    """Judge a lower precision by its cost and the bounds that the user accepts, in place of its rounding.

    A quantised network without bounds is not judged: how far int8 may differ is for the user to say.
    """
    check = verdict.check
    if not is_quantised and precision not in _LOWER:
        return verdict
    if cost.get("not_finite"):
        count = f"{cost['not_finite']} of {cost['evaluated_samples']} samples"
        return _reject(f"{precision} overflows: the outputs for {count} are not finite where the network's own are")
    if (check is not None and not np.isfinite(check.rmse)) or not (bounds or is_quantised):
        return verdict
    excess = find_excess(cost, bounds) if "relative_error" in cost else ""
    if excess:
        return _reject(excess) if check is None else Verdict(check=replace(check, problem=excess))
    unchecked = _explain_unjudged(cost, precision, bounds)
    return Verdict(check=check and replace(check, problem=""), unchecked=unchecked)


def _explain_unjudged(cost: Mapping[str, Any], precision: str, bounds: Sequence[str]) -> str:
    """Explain why a lower precision was not judged; empty if its cost is within bounds."""
    if "relative_error" not in cost:
        reason = cost.get("cost_problem", "there are no samples to judge it by: --calibrate FILE")
        return f"{precision} is not judged: {reason}"
    return "" if bounds else f"{precision} is not judged without --accept 'agreement>=0.99': {describe(cost)}"


def _reject(problem: str) -> Verdict:
    return Verdict(check=EquivalenceCheck(rmse=np.inf, max_abs_error=np.inf, problem=problem))


def find_excess(cost: Mapping[str, float | str], bounds: Sequence[str]) -> str:
    """Find what a cost exceeds; empty if all bounds admit it."""
    count = cost.get("evaluated_samples", 0)
    for bound in map(Bound.parse, bounds):
        value = cost.get(bound.cost)
        if not isinstance(value, float):
            return f"{bound.cost} is unknown, since the first output is no list of numbers; accepted: {bound}"
        if not bound.admits(value):
            return f"{bound.cost} {value:.4g} over {count} samples, against the uncompiled network; accepted: {bound}"
    return ""


def describe(cost: Mapping[str, float | str]) -> str:
    """Describe a cost in a phrase; empty without any."""
    texts = [
        f"agreement {cost['agreement']:.4g}" if "agreement" in cost else "",
        f"relative error {cost['relative_error']:.2g}" if "relative_error" in cost else "",
    ]
    return ", ".join(filter(None, texts))
