"""Checks of timed calls: before one that is chosen at random, a call with known outputs is made, and judged.

At the beginning of a turn the inputs become samples of the reference, put together anew, before the calls that settle.
A few elements of them change from call to call (`FreshInputs`), and before the call that is checked they are restored:
the program cannot tell it from the timed ones. It is not timed, since its inputs return, and a network that remembers
them must not gain by that. What it returns is compared once the turn is over.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ngbkit.compilers.base import Program, Task
from ngbkit.device import equivalence, evaluation
from ngbkit.device.reference import Reference, Verdict, judge, read_reference
from ngbkit.device.timing.fresh_inputs import FreshInputs
from ngbkit.device.timing.sampling import sample
from ngbkit.hardware import resources
from ngbkit.hardware.accelerators.events import Method
from ngbkit.workloads import dimensions, feeds, values
from ngbkit.workloads.base import BATCH, TensorSpec

Arrays = list[np.ndarray]
UNJUDGED = Verdict()

# The first turns, in each of which a call is checked, and the calls among which one is checked later.
_FIRST, _SHARE = 5, 10
# The samples of a call that are compared, and their bytes if they are large.
_MOST_SAMPLES, _MOST_BYTES = 16, 32_000_000
# A call with wholly new inputs may take longer than one with a few new elements by this factor and time, since more of
# them is cold; in at least as many turns.
_FACTOR, _SLACK_S, _FEWEST_TURNS = 3.0, 5e-4, 3
# The least speed of a copy of outputs, from a GPU too.
_COPIED_BYTES_S = 5e8
# The batches of which a program's own outputs are kept, and the precision that allows as much as one step of rounding.
_OWN, _OWN_PRECISION = 3, "q8"
# The calls in which the shapes of outputs are watched.
_REHEARSALS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCall:
    """Inputs of a call, and its outputs as far as they are known: of all samples, or of the first ones."""

    arrays: Arrays
    expected: Arrays
    # The samples that are compared; None for those that both have.
    samples: Sequence[int] | None = None


@dataclass(slots=True, kw_only=True)
class TimedChecks:
    """The inputs of all calls of a program, and the checks of some of its timed ones."""

    program: Program
    fresh: FreshInputs
    reference: Reference
    precision: str
    probes: Iterator[KnownCall]
    # All that `probes` are made of.
    storage: Sequence[np.ndarray] = ()
    timed: int = 0
    checked: int = 0
    # What the kernel did to the process in the timed calls of the last turn: new inputs, which are fed before, have
    # pages of their own.
    events: dict[str, int] = field(default_factory=dict)
    # Seconds of the first call with wholly new inputs of each turn, over those of the others.
    _excess: list[tuple[float, float]] = field(default_factory=list)
    # Seconds in which the outputs of a checked call were read, without those of a copy.
    _fetched: list[float] = field(default_factory=list)
    _random: random.Random = field(default_factory=random.SystemRandom)
    _probe: KnownCall | None = None
    _place: int = -1
    _number: int = 0
    _turns: int = 0
    _first_call_s: float | None = None
    _outputs: Arrays = field(default_factory=list)
    # Returns whether the call that was checked before timing is still right.
    confirm: Callable[[], bool] = lambda: False
    _doubt: str = ""

    def _feed(self) -> None:
        """Feed wholly new inputs with known outputs."""
        self._probe = next(self.probes, None)
        if self._probe is not None:
            self.fresh.feed(self._probe.arrays)

    def time_turn(self, run: Callable[[], Any], method: Method, message: Mapping[str, Any]) -> list[float]:
        """Time the calls of a message; at the beginning of a turn, half of the calls that settle get new inputs."""
        settle, block, begins = message["settle"], message["block"], message["begins"]
        if begins:
            sample(run, 0, settle=settle // 2, vary=self.fresh.vary)
            settle -= settle // 2
            self._feed()
            if settle:
                self.fresh.vary()  # or the call that is checked might see the inputs of this one
                start = time.perf_counter()
                run()
                self._first_call_s = time.perf_counter() - start
                settle -= 1
        sample(run, 0, settle=settle, vary=self.fresh.vary)
        is_checked = self._choose_call(message["samples"] * block if begins else 0)
        by_host = method.measure is None
        before = resources.read_process_events()
        durations = sample(
            run,
            message["samples"],
            block=block,
            measure=method.measure,
            prepare=method.prepare,
            vary=self._vary if by_host else self.fresh.vary,
            inspect=self._keep,
        )
        self.events = {name: count - before[name] for name, count in resources.read_process_events().items()}
        if is_checked and not by_host:  # events return no outputs
            self.check_untimed()
        return durations

    def _choose_call(self, calls: int) -> bool:
        """Choose which of the next timed calls is checked; return whether any is."""
        self._turns += bool(calls)
        is_checked = self._turns <= _FIRST or self._random.random() < calls / _SHARE
        is_checked &= self._probe is not None and calls > 0
        self._place = self._random.randrange(calls) if is_checked else -1
        self._number = self.timed + self._place + 1
        return is_checked

    def _vary(self) -> bool:
        """Change the inputs before a call; return whether it is the one that is checked."""
        self._place -= 1
        if self._place == -1:
            self.fresh.restore()
            return True
        self.fresh.vary()
        return False

    def _keep(self, outputs: Any) -> None:
        """Keep a copy of the outputs of the call that is checked."""
        start = time.perf_counter()
        fetched = self.program.fetch(outputs)
        fetch_s = time.perf_counter() - start
        self._outputs = [np.array(output) for output in fetched]
        self._fetched.append(fetch_s - sum(output.nbytes for output in self._outputs) / _COPIED_BYTES_S)

    def conclude(self, durations: Sequence[float], block: int) -> str:
        """Judge the call that was checked among these timed ones; return why it is wrong, or an empty text."""
        self.timed += len(durations) * block
        if self._first_call_s is not None and durations:
            self._excess.append((self._first_call_s, median(durations) * 1e-9))
            self._first_call_s = None
        outputs, self._outputs = self._outputs, []
        if not outputs or self._probe is None:
            return ""
        self.checked += 1
        problem = self._compare(outputs, self._probe)
        if not problem or self._doubt:
            return ""
        if self._probe.samples is not None and self.confirm():
            self._doubt = (
                f"for samples that were put together anew its outputs differ ({problem}): they depend on each other, "
                "or it answers otherwise while it is timed"
            )
            return ""
        return f"{f'at timed call {self._number}' if durations else 'the call after the last round'}: {problem}"

    def check_untimed(self) -> None:
        """Make one more call, and keep its outputs to be compared."""
        if self._probe is not None:
            self.fresh.restore()
            self._keep(self.program.run())

    @property
    def held_bytes(self) -> int:
        """The memory of inputs and outputs that checks keep, which are no part of the program's."""
        expected = [] if self._probe is None else self._probe.expected
        return sum(array.nbytes for array in (*expected, *self.storage))

    def find_doubt(self) -> str:
        """Find what the timed calls left out although their outputs are right: it is done at other times."""
        if self._doubt or len(self._excess) < _FEWEST_TURNS:
            return self._doubt
        call_s = median(rest for _, rest in self._excess)
        # A lower quartile, since other work slows some of them.
        ratio = _find_quartile([first / rest for first, rest in self._excess])
        if ratio >= _FACTOR and _find_quartile([first - rest for first, rest in self._excess]) >= _SLACK_S:
            return (
                f"a call with wholly new inputs takes {ratio:.2g} times as long as the timed ones, in which a few "
                "elements of each sample are new: the network answers from memory. Time it without its cache"
            )
        read_s = _find_quartile(self._fetched) if self._fetched else 0.0
        if read_s >= max(_SLACK_S, call_s / 2):
            return (
                f"reading its outputs takes {1e3 * read_s:.2g} ms after calls of {1e3 * call_s:.2g} ms: they are "
                "computed when they are read. Return tensors that are computed in the call"
            )
        return ""

    def _compare(self, outputs: Arrays, probe: KnownCall) -> str:
        axes = self.reference.axes
        if probe.samples is not None:
            size = self.fresh.batch_size
            outputs = [_take(output, probe.samples, axis, size) for output, axis in zip(outputs, axes, strict=False)]
        return equivalence.compare(
            outputs,
            probe.expected,
            baseline_rmse=self.reference.probe_errors,
            precision=self.precision,
            axes=axes,
            scales=self.reference.scales,
        ).problem


