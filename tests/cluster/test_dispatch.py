"""The end of a run by the ends of its plans, on devices without engines."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import ipyparallel
import pytest

from ngbkit.api import Sweep
from ngbkit.cluster import dispatch
from ngbkit.cluster.dispatch import Dispatch
from ngbkit.cluster.engine import Engine, EngineLostError
from ngbkit.device.world import World
from ngbkit.errors import DeviceError
from ngbkit.workloads.base import Workload


def execute(sweep: Sweep) -> str:
    """Execute a sweep whose run has no record yet."""
    settings = {"retry": frozenset(), "retry_ids": frozenset(), "environments": {}, "descriptions": {}}
    stop, world = threading.Event(), World.capture()
    return Dispatch(run_id="r", sweep=sweep, on_events=print, stop=stop, world=world, **settings).execute({}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("counts", [(1, 0, 0, 2, 0, 0), (0, 0, 0, 0)])
def test_four_losses_without_a_record_between_them_end_a_run(
    mlp: Workload, monkeypatch: pytest.MonkeyPatch, counts: Sequence[int]
) -> None:
    """Each engine is lost after so many records; the last one finishes, if it is started."""
    sweep, left = Sweep(mlp, ["identity"], [1, 2, 3]), iter(counts)
    names = iter([trial.id for trial in sweep.trials()])

    def execute_plan(self: Dispatch, *_: object) -> str:
        count = next(left, None)
        if count is None:
            return "finished"
        self._recorded |= {next(names) for _ in range(count)}
        raise EngineLostError("the engine is lost")

    monkeypatch.setattr(dispatch.engines, "acquire", lambda *_: SimpleNamespace(device="cpu", close=lambda: None))
    monkeypatch.setattr(Dispatch, "_execute_plan", execute_plan)
    if any(counts):
        assert "finished" == execute(sweep)
    else:
        with pytest.raises(DeviceError, match="`ngbkit runs --resume r` continues"):
            execute(sweep)
    assert None is next(left, None)


def test_a_run_that_a_device_has_not_finished_is_stopped(mlp: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Dispatch, "_measure", lambda self, label, *_: {"a": "finished", "b": "stopped"}[label])

    assert "stopped" == execute(Sweep(mlp, ["identity"], devices=["a", "b"]))


@pytest.mark.parametrize("signals", [1, 2])
def test_a_signal_to_a_plan_that_has_just_ended_may_meet_the_next_call(signals: int) -> None:
    """A call that only reads is repeated once; only one signal can be on its way."""
    late = ipyparallel.error.RemoteError("KeyboardInterrupt", "", "")
    answers = [Mock(**{"get.side_effect": late})] * signals + [Mock(**{"get.return_value": '{"missing": []}'})]
    view = Mock(targets=0, **{"apply_async.side_effect": answers})
    view.client.configure_mock(ids=[0], _closed=False)
    for answer in answers:
        answer.msg_ids = []
    engine = Engine("cpu", view, Path("/state"))

    if signals == 1:
        engine.push({"digest": Path("absent")})
    else:
        with pytest.raises(DeviceError, match="KeyboardInterrupt"):
            engine.push({"digest": Path("absent")})
