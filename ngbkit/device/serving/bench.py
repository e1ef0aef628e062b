"""Loads a network at every batch size into one child, and serves requests with it at each rate of a load."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ngbkit.device.groups.bench import Bench
from ngbkit.device.groups.compiled import CompileCache
from ngbkit.device.groups.worker import Worker
from ngbkit.device.serving.load import Load, ServedTrial, Trial
from ngbkit.device.serving.schedule import draw_schedule
from ngbkit.errors import DeviceError
from ngbkit.hardware.conditions import InterferenceMonitor
from ngbkit.hardware.conditions.interference import FOREIGN, STEAL, THROTTLED, Interference
from ngbkit.workloads.subprocesses import build_arguments, build_python_path

# Beyond its requests: a process starts, and a backlog is served.
_MARGIN_S = 60.0


class ServingBench(Bench):
    """Serves requests by the only network and compiler of a plan, which has several batch sizes."""

    def serve(self, load: Load, folder: Path) -> list[ServedTrial]:
        """Run the trials of a load; `folder` is for the pipe of its requests."""
        self.warm_servers()
        with self._open_server() as worker:
            trials: list[ServedTrial] = []
            planned = load.list_trials()
            while planned:
                trial = planned.pop(0)
                text = f"{worker.trial.workload}: {trial.rate:.3g} requests/s for {trial.seconds:g} s"
                self._report("stage", text=f"{text}, trial {len(trials) + 1} of {len(trials) + 1 + len(planned)}")
                trials.append(self._run_trial(worker, load, trial, len(trials), folder))
                further = None if planned else load.choose_next(trials)
                planned += [] if further is None else [Trial(rate=further, seconds=load.seconds)]
        return trials

    @contextmanager
    def _open_server(self) -> Iterator[Worker]:
        """Load every batch size into one child, as a deployment holds them: a switch costs what it costs there."""
        with ExitStack() as stack:
            worker: Worker | None = None
            for group in self.spec.sweep.groups(self.spec.device):
                (trial,) = group.trials
                self._report("stage", step="compile", trial_id=trial.id, text=f"compiling {trial}")
                prepared = self._prepare(group, [trial])
                task = self._build_task(trial, group, prepared)
                if worker is None:
                    worker = stack.enter_context(_ending(self._start_worker(trial, group, task)))
                cache = CompileCache.locate(Path(prepared["folder"]), trial.compiler, trial.batch_size, self.threads)
                if cache.read_cold_s() is None:
                    cache.clear()
                worker.load({**task, "cache": str(cache.folder)})
                worker.warm_up()
            if worker is None:
                raise DeviceError("invalid load: no batch size to serve. Name one that was measured.")
            yield worker

    def _run_trial(self, worker: Worker, load: Load, trial: Trial, number: int, folder: Path) -> ServedTrial:
        seed = f"{load.seed}/{number}"
        rate, seconds = trial.rate, trial.seconds
        schedule = draw_schedule(rate, seconds, seed)
        pipe = folder / f"requests-{number}"
        os.mkfifo(pipe, 0o600)
        monitor = InterferenceMonitor(worker.child.pid)
        arguments = build_arguments("ngbkit.device.serving.generator", str(pipe), repr(rate), repr(seconds), seed)
        generator = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": build_python_path()},
        )
        try:
            reply = worker.serve(str(pipe), load.max_delay, seconds + _MARGIN_S)
            interference = monitor.end_turn()
            sent = _read_report(generator)
        finally:
            generator.kill()
            generator.communicate()
            pipe.unlink()
        if len(reply["latency_s"]) != len(schedule):
            raise DeviceError(
                f"the load generator sent {len(reply['latency_s'])} of {len(schedule)} requests. Try again."
            )
        return ServedTrial(
            rate=rate,
            seconds=seconds,
            arrivals_s=tuple(schedule),
            latency_s=tuple(reply["latency_s"]),
            batches=tuple(reply["batches"]),
            busy_s=reply["busy_s"],
            lag_s=sent["lag_s"],
            generator_cpu_s=sent["cpu_s"],
            disturbed=_is_disturbed(interference, sent["cpu_s"], seconds),
            calibrates=trial.calibrates,
        )


@contextmanager
def _ending(worker: Worker) -> Iterator[Worker]:
    try:
        yield worker
    finally:
        worker.end()


def _read_report(generator: subprocess.Popen[bytes]) -> dict[str, float]:
    output, errors = generator.communicate()
    try:
        report: dict[str, float] = json.loads(output)
    except ValueError:
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise DeviceError(f"the load generator failed: {''.join(last) or 'it printed nothing'}.") from None
    return report


def _is_disturbed(interference: Interference, generator_s: float, seconds: float) -> bool:
    """Whether work that is not of the test disturbed a trial: the generator's own use of the cores is no other work.

    Waiting is no mark here, since a server whose load has pauses waits for its generator too.
    """
    generator = generator_s / (seconds * (os.cpu_count() or 1))
    return (
        interference.foreign - generator - interference.resolution > FOREIGN
        or interference.steal - interference.resolution > STEAL
        or interference.throttled > THROTTLED
    )