def build(
    program: Program, task: Task, message: Mapping[str, Any], requested: str = "f32", verdict: Verdict = UNJUDGED
) -> TimedChecks:
    """Build the checks of a trial; one whose outputs could not be compared before has fresh inputs all the same.

    A precision that is judged by its cost, or by nobody, is compared with its own outputs before timing.
    """
    by_cost = requested not in equivalence.TOLERANCES or (requested in evaluation.LOWER and bool(message["accept"]))
    path, examples = message["reference"], values.read(Path(message["examples"])) if message["examples"] else {}
    checks = TimedChecks(
        program=program,
        fresh=FreshInputs(program, task.inputs, examples, task.arrays, task.batch_size),
        reference=Reference(),
        precision=requested,
        probes=iter(()),
    )
    reference = read_reference(path) if path and (by_cost or not verdict.unchecked) else checks.reference
    if not checks.fresh.is_fed or not reference.probes or _has_unsteady_shapes(program, checks.fresh, reference):
        checks.fresh.stay()
    elif reference.probe_errors and not reference.problem:
        tolerated = equivalence.choose_tolerance(requested)
        checks.reference, checks.precision = reference, equivalence.choose_precision(reference.precision, tolerated)
        checks.probes = _yield_probes(task, examples, message["seed"], checks)
    checks.confirm = partial(_confirm, checks, task, reference, requested)
    if by_cost:
        compare_with_itself(checks)
    return checks


