"""Capacity: the highest rate of requests that a network serves within a deadline, measured by MLPerf's LoadGen."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ngbkit.cluster.dispatch import build_spec, follow, push_artifacts, to_error
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.engines import acquire
from ngbkit.cluster.launchers.base import Starter
from ngbkit.dataset import schema
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import Load, LoadTest
from ngbkit.device.world import World
from ngbkit.errors import MetricError
from ngbkit.metrics.serving.capacities import Capacities, CapacitySearch, find_capacities, find_search
from ngbkit.metrics.serving.service import SECONDS, build_question, build_sweep, list_columns, parse_service
from ngbkit.sweep.grid import Grid


def capacity(
    data: Data,
    deadline: str | float,
    *,
    quantile: float = 0.99,
    batch_sizes: int | Collection[int] | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
    again: bool = False,
    engines: Mapping[str, Engine] | None = None,
    report: Callable[[str], object] = str,
    **select: Any,
) -> Capacities:
    """Measure the highest rate of requests whose latency keeps a deadline, for each network with each compiler.

    MLPerf's LoadGen sends the requests, in its Server scenario: at random times (a Poisson process), each with one
    sample, whether or not earlier ones are answered. A latency counts from the scheduled time of a request. LoadGen
    calls a test valid if the share of requests that keep the deadline is at least `quantile`, with a confidence of
    99 %. The search bisects the rates of tests until the lowest invalid one is at most 1.1 times the highest valid one,
    each by two tests: that valid rate is the capacity.

    The batch sizes are loaded into one process on the device, as a deployment does. Its server makes one call at a
    time; when it is free it takes the requests that wait, in the batch size that answers most of them a second.

    It is no result of MLPerf, whose tests take 600 s, and include real inputs and a check of accuracy: here inputs are
    in place, and the copy of requests into a batch is not counted. A search of a network and compiler takes about
    eight tests. One that has ended is kept, and is shown without a measurement.

    Parameters
    ----------
    data
        A dataset of one run, or a tree. The device must be reachable, and have `ngbkit[loadgen]`.
    deadline
        A time such as ``"50ms"``, or seconds.
    quantile
        The share of requests that keeps it: 0.5, 0.9, 0.95, 0.97, 0.99 or 0.999, which LoadGen reports.
    batch_sizes
        The batch sizes of the server. Default: the measured ones whose calls take no longer than the deadline.
    seconds
        The shortest duration of a test. A test also lasts 20 deadlines, and has the requests that a valid one needs:
        459 for p99, 44 for p90.
    seed
        Of the times of requests.
    again
        Measure again what is measured already.
    engines
        Running engines by device label, to use instead of starting one: see `ngbkit.attach`.
    report
        Receives lines of progress.
    **select
        By dim, the label or the labels to measure: ``compiler="openvino"``.

    Raises
    ------
    UsageError, UnknownNameError
        An argument is invalid.
    MetricError
        The dataset does not say what it measured.
    DeviceError
        The device cannot be reached, lacks LoadGen, or does not load a network.

    Notes
    -----
    A test with few requests must be better than its quantile to be valid, so that a capacity is rather too low than too
    high; a longer one comes nearer. See MLPerf's inference rules, "early stopping".

    Examples
    --------
    >>> ngbkit.capacity(ds, "50ms", quantile=0.9, compiler="openvino")  # doctest: +SKIP
    """
    data = schema.require_distinct(schema.require_measured(data))
    service = parse_service(deadline, quantile, batch_sizes, seconds, seed)
    columns = list_columns(data, service, select)
    for column in columns:
        if not column.batch_sizes:
            continue
        load, question = service.build_load(column.limit), build_question(data, column, service)
        latest = find_search(question)
        if again or latest is None or load.choose_rate(latest.tests) is not None:
            sweep, device = build_sweep(data, column), str(column.labels["device"])
            _check_files(sweep)
            engine = (engines or {}).get(device) or acquire(device, Starter(report=report, stopped=bool))
            started_at = time.time()
            tests = _run_tests(sweep, load, engine, report)
            CapacitySearch(started_at=started_at, tests=tests).save(question)
    return find_capacities(data, service, columns)


def _check_files(sweep: Grid) -> None:
    """Reject a sweep whose files this machine lacks."""
    for workload in sweep.workloads:
        if missing := [digest for digest, path in workload.artifacts.items() if not path.exists()]:
            raise MetricError(
                f"a load needs the files of {workload.name}, and this machine lacks {', '.join(missing)[:80]}. Measure "
                "on the machine that started the run, or run the sweep here."
            )


def _run_tests(sweep: Grid, load: Load, engine: Engine, report: Callable[[str], object]) -> tuple[LoadTest, ...]:
    """Run the tests of a load on the one network and compiler of a sweep; Ctrl-C ends them."""
    push_artifacts(engine, sweep)
    spec = build_spec(
        engine, sweep, run_id=f"capacity-{secrets.token_hex(2)}", world=engine.adapt(World.capture(sweep.workloads))
    )
    plan = engine.serve(spec, load)
    trial_ids, stop = {trial.id for trial in sweep.trials()}, threading.Event()
    tests: list[LoadTest] = []
    try:
        for event in follow(plan, trial_ids, stop):
            if event["kind"] == "stage":
                report(event["text"])
            elif event["kind"] == "served":
                tests.append(event["test"])
    except BaseException:
        stop.set()
        for _ in follow(plan, trial_ids, stop):
            pass
        if not plan.is_done:
            engine.close()
        raise
    outcome = plan.fetch_outcome()
    if outcome["state"] == "error":
        raise to_error(engine.device, outcome)
    if outcome["state"] == "stopped":
        raise KeyboardInterrupt("stopped.")
    return tuple(tests)
