"""The cost of a precision in answers: outputs for a user's samples, against those of the uncompiled network.

Where the user gave the original of a quantised network, `reference` of a sweep, they are against those of that file.

In the folder of a preparation:

    evaluation.json             the number of samples that judge, the places of their values; or why there are none
    evaluation-input-0.npy      their values for an input, a row each
    evaluation-output-0.npy     the outputs of the uncompiled network in its own precision, or those of its original
    evaluation-target-0.npy     the targets, a row each, if the user labelled the samples
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.compilers.base import Program, Task
from ngbkit.device.equivalence import TOLERANCES, EquivalenceCheck
from ngbkit.device.reference import ROWS, Reference, Verdict
from ngbkit.device.reference_runs import run_batches
from ngbkit.errors import WorkloadError
from ngbkit.files import write_atomically
from ngbkit.sweep.low_precision import UNJUDGED, Bound
from ngbkit.workloads import feeds, samples
from ngbkit.workloads.base import Network, Workload
from ngbkit.workloads.samples import Samples
from ngbkit.workloads.targets import Targets

_DESCRIPTION = "evaluation.json"
# Of all outputs that are kept: those of a segmentation network are large.
_MOST_BYTES = 256_000_000
# The precisions of a network that is cast.
LOWER = ("f16", "bf16")
# A relative error beyond this is no cost of a precision but another answer, such as zeros.
_WRONG = 0.5
# An error below a rounding of float32 counts as that, or the ratio in decibels would be infinite.
_LEAST = 2.0**-24


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The samples that judge, and the original network's outputs for them; rows are read as they are needed."""

    folder: Path
    count: int = 0
    # The dimension of the samples, by the place of an input; and of an output of floating-point numbers.
    inputs: Mapping[int, int] = field(default_factory=dict)
    outputs: Mapping[int, int] = field(default_factory=dict)
    # Whether the samples have targets, and the source of the function that compares outputs with them.
    is_labelled: bool = False
    function: str = ""
    # The facts of every trial that is compared with an original of the network: its file, and its answers.
    facts: Mapping[str, Any] = field(default_factory=dict)
    # Why there are none, or ``""``.
    problem: str = ""

    def write(self) -> None:
        """Write the description, after all rows."""
        data = asdict(self)
        del data["folder"]
        with write_atomically(self.folder / _DESCRIPTION) as temporary:
            temporary.write_text(json.dumps(data))

    def write_rows(self, kind: str, place: int, rows: np.ndarray) -> None:
        """Write the rows of an input or output."""
        np.save(self._locate(kind, place), rows, allow_pickle=False)

    def read_rows(self, kind: str, place: int, rows: range) -> np.ndarray:
        """Read some rows of an input or output; a mapped file would count as memory of the process."""
        path = self._locate(kind, place)
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        shape = (len(rows), *mapped.shape[1:])
        size = int(np.prod(mapped.shape[1:], dtype=np.int64))
        offset = mapped.offset + rows.start * size * mapped.dtype.itemsize
        values: np.ndarray = np.fromfile(path, mapped.dtype, len(rows) * size, offset=offset)
        return values.reshape(shape)

    def read_targets(self) -> Targets:
        """Read the targets of all samples."""
        values = np.load(self._locate("target", 0), allow_pickle=False)
        return Targets(values=values, function=self.function)

    def iterate_batches(self, task: Task, seed: int, examples: Mapping[str, np.ndarray]) -> Iterator[tuple[range, Any]]:
        """Yield the rows of each batch of a trial and an array per input; the last is filled up with the first rows."""
        size = task.batch_size
        for start in range(0, self.count, size):
            rows = range(start, min(start + size, self.count))
            chosen = {
                task.inputs[place].name: np.moveaxis(self.read_rows("input", place, rows), 0, axis)
                for place, axis in self.inputs.items()
            }
            yield rows, feeds.draw(task.inputs, {**examples, **chosen}, size, seed)

    def _locate(self, kind: str, place: int) -> Path:
        return self.folder / f"evaluation-{kind}-{place}.npy"


