"""How long the lanes of a group are timed: until they have enough samples, are precise enough, or time is up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from ngbkit.device import interleaving
from ngbkit.device.interleaving import Rounds
from ngbkit.device.worker import LaneFailedError
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.records import Failure
from ngbkit.sweep.trials import Trial

TRIAL = Trial(workload="w", workload_id="i", factors=(), compiler="identity", device="cpu", batch_size=1)


@dataclass(eq=False)
class FakeLane:
    """Takes its turns at once: each call lasts what its noise says."""

    trial: Trial
    noise: float
    fails_in: int = -1
    settled_call_s: float = 0.01
    looks: int = 0
    rounds: dict[int, float] = field(default_factory=dict)
    samples: int = 0

    def turn(self, round_number: int, samples: int) -> None:
        if len(self.rounds) == self.fails_in:
            raise LaneFailedError(Failure(trial_id=self.trial.id, status="crashed", stage="measure", error="gone"))
        self.samples += samples
        draw = np.random.default_rng([round_number, len(self.trial.compiler)]).normal(0, self.noise)
        self.rounds[round_number] = self.settled_call_s * float(np.exp(draw))

    def round_medians(self) -> dict[int, float]:
        return self.rounds


@dataclass
class Taken:
    """What became of some lanes: those that were finished, in order, and the records of those that were lost."""

    finished: list[Any] = field(default_factory=list)
    lost: list[Any] = field(default_factory=list)
    told: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def take(mlp: Any) -> Callable[..., Taken]:
    def carry_out(lanes: Sequence[Any], **how: Any) -> Taken:
        taken = Taken()
        Rounds(
            sweep=Sweep(mlp, ["identity", "onnxruntime", "openvino"], **how),
            first=0,
            lost=taken.lost.extend,
            finished=taken.finished.extend,
            tell=lambda done, total: taken.told.append((done, total)),
        ).take(lanes)
        return taken

    return carry_out


def lane(compiler: str, noise: float, **more: Any) -> FakeLane:
    return FakeLane(replace(TRIAL, compiler=compiler), noise, **more)


def test_fixed_repeats_are_taken_by_every_lane(take: Callable[..., Taken]) -> None:
    """In the same rounds, and nobody looks at an interval."""
    lanes = [lane("identity", 0.1), lane("onnxruntime", 0.1)]
    taken = take(lanes, repeats=40)

    assert lanes == taken.finished
    assert [40, 40] == [one.samples for one in lanes]
    assert lanes[0].rounds.keys() == lanes[1].rounds.keys()
    assert [0, 0] == [one.looks for one in lanes]


def test_a_lane_that_is_precise_enough_is_done_before_a_noisy_one(take: Callable[..., Taken]) -> None:
    """The baseline goes on for as long as another needs it, so that every ratio is of shared rounds."""
    quiet, noisy, baseline = lane("onnxruntime", 0.001), lane("openvino", 0.06), lane("identity", 0.001)
    taken = take([baseline, quiet, noisy], precision=0.01)

    assert quiet is taken.finished[0]
    assert 10 == len(quiet.rounds)
    assert len(noisy.rounds) > 50
    assert noisy.rounds.keys() == baseline.rounds.keys()
    assert quiet.looks == 1
    assert noisy.looks > 3


def test_what_it_stops_at_is_as_precise_as_asked(take: Callable[..., Taken]) -> None:
    """By the interval that the metrics will give of the same rounds."""
    one, baseline = lane("onnxruntime", 0.03), lane("identity", 0.03)
    take([baseline, one], precision=0.02)
    logs = np.log([one.rounds[number] / baseline.rounds[number] for number in one.rounds])
    low, high = interleaving.intervals.median_interval(logs, interleaving.intervals.adjusted(0.95, one.looks))

    assert 0.04 > np.exp(high) - np.exp(low) > 0.02


def test_a_baseline_on_its_own_is_held_against_itself(take: Callable[..., Taken]) -> None:
    """Then its own median latency is what must be known that well; its anchor ends with it."""
    alone, anchor = lane("identity", 0.02), lane("identity", 0.5)
    anchor.trial = replace(anchor.trial, beside=4)
    taken = take([alone, anchor], precision=0.01)

    assert [alone, anchor] == taken.finished
    assert len(alone.rounds) > 10
    assert alone.rounds.keys() == anchor.rounds.keys()


def test_time_ends_it_though_not_before_the_least_rounds(
    take: Callable[..., Taken], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ratio that will never be precise, by a clock on which each look takes a second."""
    now = iter(range(10_000))
    monkeypatch.setattr(interleaving.time, "monotonic", lambda: float(next(now)))
    lanes = [lane("identity", 1.0), lane("onnxruntime", 1.0)]
    taken = take(lanes, precision=0.001, max_seconds=5, min_rounds=12)

    assert lanes == taken.finished
    assert [12, 12] == [len(one.rounds) for one in lanes]


def test_a_lane_that_fails_leaves_the_others_to_go_on(take: Callable[..., Taken]) -> None:
    """Also the baseline: from then on the others are held against the first of them."""
    first, second = lane("onnxruntime", 0.01), lane("openvino", 0.01)
    taken = take([lane("identity", 0.01, fails_in=3), first, second], precision=0.02)

    assert ["crashed"] == [record.status for record in taken.lost]
    assert {id(first), id(second)} == {id(one) for one in taken.finished}
    assert all(len(one.rounds) >= 10 for one in (first, second))


def test_how_far_it_is_is_told_in_rounds(take: Callable[..., Taken]) -> None:
    """Of those that are planned; with a precision, of those that it will probably take."""
    fixed = take([lane("identity", 0.1)], repeats=20)
    precise = take([lane("identity", 0.1)], precision=0.02)

    assert (0, 10) == fixed.told[0]
    assert (0, 10) == precise.told[0]
