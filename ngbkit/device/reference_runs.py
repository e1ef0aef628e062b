"""The runs of an uncompiled network that its reference is built from: twice, in double precision, and with others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Program, Task, Tuning
from ngbkit.device import leftovers
from ngbkit.workloads import exact, export, feeds, precision
from ngbkit.workloads.base import Network, TensorSpec
from ngbkit.workloads.indices import check_indices

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")
Arrays = list[np.ndarray]

# The limit for an ONNX file; 3 to 12 s are usual, and a child has the sweep's `timeout_s`, 600 s.
_BUDGET_S = 150.0
# The spacing of numbers by precision.
_EPSILON = {"f64": 2.0**-52, "f32": 2.0**-23, "q8": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
# Added to a seed, for inputs that are others.
_OTHER_SEED = 1_000_003
#: The sets of inputs, beside the reference's own, that are fed between timed calls.
PROBES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRun:
    """The outputs of a run in double precision, what ran it, and why there are none."""

    outputs: Arrays | None = None
    name: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The outputs of an uncompiled network in several runs; each is None if that run failed or was not made."""

    # In the network's own precision, and again, in the same process with the same inputs after others.
    single: Arrays | None = None
    again: Arrays | None = None
    # In double precision.
    precise: ReferenceRun = field(default_factory=ReferenceRun)
    # Of the first sample by itself.
    alone: Arrays | None = None
    # With the last digit of the inputs changed.
    nudged: Arrays | None = None
    # With the inputs of another seed.
    others: Arrays | None = None
    # With each further set of inputs (`feeds.draw_other`), and with their last digit changed.
    probes: tuple[tuple[Arrays, Arrays], ...] = ()
    # With the last sample of each of these sets and the first of the next.
    crossed: tuple[Arrays | None, ...] = ()
    # The input that a call changes, or ``""``.
    changed: str = ""
    # Whether a call goes on when it has returned.
    is_late: bool = False
    # What ran in the network's own precision, and why it could not.
    name: str = ""
    refusal: str = ""
    precision: str = "f32"


def run_module(
    network: Network, seed: int, rows: int, rebuild: Callable[[], Network] | None, *, alone: bool = False
) -> Runs:
    """Run copies of a module, each in the state in which it was built; with the first sample `alone`, too."""
    import torch

    arrays, failure = _attempt(lambda: feeds.draw(network.inputs, network.examples, rows, seed))
    if arrays is None:
        return Runs(refusal=failure)
    with torch.inference_mode(False), torch.no_grad():
        make = _choose_maker(network, arrays, rebuild)
        body, _ = _attempt(
            lambda: precision.find_module_precision(make(), [export.to_tensor(array) for array in arrays])
        )
        body = body or "f32"
        module = make()
        result, refusal = _attempt(lambda: _call(module, arrays, waits=True))
        if result is None:
            check_indices(network.inputs, module, list(map(export.to_tensor, arrays)))
            return Runs(refusal=refusal, precise=ReferenceRun(problem="not run"), precision=body, name="torch eager")
        single, changed, is_late = result
        _attempt(lambda: _call(module, _disturb(arrays)))  # a state then differs from what the same inputs leave
        again, _ = _attempt(lambda: _call(module, arrays, waits=True))
        draw, nudge = partial(_run_drawn, network, make), _choose_nudge(network, arrays, body, seed)
        sets = _draw_probes(network, seed, rows)

        def call(arrays: Arrays) -> Arrays | None:
            return _attempt(lambda: _call(make(), arrays)[0])[0]

        wide = [array.astype(np.float64) if feeds.is_floating(array.dtype) else array for array in arrays]
        precise, problem = _attempt(lambda: _call(make().double(), wide)[0])
        return Runs(
            single=single,
            again=again[0] if again else None,
            precise=ReferenceRun(outputs=precise, name="torch eager, float64", problem=problem),
            alone=draw(1, seed) if alone else None,
            nudged=_attempt(lambda: _call(make(), nudge(arrays))[0])[0] if nudge is not None else None,
            others=draw(rows, seed + _OTHER_SEED) if _are_drawn(network) else None,
            probes=_pair_probes(call, nudge, sets),
            crossed=tuple(map(call, _cross(network, sets))) if alone else (),
            changed=next((network.inputs[index].name for index in changed), ""),
            is_late=(is_late or (again is not None and again[2])) and _is_late_again(make, arrays),
            name="torch eager, float32" if body == "f32" else f"torch eager, {body}",
            precision=body,
        )