def exists(folder: Path) -> bool:
    """Return whether the folder of a preparation has an evaluation."""
    return (folder / _DESCRIPTION).exists()


def read(folder: Path) -> Evaluation:
    """Read the evaluation of a preparation."""
    data = json.loads((folder / _DESCRIPTION).read_text())
    inputs, outputs = ({int(place): axis for place, axis in data.pop(kind).items()} for kind in ("inputs", "outputs"))
    return Evaluation(folder=folder, inputs=inputs, outputs=outputs, **data)


def build(
    workload: Workload,
    network: Network,
    folder: Path,
    reference: Reference,
    seed: int,
    *,
    original: Network,
    onnx: Callable[[int], Path],
    threads: int,
) -> Evaluation:
    """Run the original on the samples that judge, and write their rows; WorkloadError if they are none.

    `original` is the uncompiled network itself, or the one of `reference_file`; `onnx` binds its file to a batch.
    """
    judging = samples.select_judging(workload, network.inputs, network.examples, seed)
    size = network.batch_size or ROWS
    axes = _find_axes(reference, size)
    problem = _find_problem(reference, axes)
    facts: dict[str, Any] = {"reference": workload.reference["graph"]} if workload.reference else {}
    if problem or judging is None:
        return Evaluation(folder=folder, facts=facts, problem=problem or "its samples are drawn")
    parts: dict[int, list[np.ndarray]] = {place: [] for place in axes}
    for outputs in run_batches(original, judging.batches(size), size, onnx, threads):
        _check_shapes(workload, outputs, reference, axes)
        for place, axis in axes.items():
            parts[place].append(np.moveaxis(outputs[place], axis, 0).astype(np.float32))
        if sum(sum(array.nbytes for array in arrays) for arrays in parts.values()) > _MOST_BYTES:
            break
    count = min(len(judging), len(next(iter(parts.values()))) * size)
    inputs = {
        place: spec.batch_axis
        for place, spec in enumerate(network.inputs)
        if spec.name in judging.arrays and spec.batch_axis is not None
    }
    labelled = judging.targets
    rows = {place: np.concatenate(arrays)[:count] for place, arrays in parts.items()}
    if labelled is not None:
        labelled = labelled.take(judging.places[:count])
        # Raises an error before anything is measured.
        correct = labelled.compile()(list(rows.values()), labelled.values)
        answers = _describe_correct(correct) if workload.reference else {}
        facts |= {f"reference_{name}": value for name, value in answers.items()}
    evaluation = Evaluation(
        folder=folder,
        count=count,
        inputs=inputs,
        outputs=axes,
        is_labelled=labelled is not None,
        function=labelled.function if labelled else "",
        facts=facts,
    )
    if labelled is not None:
        evaluation.write_rows("target", 0, labelled.values)
    for place, array in rows.items():
        evaluation.write_rows("output", place, array)
    for place in inputs:
        evaluation.write_rows("input", place, _take_rows(judging, place, count))
    return evaluation


def _take_rows(judging: Samples, place: int, count: int) -> np.ndarray:
    spec = judging.inputs[place]
    rows = np.moveaxis(judging.arrays[spec.name], spec.batch_axis or 0, 0)
    return np.ascontiguousarray(rows[list(judging.places[:count])])


def _check_shapes(
    workload: Workload, outputs: Sequence[np.ndarray], reference: Reference, axes: Mapping[int, int]
) -> None:
    """Check that an original returns outputs of the shapes that the network returns; WorkloadError if not."""
    for place in axes:
        got, expected = outputs[place].shape, reference.outputs[place].shape
        if workload.reference and got != expected:
            raise WorkloadError(
                f"invalid reference: got output {place} of shape {got} from {workload.reference['graph']}; expected "
                f"{expected}, as {workload.name} returns. Give the file that it was quantised from."
            )


