"""Loads a network at every batch size into one child, and searches for the highest rate of requests that is valid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path

from ngbkit.device.groups.bench import Bench
from ngbkit.device.groups.compiled import CompileCache
from ngbkit.device.groups.worker import Worker
from ngbkit.device.serving import loadgen
from ngbkit.device.serving.load import Load, LoadTest
from ngbkit.errors import DeviceError
from ngbkit.hardware.conditions import InterferenceMonitor
from ngbkit.registry import find_version

# Beyond its requests: LoadGen starts, and a backlog is served.
_MARGIN_S = 60.0


class ServingBench(Bench):
    """Serves requests by the only network and compiler of a plan, which has several batch sizes."""

    def serve(self, load: Load, folder: Path) -> None:
        """Run the tests of a load, each of which is reported as an event; `folder` is for LoadGen's logs."""
        loadgen.load()
        self.install_releases()
        self.warm_servers()
        tests: list[LoadTest] = []
        with self._open_server() as (worker, call_s):
            while (rate := load.choose_rate(tests)) is not None:
                name = f"{worker.trial.workload} {worker.trial.compiler}"
                text = f"LoadGen sends {rate:.3g} requests/s for {load.estimate_seconds(rate):.0f} s"
                self._report("stage", text=f"{name}: {text}, test {len(tests) + 1}")
                tests.append(self._run_test(worker, call_s, load, rate, len(tests), folder))
                self._report("served", test=asdict(tests[-1]))

    @contextmanager
    def _open_server(self) -> Iterator[tuple[Worker, dict[int, float]]]:
        """Load every batch size into one child, as a deployment holds them, and time a call of each after warm-up."""
        with ExitStack() as stack:
            worker: Worker | None = None
            call_s: dict[int, float] = {}
            for group in self.spec.sweep.groups(self.spec.device):
                (trial,) = group.trials
                self._report("stage", step="compile", trial_id=trial.id, text=f"compiling {trial}")
                prepared = self._prepare(group, [trial])
                task = self._build_task(trial, group, prepared)
                task |= self._quantise(trial, group, task)
                if worker is None:
                    worker = self._start_worker(trial, group, task)
                    stack.callback(worker.end)
                cache = CompileCache.locate(
                    Path(prepared["folder"]), trial.compiler, trial.batch_size, self.threads, task["memory"]
                )
                if cache.read_cold_s() is None:
                    cache.clear()
                worker.load({**task, "cache": str(cache.folder)})
                worker.warm_up()
                call_s[trial.batch_size] = worker.steady_call_s
            if worker is None:
                raise DeviceError("invalid load: no batch size to serve. Name one that was measured.")
            yield worker, call_s

    def _run_test(
        self, worker: Worker, call_s: dict[int, float], load: Load, rate: float, number: int, folder: Path
    ) -> LoadTest:
        logs = folder / f"loadgen-{number}"
        logs.mkdir()
        monitor = InterferenceMonitor(worker.child.pid)
        reply = worker.serve(
            {
                **load.to_json(),
                "rate": rate,
                "seconds": load.duration,
                "requests": load.requests,
                "seed": load.seed + number,
                "call_s": sorted(call_s.items()),
                "folder": str(logs),
            },
            2 * load.estimate_seconds(rate) + _MARGIN_S,
        )
        interference = monitor.end_turn()
        return LoadTest(
            rate=rate,
            valid=reply["validity"] == "VALID",
            requests=reply["requests"],
            late=reply["late"],
            latency=1e-9 * reply["latency_ns"],
            mean_latency=1e-9 * reply["mean_ns"],
            completed_per_s=reply["completed_per_s"],
            calls=reply["calls"],
            busy=min(1.0, reply["busy_s"] * reply["completed_per_s"] / reply["requests"]),
            contended=interference.contended,
            loadgen=find_version("mlcommons-loadgen") or "",
        )