def run_file(
    network: Network, seed: int, rows: int, onnx: Callable[[int], Path], threads: int, *, alone: bool = False
) -> Runs:
    """Run an ONNX file in ONNX Runtime without graph optimisations, and in float64 by onnx."""
    name = "onnxruntime, graph optimisations off"

    def run(
        batch_size: int, seed: int, change: Callable[[Arrays], Arrays] = lambda arrays: arrays, *, calls: int = 1
    ) -> list[Arrays]:
        arrays = feeds.draw(network.inputs, network.examples, batch_size, seed)
        return _run_baseline(network, change(arrays), onnx(batch_size), batch_size, threads, calls)

    try:
        file = onnx(rows)
        arrays = feeds.draw(network.inputs, network.examples, rows, seed)
    except Exception as error:  # noqa: BLE001  as in `_attempt`
        return Runs(refusal=" ".join(str(error).split())[:200], precise=ReferenceRun(problem="not run"), name=name)
    body = _read_precision(file)
    calls, refusal = _attempt(partial(run, rows, seed, calls=2))
    inputs = {spec.name: array for spec, array in zip(network.inputs, arrays, strict=True)}
    precise, problem = _attempt(partial(exact.run, file, inputs, budget_s=_BUDGET_S))
    attempt = ReferenceRun(outputs=precise, name="onnx, float64", problem=problem)
    if calls is None:
        return Runs(refusal=refusal, precise=attempt, name=name, precision=body)
    first_of, nudge = partial(_get_first, run), _choose_nudge(network, arrays, body, seed)
    probes, crossed = _run_file_probes(network, seed, rows, onnx, threads, nudge, crosses=alone)
    return Runs(
        single=calls[0],
        again=calls[1],
        precise=attempt,
        alone=first_of(1, seed) if alone else None,
        nudged=first_of(rows, seed, nudge) if nudge is not None else None,
        others=first_of(rows, seed + _OTHER_SEED) if _are_drawn(network) else None,
        probes=probes,
        crossed=crossed,
        name=name,
        precision=body,
    )


def _get_first(run: Callable[..., list[Arrays]], *arguments: object) -> Arrays | None:
    calls, _ = _attempt(lambda: run(*arguments))
    return calls[0] if calls else None


def _draw_probes(network: Network, seed: int, rows: int) -> list[Arrays]:
    """Draw the further sets of inputs; none where they would be the same."""
    is_varied = _are_drawn(network) or any(
        feeds.count_given_rows(spec, network.examples[spec.name]) > 1
        for spec in network.inputs
        if spec.name in network.examples
    )
    numbers = range(1, 1 + PROBES) if is_varied else ()
    return [feeds.draw_other(network.inputs, network.examples, rows, seed, number, rows) for number in numbers]


def _pair_probes(
    run: Callable[[Arrays], Arrays | None], nudge: Callable[[Arrays], Arrays] | None, sets: Iterable[Arrays]
) -> tuple[tuple[Arrays, Arrays], ...]:
    """Run sets of inputs, and again with their last digit changed, up to the first that fails."""
    pairs = []
    for arrays in sets:
        outputs = run(arrays)
        nudged = outputs if nudge is None or outputs is None else run(nudge(arrays))
        if outputs is None or nudged is None:
            break
        pairs.append((outputs, nudged))
    return tuple(pairs)