def _find_problem(reference: Reference, axes: Mapping[int, int]) -> str:
    """Find why the uncompiled network has no outputs that judge; empty if it has some."""
    if reference.problem or not reference.row_wise:
        return reference.problem or "the outputs of a sample depend on the others of its batch"
    return "" if axes else "it returns no floating-point numbers for each sample"


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
    program: Program, evaluation: Evaluation, task: Task, seed: int, examples: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """Measure the cost of a program as facts of its trial, and feed it its own inputs again.

    `agreement` is the share of samples with the same first answer, the largest of the numbers that the first output has
    for a sample. `relative_error` and `sqnr`, the signal to quantisation noise in decibels, are means over samples, of
    the worst output each, with their standard deviations. With labels, `accuracy` is the share of samples that are
    answered right, and `correct` has a bit for each of them, as base64, by which two trials are compared in pairs.
    """
    if evaluation.problem or program.feed is None:
        problem = evaluation.problem or "its runtime takes the inputs of a program once"
        return {**evaluation.facts, "cost_problem": problem}
    timed = [array.copy() for array in task.arrays]
    errors, agreements, corrects = [], [], []
    targets = evaluation.read_targets() if evaluation.is_labelled else None
    judge_targets = targets.compile() if targets else None
    for rows, arrays in evaluation.iterate_batches(task, seed, examples):
        program.feed(arrays)
        outputs = program.fetch(program.run())
        pairs = {
            place: (np.moveaxis(outputs[place], axis, 0)[: len(rows)], evaluation.read_rows("output", place, rows))
            for place, axis in evaluation.outputs.items()
        }
        errors.append(np.max([_compute_errors(*pair) for pair in pairs.values()], axis=0))
        first, expected = next(iter(pairs.values()))
        if expected.ndim == 2 and expected.shape[1] > 1:
            agreements.append(first.argmax(1) == expected.argmax(1))
        if targets and judge_targets:
            corrects.append(judge_targets([got for got, _ in pairs.values()], targets.values[rows.start : rows.stop]))
    program.feed(timed)
    summary = _summarize(np.concatenate(errors), np.concatenate(agreements) if agreements else None)
    return {**evaluation.facts, **summary, **(_describe_correct(np.concatenate(corrects)) if corrects else {})}


def _describe_correct(correct: np.ndarray) -> dict[str, Any]:
    """Describe which samples are answered right."""
    bits = base64.b64encode(np.packbits(correct).tobytes()).decode()
    return {"accuracy": float(correct.mean()), "correct": bits}


def _summarize(error: np.ndarray, agreement: np.ndarray | None) -> dict[str, Any]:
    """Summarize the errors of samples, and the agreement of their answers if they have some."""
    count = {"evaluated_samples": len(error)}
    if not np.isfinite(error).all():
        return {**count, "not_finite": int(np.count_nonzero(~np.isfinite(error)))}
    decibels = -20 * np.log10(np.maximum(error, _LEAST))
    return {
        **count,
        **({} if agreement is None else {"agreement": float(agreement.mean())}),
        **{"relative_error": float(error.mean()), "relative_error_sd": _compute_deviation(error)},
        **{"sqnr": float(decibels.mean()), "sqnr_sd": _compute_deviation(decibels)},
    }