def _confirm(checks: TimedChecks, task: Task, reference: Reference, requested: str) -> bool:
    """Return whether the inputs of the check before timing still have its outputs, in two calls."""
    arrays = checks.fresh.arrays
    checks.fresh.feed(task.arrays)
    tolerated = equivalence.choose_tolerance(requested)
    verdicts = [
        judge(reference, checks.program.fetch(checks.program.run()), task.batch_size, tolerated) for _ in range(2)
    ]
    checks.fresh.feed(arrays)
    return all(verdict.check is not None and not verdict.check.problem for verdict in verdicts)


def _has_unsteady_shapes(program: Program, fresh: FreshInputs, reference: Reference) -> bool:
    """Return whether the shapes of outputs depend on values, for which a runtime may have bound too little memory.

    Those of numbers, one row a sample, do not.
    """
    if all(output.dtype.kind == "f" for output in reference.outputs) and _has_a_row_each(reference):
        return False
    shapes = set()
    for _ in range(_REHEARSALS):
        fresh.vary()
        try:
            shapes.add(str([output.shape for output in program.fetch(program.run())]))
        except Exception:  # noqa: BLE001  a runtime may raise anything
            return True
    return len(shapes) > 1


def _has_a_row_each(reference: Reference) -> bool:
    pairs = zip(reference.outputs, reference.axes, strict=True)
    return all(axis is None or output.shape[axis] == reference.rows for output, axis in pairs)


