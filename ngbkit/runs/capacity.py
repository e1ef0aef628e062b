"""Capacity: the highest rate of requests that a network serves within a deadline, measured by MLPerf's LoadGen."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import attrs

from ngbkit import options, validation
from ngbkit.cluster.dispatch import build_spec, follow, push_artifacts, to_error
from ngbkit.cluster.engine import Engine
from ngbkit.cluster.engines import acquire
from ngbkit.cluster.launchers.base import Starter
from ngbkit.dataset import schema
from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import Load, LoadTest
from ngbkit.device.world import World
from ngbkit.errors import JournalError, MetricError, NgbkitError
from ngbkit.files import Store, write_atomically
from ngbkit.metrics.serving.capacities import (
    SECONDS,
    Capacities,
    CapacitySearch,
    ServedColumn,
    Service,
    build_capacities,
    list_columns,
    parse_service,
)
from ngbkit.sweep.grid import Grid
from ngbkit.user_text import parse_json


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
    results: list[tuple[ServedColumn, CapacitySearch | None]] = []
    for column in list_columns(data, service, select):
        search = None
        if column.batch_sizes:
            sweep, load = build_sweep(data, column), service.build_load(column.limit)
            question = build_question(sweep, service)
            search = find_search(question)
            if again or search is None or load.choose_rate(search.tests) is not None:
                started_at = time.time()
                tests = _run_tests(sweep, load, engines or {}, report)
                search = CapacitySearch(started_at=started_at, tests=tests)
                save_search(question, search)
        results.append((column, search))
    return build_capacities(data, service, results)


def build_question(sweep: Grid, service: Service) -> dict[str, Any]:
    """Build the question that a search answers: what is served, and what it must keep, as plain JSON."""
    # Files of earlier searches are named after questions that had a delay too.
    settings = {**asdict(service), "max_delay": 0.0, "batch_sizes": list(sweep.batch_sizes)}
    return {"sweep": sweep.to_json(), "service": settings}


def build_sweep(data: Data, column: ServedColumn) -> Grid:
    """Build the part of a dataset's sweep with one network, factors and compiler, on one device."""
    sweep, labels = _read_sweep(data), column.labels
    workload = next((workload for workload in sweep.workloads if workload.name == labels["workload"]), None)
    if workload is None:
        raise MetricError(
            f"the sweep of this dataset has no network {labels['workload']!r}. Use the dataset of one run."
        )
    # A label may be a number of pandas: the level itself is what the network is built with.
    factors = {
        name: tuple(level for level in levels if level == labels[name])
        for name, levels in workload.factors.items()
        if name in labels
    }
    return attrs.evolve(
        sweep,
        workloads=(replace(workload, factors={**workload.factors, **factors}),),
        factors={},
        compilers=(str(labels["compiler"]),),
        devices=(str(labels["device"]),),
        batch_sizes=column.batch_sizes,
    )


def _read_sweep(data: Data) -> Grid:
    """The sweep of a dataset, to build its networks again."""
    try:
        description = json.loads(data.attrs.get("sweep") or "null")
        if not isinstance(description, dict):
            raise MetricError("it names none")
        locate = Store(options.get_state_dir() / options.LAYOUT.artifacts).locate
        return Grid.from_json(description, locate=locate)
    except (NgbkitError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise MetricError(
            f"a capacity is measured with the networks of the sweep, and that of this dataset cannot be read: {error}. "
            "Use the dataset of one run."
        ) from None


def _run_tests(
    sweep: Grid, load: Load, engines: Mapping[str, Engine], report: Callable[[str], object]
) -> tuple[LoadTest, ...]:
    """Run the tests of a load on the one network, compiler and device of a sweep; Ctrl-C ends them."""
    for workload in sweep.workloads:
        if missing := [digest for digest, path in workload.artifacts.items() if not path.exists()]:
            raise MetricError(
                f"a load needs the files of {workload.name}, and this machine lacks {', '.join(missing)[:80]}. Measure "
                "on the machine that started the run, or run the sweep here."
            )
    (device,) = sweep.devices
    engine = engines.get(device) or acquire(device, Starter(report=report, stopped=bool))
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


def save_search(question: Mapping[str, Any], search: CapacitySearch) -> None:
    """Write the search for the answer to a question to its file in the state folder."""
    options.make_state_dir()
    with write_atomically(_locate(question)) as draft:
        draft.write_text(json.dumps({"question": question, **asdict(search)}))


def find_search(question: Mapping[str, Any]) -> CapacitySearch | None:
    """Find the stored search for the answer to a question; None without any."""
    file = _locate(question)
    # Earlier versions numbered the searches of a question.
    path = max(file.parent.glob(f"{file.stem}*.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if path is None:
        return None
    try:
        stored = parse_json(path.read_text())
        search: CapacitySearch = validation.parse(
            CapacitySearch, {name: stored[name] for name in ("started_at", "tests")}
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"invalid load tests in {path}: {error}. Move the file away, and measure again.") from None
    return search


def _locate(question: Mapping[str, Any]) -> Path:
    digest = hashlib.blake2b(json.dumps(question, sort_keys=True).encode(), digest_size=16).hexdigest()
    return options.get_state_dir() / options.LAYOUT.capacities / f"{digest}.json"
