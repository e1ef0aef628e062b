"""A program whose timed calls do not compute is caught, and one that computes is not."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks import build_task

from ngbkit.compilers.base import Program
from ngbkit.device.reference import Reference, add_probes, read_reference
from ngbkit.device.reference_runs import ReferenceRun, Runs
from ngbkit.device.timing import timed_checks
from ngbkit.device.timing.timed_checks import TimedChecks
from ngbkit.hardware import resources
from ngbkit.hardware.accelerators.events import Method
from ngbkit.sweep.records import Contract
from ngbkit.workloads import feeds
from ngbkit.workloads.base import BATCH, TensorSpec

WEIGHTS = np.random.default_rng(3).standard_normal((40, 6)).astype(np.float32)
SPEC = TensorSpec(name="x", shape=(BATCH, 40))
SEED, TURNS = 0, 12
TURN = {"samples": 3, "block": 2, "settle": 4, "begins": True}

Network = Callable[[np.ndarray], np.ndarray]


def compute(x: np.ndarray) -> np.ndarray:
    return x @ WEIGHTS


def compute_joined(x: np.ndarray) -> np.ndarray:
    """Compute outputs of which each depends on all samples."""
    return x @ WEIGHTS + x.mean()


def write_reference(folder: Path, network: Network, batch_size: int, *, row_wise: bool) -> Path:
    rows = 2 if row_wise else batch_size
    single = [network(feeds.draw([SPEC], {}, rows, SEED)[0])]
    sets = [feeds.draw_other([SPEC], {}, rows, SEED, number, rows) for number in (1, 2, 3)]
    pairs = tuple(([network(arrays[0])], [network(arrays[0])]) for arrays in sets)
    runs = Runs(single=single, precise=ReferenceRun(), probes=pairs)
    reference = Reference(
        outputs=tuple(single),
        axes=(0 if row_wise else None,),
        errors=(0.0,),
        first_errors=(0.0,),
        row_wise=row_wise,
        rows=rows,
    )
    path = folder / "reference.npz"
    add_probes(reference, runs).write(path)
    return path


def build_checks(
    folder: Path,
    network: Network,
    *,
    batch_size: int = 4,
    precision: str = "f32",
    honest: Network = compute,
    row_wise: bool = True,
) -> TimedChecks:
    """Build the checks of a network that should compute what the `honest` one does."""
    bound = feeds.draw([SPEC], {}, batch_size, SEED)

    def feed(arrays: Any) -> None:
        bound[0][...] = arrays[0]

    program = Program(
        run=lambda: [network(bound[0])],
        fetch=lambda outputs: outputs,
        contract=Contract(runtime="test"),
        feed=feed,
        memory=[[bound[0]]],
    )
    task = build_task(folder, inputs=[SPEC], arrays=bound, batch_size=batch_size)
    path = write_reference(folder, honest, batch_size, row_wise=row_wise)
    message = {"reference": str(path), "examples": None, "seed": SEED, "accept": []}
    return timed_checks.build(program, task, message, precision)


def time_turns(checks: TimedChecks, method: Method | None = None) -> str:
    """Time some turns and check a last call; return why a call was wrong."""
    for _ in range(TURNS):
        durations = checks.time_turn(checks.program.run, method or Method(), TURN)
        if problem := checks.conclude(durations, TURN["block"]):
            return problem
    checks.check_untimed()
    return checks.conclude([], 1)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 17])
@pytest.mark.parametrize("row_wise", [True, False], ids=["row-wise", "joined"])
def test_a_network_that_computes_passes(tmp_path: Path, batch_size: int, row_wise: bool) -> None:
    """Calls of any batch size are checked, also where the outputs of a sample depend on the others."""
    network = compute if row_wise else compute_joined
    checks = build_checks(tmp_path, network, batch_size=batch_size, honest=network, row_wise=row_wise)

    assert "" == time_turns(checks)
    assert checks.checked >= timed_checks._FIRST + 1
    assert TURNS * TURN["samples"] * TURN["block"] == checks.timed


def build_trick(name: str) -> Network:
    """Build a network that answers some calls without computing them."""
    calls: list[np.ndarray] = []
    answers: list[np.ndarray] = []

    def trick(x: np.ndarray) -> np.ndarray:
        calls.append(x.copy())
        y = compute(x)
        answers.append(y)
        late = len(calls) > 30
        return {
            "zeros after some calls": np.zeros_like(y) if late else y,
            "zeros at every second call": np.zeros_like(y) if len(calls) % 2 else y,
            "its first answer for ever": answers[0],
            "its last answer after some calls": answers[min(len(answers) - 1, 30)],
            "the answer of the call before": answers[-2] if len(answers) > 1 else y,
            "the first sample alone": np.concatenate([y[:1], np.zeros_like(y[1:])]) if late else y,
            "a part of its layers": compute(np.where(np.arange(40) < 30, x, 0)) if late else y,
            "not a number after some calls": np.full_like(y, np.nan) if late else y,
            "another shape after some calls": y[:, :3] if late else y,
        }[name]

    return trick


@pytest.mark.parametrize(
    "name",
    [
        "zeros after some calls",
        "zeros at every second call",
        "its first answer for ever",
        "its last answer after some calls",
        "the answer of the call before",
        "the first sample alone",
        "a part of its layers",
        "not a number after some calls",
        "another shape after some calls",
    ],
)
def test_a_network_that_does_not_compute_is_caught(tmp_path: Path, name: str) -> None:
    """The problem has the number of the call."""
    problem = time_turns(build_checks(tmp_path, build_trick(name)))

    assert problem.startswith("at timed call ")
    assert ": output 0" in problem


def test_what_becomes_wrong_after_the_last_round_is_caught(tmp_path: Path) -> None:
    """One more call follows the last round."""
    signs = [1]
    checks = build_checks(tmp_path, lambda x: compute(x) * signs[0])
    assert "" == time_turns(checks)

    signs[0] = -1
    checks.check_untimed()
    assert checks.conclude([], 1).startswith("the call after the last round: output 0")


@pytest.mark.parametrize("batch_size", [1, 4])
def test_no_call_has_the_inputs_of_an_earlier_one(tmp_path: Path, batch_size: int) -> None:
    """An answer from memory is possible in the calls that are checked alone, which are not timed."""
    inputs: list[bytes] = []

    def remember(x: np.ndarray) -> np.ndarray:
        inputs.append(x.tobytes())
        return compute(x)

    checks = build_checks(tmp_path, remember, batch_size=batch_size)
    time_turns(checks)

    # Of so few elements, one call in a hundred runs draws what another one had.
    assert len(inputs) - len(set(inputs)) <= 1 + max(0, checks.checked - 6 // batch_size)


def test_a_network_that_answers_from_nearly_the_same_inputs_is_doubted(tmp_path: Path) -> None:
    """Its outputs are right, but it takes longer for wholly new inputs than for those of the timed calls."""
    last = [np.zeros((4, 40), np.float32)]

    def approximate(x: np.ndarray) -> np.ndarray:
        if np.mean(x != last[0]) > 0.9:
            last[0] = x.copy()
            time.sleep(0.01)
        return compute(x)

    checks = build_checks(tmp_path, approximate)
    problem = time_turns(checks)

    assert ("", True) == (problem, "the network answers from memory" in checks.find_doubt())


def test_outputs_that_are_computed_when_they_are_read_are_doubted(tmp_path: Path) -> None:
    """The call itself then takes no time."""
    checks = build_checks(tmp_path, compute)
    fetch = checks.program.fetch
    checks.program.fetch = lambda outputs: (time.sleep(0.01), fetch(outputs))[1]
    time_turns(checks)

    assert "they are computed when they are read" in checks.find_doubt()


def test_int8_is_compared_with_its_own_outputs(tmp_path: Path) -> None:
    """Its distance from the network is judged elsewhere, and its timed calls answer as it did before timing."""

    def round_coarsely(x: np.ndarray) -> np.ndarray:
        return np.round(compute(x))

    def forget(x: np.ndarray, inputs: list[int] = []) -> np.ndarray:  # noqa: B006  the calls so far
        inputs.append(1)
        return round_coarsely(x) * (len(inputs) < 30)

    assert "" == time_turns(build_checks(tmp_path, round_coarsely, precision="int8"))
    assert "output 0" in time_turns(build_checks(tmp_path, forget, precision="int8"))


def test_calls_that_events_time_are_checked_by_one_more(tmp_path: Path) -> None:
    """Events return no outputs."""
    checks = build_checks(tmp_path, build_trick("zeros after some calls"))

    def measure(calls: int) -> float:
        for _ in range(calls):
            checks.program.run()
        return 1e-3

    assert "output 0" in time_turns(checks, Method(measure=measure))


def test_page_faults_are_of_timed_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call has one here, and the checked call is made twice; new inputs, which are fed before, have many more."""
    faults = Counter[str]()

    def compute_with_faults(x: np.ndarray) -> np.ndarray:
        faults["minor_faults"] += 1
        return compute(x)

    checks = build_checks(tmp_path, compute_with_faults)
    feed = checks.program.feed

    def feed_with_faults(arrays: Any) -> None:
        faults["minor_faults"] += 1000
        feed(arrays)

    checks.program.feed = feed_with_faults
    monkeypatch.setattr(resources, "read_process_events", lambda: dict(faults))
    checks.time_turn(checks.program.run, Method(), TURN)

    assert faults["minor_faults"] > 1000
    assert {"minor_faults": TURN["samples"] * TURN["block"] + 1} == checks.events


def test_a_reference_keeps_its_probes(tmp_path: Path) -> None:
    """Outputs for further inputs, their errors and scales are read as they were written."""
    reference = read_reference(write_reference(tmp_path, compute, 4, row_wise=True))

    assert [3, (0.0,), 2] == [len(reference.probes), reference.probe_errors, reference.rows]
    np.testing.assert_array_equal(compute(feeds.draw_other([SPEC], {}, 2, SEED, 2, 2)[0]), reference.probes[1][0])
    assert pytest.approx(6.3, rel=0.2) == reference.scales[0]
