"""The end of a group's interleaving: enough samples, enough precision, or the time limit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from ngbkit.api import Sweep
from ngbkit.device.groups import interleaving
from ngbkit.device.groups.interleaving import Interleaving
from ngbkit.device.groups.worker import TrialFailedError
from ngbkit.device.timing import intervals
from ngbkit.device.timing.patience import Patience
from ngbkit.sweep.records import Failure
from ngbkit.sweep.trials import Trial

TRIAL = Trial(workload="w", workload_id="i", factors=(), compiler="identity", device="cpu", batch_size=1)


@dataclass(eq=False)
class FakeWorker:
    """Completes its turns at once; its noise determines the duration of each call."""

    trial: Trial
    noise: float
    fails_in: int = -1
    steady_call_s: float = 0.03
    # How much two samples of a turn differ.
    spread: float = 0.0
    looks: int = 0
    # The rounds that something else disturbs.
    contended: Callable[[int], bool] = lambda _number: False
    contended_share: float = 0.0
    outgrown: bool = False
    rounds: dict[int, float] = field(default_factory=dict)
    samples: int = 0

    def estimate_turn_s(self, samples: int) -> float:
        return (1 + samples) * self.steady_call_s

    def count_rounds(self, first_round: int) -> int:
        return sum(number >= first_round and not self.contended(number) for number in self.rounds)

    def time_turn(self, round_number: int, samples: int, patience: Patience) -> None:
        patience.record(0.0, 0.0, contended=self.contended(round_number))
        if len(self.rounds) == self.fails_in:
            raise TrialFailedError(Failure(trial_id=self.trial.id, status="crashed", stage="measure", error="gone"))
        self.samples += samples
        draw = np.random.default_rng([round_number, len(self.trial.compiler)]).normal(0, self.noise)
        self.rounds[round_number] = self.steady_call_s * float(np.exp(draw))

    def compute_round_medians(self) -> dict[int, float]:
        return self.rounds

    def list_turns(self) -> dict[int, list[float]]:
        return {number: [latency_s, latency_s * (1 + self.spread)] for number, latency_s in self.rounds.items()}


@dataclass
class Outcome:
    """Result of an interleaving: the finished workers in order, records of failed ones, reports, rounds of looks."""

    finished: list[Any] = field(default_factory=list)
    failures: list[Any] = field(default_factory=list)
    reports: list[tuple[int, int, float]] = field(default_factory=list)
    looks: list[int] = field(default_factory=list)


@pytest.fixture
def interleave(mlp: Any) -> Callable[..., Outcome]:
    def run(workers: Sequence[Any], **parameters: Any) -> Outcome:
        outcome = Outcome()
        Interleaving(
            sweep=Sweep(mlp, ["identity", "onnxruntime", "openvino"], **parameters),
            first_round=0,
            record_failure=outcome.failures.extend,
            finish=outcome.finished.extend,
            report=lambda *progress: outcome.reports.append(progress),
            look=lambda workers: outcome.looks.append(len(workers[0].rounds)),
        ).run(workers)
        return outcome

    return run


def build_worker(compiler: str, noise: float, **fields: Any) -> FakeWorker:
    return FakeWorker(replace(TRIAL, compiler=compiler), noise, **fields)


def test_every_worker_has_the_fixed_repeats(interleave: Callable[..., Outcome]) -> None:
    """Every worker has the fixed repeats in the same rounds, and no interval is looked at."""
    workers = [build_worker("identity", 0.1), build_worker("onnxruntime", 0.1)]
    outcome = interleave(workers, repeats=40)

    assert workers == outcome.finished
    assert [40, 40] == [worker.samples for worker in workers]
    assert workers[0].rounds.keys() == workers[1].rounds.keys()
    assert [0, 0] == [worker.looks for worker in workers]


def test_the_noise_of_the_first_rounds_decides_how_long_turns_are(interleave: Callable[..., Outcome]) -> None:
    """One sample where turns differ, and as many as allowed where only the samples of a turn do."""
    unsteady, steady = ([build_worker(name, 0.1) for name in ("identity", "onnxruntime")] for _ in range(2))
    for worker in steady:
        worker.noise, worker.spread = 1e-6, 0.1
    interleave(unsteady, repeats=100)
    interleave(steady, repeats=100)

    assert [100, 100] == [worker.samples for worker in (unsteady[0], steady[0])]
    assert (10 + 80, 10 + 10) == (len(unsteady[0].rounds), len(steady[0].rounds))


def test_a_precise_worker_finishes_before_a_noisy_one(interleave: Callable[..., Outcome]) -> None:
    """The baseline continues as long as another needs it, so that every ratio is of shared rounds."""
    quiet, noisy, baseline = (
        build_worker("onnxruntime", 0.001),
        build_worker("openvino", 0.06),
        build_worker("identity", 0.001),
    )
    outcome = interleave([baseline, quiet, noisy], precision=0.01)

    assert quiet is outcome.finished[0]
    assert 10 == len(quiet.rounds)
    assert len(noisy.rounds) > 50
    assert noisy.rounds.keys() == baseline.rounds.keys()
    assert quiet.looks == 1
    assert noisy.looks > 3


def test_the_rule_stops_at_the_requested_precision(interleave: Callable[..., Outcome]) -> None:
    """The rule stops at the interval that the metrics compute from the same rounds."""
    worker, baseline = build_worker("onnxruntime", 0.03), build_worker("identity", 0.03)
    interleave([baseline, worker], precision=0.02)
    logs = np.log([worker.rounds[number] / baseline.rounds[number] for number in worker.rounds])
    low, high = intervals.compute_median_interval(logs, intervals.adjust_level(0.95, worker.looks))

    assert 0.04 > np.exp(high) - np.exp(low) > 0.02


def test_a_single_baseline_is_its_own_reference(interleave: Callable[..., Outcome]) -> None:
    """The rule then applies to its own median latency; its anchor ends with it."""
    alone, anchor = build_worker("identity", 0.02), build_worker("identity", 0.5)
    anchor.trial = replace(anchor.trial, beside=4)
    outcome = interleave([alone, anchor], precision=0.01)

    assert [alone, anchor] == outcome.finished
    assert len(alone.rounds) > 10
    assert alone.rounds.keys() == anchor.rounds.keys()


def test_each_network_has_its_own_baseline(interleave: Callable[..., Outcome]) -> None:
    """Networks that take turns end one by one, each when its own speed-ups are precise; a tie ends with the last."""
    workers = [
        FakeWorker(replace(TRIAL, workload=name, compiler=compiler), noise)
        for name, noise in (("quiet", 0.001), ("noisy", 0.05))
        for compiler in ("identity", "onnxruntime")
    ]
    tie = FakeWorker(replace(TRIAL, workload="first", beside=4, tied="x"), 0.5)
    outcome = interleave([*workers, tie], precision=0.01)

    assert workers[:2] == outcome.finished[:2]
    assert [10, 10] == [len(worker.rounds) for worker in workers[:2]]
    assert {*workers[2:], tie} == {*outcome.finished[2:]}
    assert len(tie.rounds) == len(workers[2].rounds) > 50


def test_a_race_ends_for_those_who_have_lost_it(interleave: Callable[..., Outcome]) -> None:
    """A race stops the slowest column first, until one is left."""
    slow, second, first = (
        build_worker("identity", 0.02, steady_call_s=0.06),
        build_worker("onnxruntime", 0.02, steady_call_s=0.0303),
        build_worker("openvino", 0.02),
    )
    anchor = build_worker("identity", 0.02)
    anchor.trial = replace(anchor.trial, beside=4)
    outcome = interleave([slow, second, first, anchor], repeats=1000, race=True)

    assert slow is outcome.finished[0]
    assert {second, first, anchor} == {*outcome.finished[1:]}
    assert 10 == len(slow.rounds)
    assert 10 < len(second.rounds) == len(first.rounds) == len(anchor.rounds) < 500
    assert 0 < slow.looks < first.looks


def test_a_race_among_equals_ends_with_the_samples(interleave: Callable[..., Outcome]) -> None:
    """A race of equal columns ends at its number of samples, or at the requested precision."""
    workers, precise = ([build_worker(name, 0.05) for name in ("identity", "onnxruntime")] for _ in range(2))
    interleave(workers, repeats=60, race=True)
    interleave(precise, precision=0.02, race=True)

    assert [60, 60] == [worker.samples for worker in workers]
    assert 20 < len(precise[0].rounds) == len(precise[1].rounds) < 500


def test_nobody_races_alone(interleave: Callable[..., Outcome]) -> None:
    """A single compiler, or one whose rivals failed, has all its samples."""
    alone, left = build_worker("identity", 0.05), build_worker("identity", 0.05)
    interleave([alone], repeats=60, race=True)
    interleave([left, build_worker("onnxruntime", 0.05, fails_in=3)], repeats=60, race=True)

    assert [60, 60] == [worker.samples for worker in (alone, left)]


def test_networks_race_against_each_other(interleave: Callable[..., Outcome]) -> None:
    """The fastest compiler of a network that is slower than another one's loses."""
    seconds = {("small", "identity"): 0.03, ("small", "openvino"): 0.02}
    seconds |= {("large", "identity"): 0.09, ("large", "openvino"): 0.08}
    workers = [
        FakeWorker(replace(TRIAL, workload=name, compiler=compiler), 0.01, steady_call_s=call_s)
        for (name, compiler), call_s in seconds.items()
    ]
    outcome = interleave(workers, repeats=1000, race=True)

    assert {*workers} == {*outcome.finished}
    assert [10] * 4 == [len(worker.rounds) for worker in workers]