def _run_file_probes(
    network: Network,
    seed: int,
    rows: int,
    onnx: Callable[[int], Path],
    threads: int,
    nudge: Callable[[Arrays], Arrays] | None,
    *,
    crosses: bool,
) -> tuple[tuple[tuple[Arrays, Arrays], ...], tuple[Arrays | None, ...]]:
    """Run the further sets of inputs, and those that are put together of them, in one session on an ONNX file."""
    sets = _draw_probes(network, seed, rows)
    batches = [arrays for each in sets for arrays in (each, nudge(each) if nudge else each)]
    crossed = _cross(network, sets) if crosses else []
    outputs, _ = _attempt(lambda: list(run_batches(network, [*batches, *crossed], rows, onnx, threads)))
    if not outputs:
        return (), ()
    count = len(batches)
    return tuple(zip(outputs[:count:2], outputs[1:count:2], strict=True)), tuple(outputs[count:])


def _cross(network: Network, sets: Sequence[Arrays]) -> list[Arrays]:
    """Put the last sample of each set of inputs and the first of the next together."""
    axes = [spec.batch_axis for spec in network.inputs]
    if len(sets) < 2 or None in axes:
        return []
    return [
        [
            np.concatenate([last.take([-1], axis), first.take([0], axis)], axis)
            for last, first, axis in zip(before, after, axes, strict=True)
        ]
        for before, after in zip(sets, [*sets[1:], sets[0]], strict=True)
    ]


def _choose_maker(
    network: Network, arrays: Arrays, rebuild: Callable[[], Network] | None
) -> Callable[[], torch.nn.Module]:
    """Choose how to get modules in the state in which the network was built: by copies, or by building it once more.

    A copy of a module is another network where a hook writes to the original, or a tensor is no parameter of it.
    """
    module = network.module
    assert module is not None
    pristine, _ = _attempt(lambda: copy.deepcopy(module))  # calls may change the state of the original
    copied, _ = _attempt(lambda: _call(copy.deepcopy(pristine), arrays)[0]) if pristine is not None else (None, "")
    original, _ = _attempt(lambda: _call(module, arrays)[0])
    if pristine is not None and copied is not None and original is not None and _are_same(copied, original):
        return lambda: copy.deepcopy(pristine)
    return (lambda: module) if rebuild is None else (lambda: _get_module(rebuild))


def _get_module(rebuild: Callable[[], Network] | None) -> torch.nn.Module:
    assert rebuild is not None
    module = rebuild().module
    assert module is not None
    return module


def _are_same(first: Arrays, second: Arrays) -> bool:
    return len(first) == len(second) and all(
        left.shape == right.shape and np.array_equal(left, right, equal_nan=left.dtype.kind in "fc")
        for left, right in zip(first, second, strict=True)
    )


def _call(module: torch.nn.Module, arrays: Arrays, *, waits: bool = False) -> tuple[Arrays, list[int], bool]:
    """Call a module on copies of arrays; return its outputs, and the places of the inputs that it changed; if it
    `waits`, whether the call goes on when it has returned.
    """
    tensors = [export.to_tensor(array) for array in arrays]
    before = [tensor.clone() for tensor in tensors]
    watch = leftovers.ThreadWatch()
    results = export.flatten(module(*tensors))
    outputs = [export.to_array(result).copy() for result in results]
    is_late = waits and (watch.find_work() or not _are_same(outputs, [export.to_array(result) for result in results]))
    changed = [
        place
        for place, (tensor, original) in enumerate(zip(tensors, before, strict=True))
        if not bool(((tensor == original) | (tensor != tensor)).all())
    ]
    return outputs, changed, is_late


def _is_late_again(make: Callable[[], torch.nn.Module], arrays: Arrays) -> bool:
    """Return whether one of four further calls goes on when it has returned: at times, other threads compute too."""
    return any(_attempt(lambda: _call(make(), arrays, waits=True)[2])[0] for _ in range(4))


def _run_drawn(network: Network, make: Callable[[], torch.nn.Module], rows: int, seed: int) -> Arrays | None:
    """Run a new module on inputs of that many rows, drawn from a seed; None if it fails."""
    return _attempt(lambda: _call(make(), feeds.draw(network.inputs, network.examples, rows, seed))[0])[0]


