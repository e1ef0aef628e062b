"""One test of MLPerf's LoadGen in its Server scenario, and the server in this child that batches its requests."""

from __future__ import annotations

import json
import platform
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ngbkit.device.timing.sampling import disable_collector
from ngbkit.errors import DeviceError, MissingDependencyError, UnsupportedError

# The results that are read from LoadGen's log, by its names.
_RESULTS = {
    "result_validity": "validity",
    "result_query_count": "requests",
    "result_overlatency_query_count": "late",
    "result_mean_latency_ns": "mean_ns",
    "result_completed_samples_per_sec": "completed_per_s",
}


@dataclass(slots=True)
class Requests:
    """The requests that wait: the load generator's thread adds their ids, and the server takes them."""

    _waiting: deque[int] = field(default_factory=deque)
    _is_closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def add(self, ids: list[int]) -> None:
        with self._changed:
            self._waiting.extend(ids)
            self._changed.notify()

    def close(self) -> None:
        """Declare that no further request will come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def take(self, sizes: list[int]) -> tuple[int, list[int]]:
        """Take the requests of the next call, and its batch size; no requests once these are closed and all were taken.

        `sizes` has the batch size by the number of requests that wait, its last entry being for more.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            size = sizes[min(len(self._waiting), len(sizes) - 1)]
            return size, [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]


def choose_sizes(call_s: Mapping[int, float]) -> list[int]:
    """Choose, by the number of requests that wait, from 0 to the largest batch size, the size of the next call.

    `call_s` has the duration of a call by batch size. The size answers most requests a second; of equal ones it is the
    smallest. A larger batch that is mostly padding thus runs only where it is faster than smaller full ones.
    """
    sizes = sorted(call_s)
    return [
        max(sizes, key=lambda size: (min(count, size) / max(call_s[size], 1e-9), -size))
        for count in range(max(sizes) + 1)
    ]


@dataclass(slots=True)
class Served:
    """The work of a server: the seconds in calls, and their number."""

    busy_s: float = 0.0
    calls: int = 0


def serve(
    requests: Requests,
    calls: Mapping[int, Callable[[], Any]],
    call_s: Mapping[int, float],
    complete: Callable[[list[int]], object],
) -> Served:
    """Serve requests until they are closed and none waits; `calls` and their durations are by batch size.

    `complete` receives the ids of the requests of each call when it has ended.
    """
    sizes = choose_sizes({size: call_s[size] for size in calls})
    served = Served()
    with disable_collector():
        while True:
            size, batch = requests.take(sizes)
            if not batch:
                return served
            start = time.perf_counter()
            calls[size]()
            complete(batch)
            served.busy_s += time.perf_counter() - start
            served.calls += 1


def load() -> Any:
    """Load the module of LoadGen; MissingDependencyError where it is not installed."""
    try:
        import mlperf_loadgen
    except ImportError:
        if platform.machine() != "x86_64":
            raise UnsupportedError(
                f"no LoadGen for {platform.machine()}: mlcommons-loadgen has wheels for x86_64 alone. Build "
                "it from MLCommons' sources, or measure a capacity on another device."
            ) from None
        raise MissingDependencyError("mlcommons-loadgen", "loadgen") from None
    return mlperf_loadgen


def run_test(
    calls: Mapping[int, Callable[[], Any]], call_s: Mapping[int, float], load_: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Send requests at the rate of a load on another thread, serve them on this one, and return LoadGen's results."""
    loadgen = load()
    requests = Requests()
    errors: list[BaseException] = []

    def issue(samples: list[Any]) -> None:
        requests.add([sample.id for sample in samples])

    def complete(ids: list[int]) -> None:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(number, 0, 0) for number in ids])

    def generate() -> None:
        # Inputs are in place: the library of samples has a single one, and nothing to load.
        system = loadgen.ConstructSUT(issue, lambda: None)
        samples = loadgen.ConstructQSL(1, 1, lambda _: None, lambda _: None)
        try:
            loadgen.StartTestWithLogSettings(system, samples, *_build_settings(loadgen, load_, folder))
        except BaseException as error:  # noqa: BLE001  raised again on the thread that waits for it
            errors.append(error)
        finally:
            requests.close()
            loadgen.DestroyQSL(samples)
            loadgen.DestroySUT(system)

    thread = threading.Thread(target=generate, name="ngbkit-loadgen", daemon=True)
    thread.start()
    served = serve(requests, calls, call_s, complete)
    thread.join()
    if errors:
        raise errors[0]
    return {**_read_results(folder, load_["quantile"]), "calls": served.calls, "busy_s": served.busy_s}


def _build_settings(loadgen: Any, load_: Mapping[str, Any], folder: Path) -> tuple[Any, Any]:
    settings = loadgen.TestSettings()
    settings.scenario = loadgen.TestScenario.Server
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = load_["rate"]
    settings.server_target_latency_ns = int(1e9 * load_["deadline"])
    settings.server_target_latency_percentile = load_["quantile"]
    settings.min_duration_ms = int(1e3 * load_["seconds"])
    settings.min_query_count = load_["requests"]
    settings.schedule_rng_seed = load_["seed"]
    output = loadgen.LogOutputSettings()
    output.outdir = str(folder)
    logs = loadgen.LogSettings()
    logs.log_output = output
    logs.enable_trace = False
    return settings, logs


def _read_results(folder: Path, quantile: float) -> dict[str, Any]:
    """Read the results of a test from LoadGen's log, whose lines are JSON after a prefix."""
    names = {**_RESULTS, f"result_{100 * quantile:.2f}_percentile_latency_ns": "latency_ns"}
    lines = (folder / "mlperf_log_detail.txt").read_text().splitlines()
    entries = [json.loads(line.partition(" ")[2]) for line in lines if line.startswith(":::MLLOG ")]
    results = {names[entry["key"]]: entry["value"] for entry in entries if entry["key"] in names}
    if missing := {*names.values()} - {*results}:
        raise DeviceError(f"LoadGen's log has no {', '.join(sorted(missing))}. Install another release of it.")
    return results