def test_the_time_limit_ends_it_after_the_minimum_of_rounds(
    interleave: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ratio that will never be precise, by a clock on which each look takes a second."""
    now = iter(range(10_000))
    monkeypatch.setattr(interleaving.time, "monotonic", lambda: float(next(now)))
    workers = [build_worker("identity", 1.0), build_worker("onnxruntime", 1.0)]
    outcome = interleave(workers, precision=0.001, max_seconds=5, min_rounds=12)

    assert workers == outcome.finished
    assert [12, 12] == [len(worker.rounds) for worker in workers]


def test_a_failed_worker_does_not_stop_the_others(interleave: Callable[..., Outcome]) -> None:
    """The other workers continue after one fails, even if it is the baseline."""
    first, second = build_worker("onnxruntime", 0.01), build_worker("openvino", 0.01)
    outcome = interleave([build_worker("identity", 0.01, fails_in=3), first, second], precision=0.02)

    assert ["crashed"] == [record.status for record in outcome.failures]
    assert {id(first), id(second)} == {id(worker) for worker in outcome.finished}
    assert all(len(worker.rounds) >= 10 for worker in (first, second))


def test_progress_is_reported_in_rounds(interleave: Callable[..., Outcome]) -> None:
    """Progress counts rounds of the planned ones, or of the expected ones with a precision."""
    fixed = interleave([build_worker("identity", 0.1)], repeats=20)
    precise = interleave([build_worker("identity", 0.1)], precision=0.02)

    assert (0, 10, 0.0) == fixed.reports[0]
    assert (0, 10, 0.0) == precise.reports[0]


def test_contended_rounds_are_made_up_for(interleave: Callable[..., Outcome]) -> None:
    """Rounds are added until each worker has nine tenths of the planned ones uncontended."""
    shaken = build_worker("onnxruntime", 0.1, contended=lambda number: number < 4)
    other = build_worker("identity", 0.1)
    interleave([other, shaken], repeats=20, patience=2)

    assert 13 == len(shaken.rounds) == len(other.rounds)


def test_no_patience_makes_up_for_nothing(interleave: Callable[..., Outcome]) -> None:
    """A patience of 0 adds no rounds for contended ones."""
    shaken = build_worker("identity", 0.1, contended=lambda number: number < 4)
    interleave([shaken], repeats=20, patience=0)

    assert 10 == len(shaken.rounds)


def test_patience_ends(interleave: Callable[..., Outcome]) -> None:
    """A machine that is always contended costs as much extra time as allowed, and no more."""
    shaken = build_worker("identity", 0.1, contended=lambda number: True)
    interleave([shaken], repeats=20, patience=2)

    assert 30 == len(shaken.rounds)


def test_looks_at_the_samples_so_far_get_rarer(
    interleave: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look comes after ten rounds and two seconds, then each time after twice as long."""
    clock = itertools.count(0.0, 0.25)
    monkeypatch.setattr(interleaving.time, "monotonic", lambda: next(clock))
    outcome = interleave([build_worker("identity", 0.1), build_worker("onnxruntime", 0.1)], repeats=200)

    assert 2 <= len(outcome.looks)
    assert all(second >= 1.5 * first for first, second in itertools.pairwise(outcome.looks))


def test_a_worker_whose_memory_grew_too_much_finishes(interleave: Callable[..., Outcome]) -> None:
    """It keeps the rounds so far, and the others go on."""
    leaking, other = build_worker("identity", 0.1), build_worker("onnxruntime", 0.1)
    leaking.outgrown = True
    outcome = interleave([leaking, other], repeats=40)

    assert [leaking, other] == outcome.finished
    assert 1 == len(leaking.rounds) < len(other.rounds)