def _compute_deviation(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def _compute_errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Compute the relative error of each sample: the root of its squared errors over that of its squares."""
    expected = want.reshape(len(want), -1).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        noise = np.linalg.norm(got.reshape(len(got), -1).astype(np.float64) - expected, axis=1)
    signal = np.linalg.norm(expected, axis=1)
    errors: np.ndarray = noise / np.where(signal > 0, signal, 1.0)
    return errors


def judge(verdict: Verdict, cost: Mapping[str, Any], precision: str, bounds: Sequence[str]) -> Verdict:
    """Judge a lower precision by its cost and by bounds, since the user alone can say how far int8 may differ."""
    check = verdict.check
    has_tolerance = precision in TOLERANCES
    if has_tolerance and precision not in LOWER:
        return _judge_quantised(verdict, cost, bounds) if bounds and "reference" in cost else verdict
    if cost.get("not_finite"):
        return _reject(f"{precision} overflows: {_describe_infinite(cost)}")
    if (check is not None and not np.isfinite(check.rmse)) or (has_tolerance and not bounds):
        return verdict
    excess = find_excess(cost, bounds) if "relative_error" in cost else ""
    if excess:
        return _reject(excess) if check is None else Verdict(check=replace(check, problem=excess))
    # Ranges that were fitted to samples do not suit the noise of the check.
    error = cost.get("relative_error", np.inf if check is None else check.rmse)
    if not bounds and check is not None and error > _WRONG:
        problem = f"relative error {error:.2g} for the samples" if "relative_error" in cost else check.problem
        return Verdict(check=replace(check, problem=f"{problem}; no rounding to {precision} explains that"))
    unchecked = _explain_unjudged(cost, precision, bounds)
    return Verdict(check=check and replace(check, problem=""), unchecked=unchecked)


def _judge_quantised(verdict: Verdict, cost: Mapping[str, Any], bounds: Sequence[str]) -> Verdict:
    """Judge a column in a quantised network's own precision by its cost against the original, too."""
    check = verdict.check
    if check is not None and check.problem:
        return verdict
    if "cost_problem" in cost:
        reason = f"it is not compared with {cost['reference']}: {cost['cost_problem']}"
        return replace(verdict, unchecked=verdict.unchecked or reason)
    problem = _describe_infinite(cost) if cost.get("not_finite") else find_excess(cost, bounds)
    if not problem:
        return verdict
    return _reject(problem) if check is None else Verdict(check=replace(check, problem=problem))


def _describe_infinite(cost: Mapping[str, Any]) -> str:
    owner = cost.get("reference", "the network")
    count = f"{cost['not_finite']} of {cost['evaluated_samples']} samples"
    return f"the outputs for {count} are not finite where {owner}'s own are"


def _explain_unjudged(cost: Mapping[str, Any], precision: str, bounds: Sequence[str]) -> str:
    """Explain why a lower precision was not judged; empty if its cost is within bounds."""
    if "relative_error" not in cost:
        reason = cost.get("cost_problem", "there are no samples to judge it by: --calibrate FILE")
        return f"{precision} is not judged: {reason}"
    return "" if bounds else f"{precision} {UNJUDGED} 'agreement>=0.99': {describe(cost)}"


def _reject(problem: str) -> Verdict:
    return Verdict(check=EquivalenceCheck(rmse=np.inf, max_abs_error=np.inf, problem=problem))


def find_excess(cost: Mapping[str, float | str], bounds: Sequence[str]) -> str:
    """Find what a cost exceeds; empty if all bounds admit it."""
    count = cost.get("evaluated_samples", 0)
    for bound in map(Bound.parse, bounds):
        value = cost.get(bound.cost)
        if not isinstance(value, float):
            reason = "samples have no labels" if bound.cost == "accuracy" else "the first output is no list of numbers"
            return f"{bound.cost} is unknown, since {reason}; accepted: {bound}"
        if not bound.admits(value):
            against = "labels" if bound.cost == "accuracy" else cost.get("reference", "the uncompiled network")
            return f"{bound.cost} {value:.4g} over {count} samples, against {against}; accepted: {bound}"
    return ""


def describe(cost: Mapping[str, float | str]) -> str:
    """Describe a cost in a phrase; empty without any."""
    texts = [
        f"accuracy {cost['accuracy']:.4g}" if "accuracy" in cost else "",
        f"agreement {cost['agreement']:.4g}" if "agreement" in cost else "",
        f"relative error {cost['relative_error']:.2g}" if "relative_error" in cost else "",
    ]
    return ", ".join(filter(None, texts))