def run_batches(
    network: Network, batches: Iterable[Arrays], batch_size: int, onnx: Callable[[int], Path], threads: int
) -> Iterator[Arrays]:
    """Run the uncompiled network in its own precision, and yield its outputs for each batch of inputs."""
    if network.module is not None:
        import torch

        with torch.inference_mode(False), torch.no_grad():
            for arrays in batches:
                try:
                    outputs = _call(network.module, arrays)[0]
                except Exception:
                    check_indices(network.inputs, network.module, list(map(export.to_tensor, arrays)))
                    raise
                yield outputs
        return
    program: Program | None = None
    for arrays in batches:
        if program is None or program.feed is None:
            program = _open_baseline(network, arrays, onnx(batch_size), batch_size, threads)
        else:
            program.feed(arrays)
        yield [np.array(output) for output in program.fetch(program.run())]


def _run_baseline(
    network: Network, arrays: Arrays, file: Path, batch_size: int, threads: int, calls: int
) -> list[Arrays]:
    """Run ONNX Runtime without graph optimisations, and return the outputs of each call."""
    program = _open_baseline(network, arrays, file, batch_size, threads)
    # Copied: a call may overwrite the outputs of the last one.
    return [[np.array(output) for output in program.fetch(program.run())] for _ in range(calls)]


def _open_baseline(network: Network, arrays: Arrays, file: Path, batch_size: int, threads: int) -> Program:
    """Open an ONNX file in ONNX Runtime without graph optimisations."""
    compiler: Compiler = registry.load(registry.COMPILERS, "identity")
    task = Task(
        form="onnx",
        module=None,
        onnx=file,
        inputs=tuple(network.inputs),
        arrays=tuple(arrays),
        batch_size=batch_size,
        options=compiler.settle({}),
        threads=threads,
        cache=file.parent,
        tuning=Tuning(folder=file.parent),
    )
    return compiler.compile(task)


def _read_precision(file: Path) -> str:
    import onnx

    return precision.find_graph_precision(onnx.load(file, load_external_data=False))


def _are_drawn(network: Network) -> bool:
    """Return whether another seed gives other inputs."""
    return any(spec.name not in network.examples for spec in network.inputs)


def _choose_nudge(network: Network, arrays: Arrays, body: str, seed: int) -> Callable[[Arrays], Arrays] | None:
    """Return how to change the last digit of the inputs; None if there is nothing to change."""
    pairs = zip(network.inputs, arrays, strict=True)
    can_nudge = any(_can_nudge(spec, array) and array.size for spec, array in pairs)
    return partial(_nudge, network, body=body, seed=seed) if can_nudge else None


def _can_nudge(spec: TensorSpec, array: np.ndarray) -> bool:
    """Return whether the last digit of an input may change: not of one that decides a shape or makes indices."""
    return feeds.is_floating(array.dtype) and not spec.role and spec.below is None


def _disturb(arrays: Arrays) -> Arrays:
    """Return other inputs of the same shapes: half of each floating number, and the rows in another order."""
    return [
        np.flip(array, 0).copy()
        if array.ndim and not feeds.is_floating(array.dtype)
        else (array * 0.5).astype(array.dtype)
        for array in arrays
    ]


def _nudge(network: Network, arrays: Arrays, body: str, seed: int) -> Arrays:
    """Change the last digit of floating numbers, up or down at random."""
    generator = np.random.default_rng(seed)
    epsilon = _EPSILON.get(body, _EPSILON["f32"])
    return [
        (array.astype(np.float64) * (1 + epsilon * generator.choice([-1, 1], array.shape))).astype(array.dtype)
        if _can_nudge(spec, array)
        else array
        for spec, array in zip(network.inputs, arrays, strict=True)
    ]


def _attempt(run: Callable[[], Result]) -> tuple[Result | None, str]:
    """Return the result of `run`, or None and the reason for its failure."""
    try:
        return run(), ""
    except Exception as error:  # noqa: BLE001  a runtime may raise anything about a user's own network
        return None, " ".join(str(error).split())[:200] or type(error).__name__
