"""Capacity: the highest rate of requests that a network serves within a deadline, measured by MLPerf's LoadGen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ngbkit.dataset.storage import Data
from ngbkit.device.serving.load import LoadTest
from ngbkit.metrics.serving import searches
from ngbkit.metrics.serving.capacities import Capacities, find_capacities
from ngbkit.metrics.serving.searches import CapacitySearch
from ngbkit.metrics.serving.service import (
    SECONDS,
    ServedColumn,
    Service,
    build_question,
    build_sweep,
    check_files,
    list_columns,
    parse_service,
)

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine

Report = Callable[[str], object]


def capacity(
    data: Data,
    deadline: str | float,
    *,
    quantile: float = 0.99,
    max_delay: str | float | None = None,
    batch_sizes: int | Collection[int] | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
    again: bool = False,
    engines: Mapping[str, Engine] | None = None,
    report: Report = str,
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
    eight tests. Each test is kept when it ends; a search that Ctrl-C ended goes on at the next call, and one that has
    ended is shown without a measurement.

    Parameters
    ----------
    data
        A dataset of one run, or a tree. The device must be reachable, and have `ngbkit[loadgen]`.
    deadline
        A time such as ``"50ms"``, or seconds.
    quantile
        The share of requests that keeps it: 0.5, 0.9, 0.95, 0.97, 0.99 or 0.999, which LoadGen reports.
    max_delay
        How long the first request waits for a fuller batch on an idle server. Default: not at all.
    batch_sizes
        The batch sizes of the server. Default: the measured ones whose calls take no longer than the deadline.
    seconds
        The shortest duration of a test. A test also lasts 20 deadlines, and has the requests that a valid one needs:
        459 for p99, 44 for p90.
    seed
        Of the times of requests.
    again
        Measure again what is measured already, or what the device measured before it changed.
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
    >>> ds.ngb.capacity("50ms", quantile=0.9, compiler="openvino")  # doctest: +SKIP
    """
    service = parse_service(deadline, quantile, max_delay, batch_sizes, seconds, seed)
    columns = list_columns(data, service, select)
    for column in columns:
        if column.batch_sizes:
            engine = (engines or {}).get(str(column.labels["device"]))
            _search(data, column, service, engine, again=again, report=report)
    return find_capacities(data, service, columns)


def _search(
    data: Data, column: ServedColumn, service: Service, engine: Engine | None, *, again: bool, report: Report
) -> None:
    """Search for the capacity of a column, unless the search has ended before."""
    from ngbkit.cluster import engines, load_tests
    from ngbkit.cluster.launchers.base import Starter

    load, question = service.build_load(column.limit), build_question(data, column, service)
    latest = searches.find(question)
    if latest is not None and not again and load.choose_rate(latest.tests) is None:
        return
    sweep = build_sweep(data, column)
    check_files(sweep)
    engine = engine or engines.acquire(str(column.labels["device"]), Starter(report=report, stopped=bool))
    search: CapacitySearch = searches.resume(question, engine.hello(), again=again)

    def record(test: LoadTest) -> None:
        nonlocal search
        search = search.add(test)

    load_tests.serve(sweep, replace(load, tests=search.tests), engine, report, record)