def compare_with_itself(checks: TimedChecks) -> None:
    """Let later calls be compared with the program's own outputs now, for a precision whose cost is judged elsewhere.

    How far int8 may be from the network is for the user to say; but calls that are timed must answer as it did before.
    """
    probes = []
    for probe in itertools.islice(checks.probes, _OWN):
        checks.fresh.feed(probe.arrays)
        checks._keep(checks.program.run())
        probes.append(KnownCall(arrays=[array.copy() for array in probe.arrays], expected=checks._outputs))
        checks._outputs = []
    count = len(probes[0].expected) if probes else 0
    checks.reference = Reference(axes=(None,) * count, probe_errors=(0.0,) * count, scales=(0.0,) * count)
    checks.precision, checks.probes = _OWN_PRECISION, itertools.cycle(probes)
    checks.storage = [array for probe in probes for array in (*probe.arrays, *probe.expected)]


def _find_quartile(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 4]


def _take(output: np.ndarray, samples: Sequence[int], axis: int | None, batch_size: int) -> np.ndarray:
    """Take samples of an output, each of which may have several rows."""
    assert axis is not None
    if output.ndim <= axis or output.shape[axis] % batch_size:
        return output
    rows = output.shape[axis] // batch_size
    return output.take([sample * rows + row for sample in samples for row in range(rows)], axis)


def _yield_probes(
    task: Task, examples: Mapping[str, np.ndarray], seed: int, checks: TimedChecks
) -> Iterator[KnownCall]:
    """Yield inputs with known outputs, without an end: samples of the reference in any order, or its sets."""
    reference = checks.reference
    numbers = range(1, 1 + len(reference.probes)) if reference.probes else range(1)
    answers = reference.probes or (reference.outputs,)
    mixes = _are_separable(task.inputs, reference)
    rows = reference.rows if mixes else task.batch_size
    if not mixes and reference.row_wise and rows != reference.rows:
        return
    sets = [feeds.draw_other(task.inputs, examples, rows, seed, number, reference.rows) for number in numbers]
    if not mixes:
        checks.storage = [array for arrays in sets for array in arrays]
        for arrays, answer in itertools.cycle(list(zip(sets, answers, strict=True))):
            yield KnownCall(arrays=arrays, expected=list(answer))
    axes, output_axes = [spec.batch_axis for spec in task.inputs], reference.axes
    pools = [np.concatenate(parts, axis) for parts, axis in zip(zip(*sets, strict=True), axes, strict=True)]
    outputs = [np.concatenate(parts, axis) for parts, axis in zip(zip(*answers, strict=True), output_axes, strict=True)]
    chooser, total, size = random.SystemRandom(), len(sets) * rows, task.batch_size
    sets.clear()
    # Of all batches: memory that comes and goes would be taken from the program's, whose next call asks for more pages.
    arrays = [np.empty_like(array) for array in task.arrays]
    checks.storage = [*pools, *arrays]
    most = max(1, min(_MOST_SAMPLES, int(_MOST_BYTES / max(1, sum(array.nbytes for array in outputs) / total))))
    shift = size if size % total else 1  # each place has another sample than before
    while True:
        order = chooser.sample(range(total), total)
        for start in range(0, total * shift, shift):
            chosen = [order[(start + place) % total] for place in range(size)]
            for pool, axis, array in zip(pools, axes, arrays, strict=True):
                np.take(pool, chosen, axis, out=array, mode="clip")  # other modes fill a copy first
            samples = sorted(chooser.sample(range(size), min(most, size)))
            places = [chosen[sample] for sample in samples]
            expected = [_take(array, places, axis, total) for array, axis in zip(outputs, output_axes, strict=True)]
            yield KnownCall(arrays=arrays, expected=expected, samples=samples)


def _are_separable(inputs: Sequence[TensorSpec], reference: Reference) -> bool:
    """Return whether any samples of several sets of inputs are a batch, with a part of each output for each."""
    are_plain = all(
        [BATCH in dimensions.list_names(dimension) for dimension in spec.shape].count(True) == 1
        and spec.batch_axis is not None
        and (spec.below is None or BATCH not in dimensions.list_names(spec.below))
        for spec in inputs
    )
    return are_plain and reference.row_wise and None not in reference.axes and _has_a_row_each(reference)
