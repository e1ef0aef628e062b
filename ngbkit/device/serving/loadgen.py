"""One test of MLPerf's LoadGen in its Server scenario, of the programs of this child."""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ngbkit.device.serving.batcher import Requests, serve
from ngbkit.errors import DeviceError, MissingDependencyError, UnsupportedError

# The results that are read from LoadGen's log, by its names.
_RESULTS = {
    "result_validity": "validity",
    "result_query_count": "requests",
    "result_overlatency_query_count": "late",
    "result_mean_latency_ns": "mean_ns",
    "result_completed_samples_per_sec": "completed_per_s",
}


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
    served = serve(requests, calls, call_s, complete, load_["max_delay"])
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
