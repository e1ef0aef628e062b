"""Checks capacities by a real load on the device: one network and compiler at a time, bounded in time."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import attrs

from ngbkit import options
from ngbkit.device.serving.load import CALIBRATION, FACTORS, MOST_REQUESTS, SHORT, Load, ServedTrial
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.errors import DeviceError, MetricError, NgbkitError
from ngbkit.files import Store
from ngbkit.metrics.serving.capacity import Capacities, capacity, with_tests
from ngbkit.metrics.serving.load_test import LoadTest, assess, build_trial, simulate_calibrated
from ngbkit.sweep import validation
from ngbkit.sweep.grid import Grid

if TYPE_CHECKING:
    from ngbkit.cluster.engine import Engine, Plan
    from ngbkit.dataset.storage import Data

SECONDS = 20.0
"""How long all trials of a network and compiler load the device, without further ones."""

# How many trials of a check last as long as all trials.
_TRIALS = len(FACTORS) + SHORT * (len(FACTORS) + len(CALIBRATION))
# What is added to the seed of the trials that calibrate: their arrivals are no others' arrivals.
_CALIBRATION_SEED = 1 << 20
_POLL_S, _CHECK_S, _STOP_S = 0.1, 1.0, 15.0
Report = Callable[[str], object]


def serve(
    data: Data,
    deadline: str | float,
    *,
    check: bool = False,
    seconds: float = SECONDS,
    engines: Mapping[str, Engine] | None = None,
    report: Report = str,
    **keywords: Any,
) -> Capacities:
    """The capacity of each network with each compiler; with `check`, simulated and by real load on its device.

    A check loads the batch sizes into one process on the device, as a deployment does, and another process sends
    requests at Poisson times, whether or not earlier ones are answered. A latency counts from the scheduled time of its
    request. Short trials at 0.5 and 0.9 of the simulated capacity calibrate the simulation: they show how long calls
    take within a server, after a pause and in a row, and the capacity is simulated once more. Five others at 0.8 to 1.2
    of that one, with short ones between them, and up to three more where all or none keep the deadline, are compared
    with the calibrated simulation of the very same arrivals: the measured capacity is the calibrated one over the
    factor by which its rate must change to show the latencies that were measured. No trial both calibrates and checks.

    Parameters
    ----------
    data, deadline
        As for `ngbkit.metrics.serving.capacity.capacity`.
    check
        Measure it too. The device must have the networks: they are prepared as for a run.
    seconds
        How long the trials of a network and compiler take together.
    engines
        Running engines by device label, to use instead of starting one: see `ngbkit.attach`.
    report
        Receives lines of progress.
    **keywords
        As for `ngbkit.metrics.serving.capacity.capacity`.

    Raises
    ------
    UsageError, UnknownNameError, MetricError
        As for `ngbkit.metrics.serving.capacity.capacity`; or the dataset does not say what it measured.
    DeviceError
        The device cannot be reached, or a network does not load.

    Examples
    --------
    >>> import ngbkit
    >>> ngbkit.capacity(ds, "50ms", check=True, compiler="openvino")  # doctest: +SKIP
    """
    seconds = validation.seconds("seconds", seconds)
    capacities = capacity(data, deadline, **keywords)
    if not check:
        return capacities
    attached = dict(engines or {})
    tests = [
        _test(data, row, capacities, seconds / _TRIALS, attached, report)
        for row in capacities.list_rows()
        if row["capacity"] > 0
    ]
    return with_tests(capacities, tests)


def _test(
    data: Data,
    row: Mapping[str, Any],
    capacities: Capacities,
    seconds: float,
    engines: dict[str, Engine],
    report: Report,
) -> LoadTest:
    service = capacities.service
    labels, server = capacities.build_server(data, row)
    name = f"{labels['workload']} {labels['compiler']}"
    sweep = _narrow(_read_sweep(data), labels, server.sizes)
    load = Load(
        rate=row["capacity"],
        deadline=service.deadline,
        quantile=service.quantile,
        seconds=seconds,
        max_delay=service.max_delay,
        seed=service.seed + _CALIBRATION_SEED,
        factors=(),
    )
    report(f"{name}: {len(CALIBRATION)} trials of {SHORT * seconds:.3g} s to calibrate the simulation")
    engine = engines.get(str(labels["device"]))
    trials = _serve_on_device(sweep, load, engine, report)
    expected = simulate_calibrated(server, row["capacity"], trials, service.deadline, service.quantile, service.seed)
    rate = min(expected.rate, MOST_REQUESTS / (max(FACTORS) * seconds))
    load = replace(load, rate=rate, seed=service.seed, factors=FACTORS)
    report(f"{name}: {len(FACTORS)} trials of {seconds:.3g} s around {rate:.3g} requests/s")
    trials = _serve_on_device(sweep, load, engine, report)
    # In the same minutes as the check, and in the same process.
    calibrating = [trial for trial in trials if trial.calibrates]
    expected = simulate_calibrated(
        server, row["capacity"], calibrating, service.deadline, service.quantile, service.seed
    )
    measured = [build_trial(trial, service.deadline, service.quantile) for trial in trials if not trial.calibrates]
    return assess(labels, expected, service.deadline, service.quantile, measured, service.seed)


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
            f"a check loads the networks of the sweep again, and that of this dataset cannot be read: {error}. Use the "
            "dataset of one run."
        ) from None


def _narrow(sweep: Grid, labels: Mapping[str, Any], batch_sizes: Collection[int]) -> Grid:
    """The part of a sweep with one network, factors and compiler, on one device."""
    workload = next((workload for workload in sweep.workloads if workload.name == labels["workload"]), None)
    if workload is None:
        raise MetricError(
            f"the sweep of this dataset has no network {labels['workload']!r}. Use the dataset of one run."
        )
    missing = [digest for digest, path in workload.artifacts.items() if not path.exists()]
    if missing:
        raise MetricError(
            f"a check needs the files of {workload.name}, and this machine lacks {', '.join(missing)[:80]}. Check on "
            "the machine that started the run, or measure again here."
        )
    factors = {name: (labels[name],) for name in workload.factors if name in labels}
    return attrs.evolve(
        sweep,
        workloads=(replace(workload, factors={**workload.factors, **factors}),),
        factors={},
        compilers=(str(labels["compiler"]),),
        devices=(str(labels["device"]),),
        batch_sizes=tuple(batch_sizes),
    )


def _serve_on_device(sweep: Grid, load: Load, attached: Engine | None, report: Report) -> tuple[ServedTrial, ...]:
    from ngbkit.cluster import devices, engines, replies
    from ngbkit.cluster.launchers.base import Starter

    (label,) = sweep.devices
    engine = attached or engines.acquire(label, Starter(say=report, stopped=bool))
    engine.hello()
    assert engine.state_dir is not None
    engine.push({digest: path for workload in sweep.workloads for digest, path in workload.artifacts.items()})
    device = devices.load().get(label)
    spec = Spec(
        run_id=f"capacity-{secrets.token_hex(2)}",
        device=label,
        state_dir=engine.state_dir,
        sweep=sweep,
        threads=device.threads if device else None,
        accelerator=device.accelerator if device else "cpu",
        world=engine.adapt(World.capture(sweep.workloads)),
    )
    plan = engine.serve(spec, load)
    try:
        _follow(plan, {trial.id for trial in sweep.trials()}, report)
    except BaseException:
        _stop(plan)
        raise
    reply = plan.fetch_reply()
    state = replies.extract(label, reply, {"state": str})["state"]
    if state == "stopped":
        raise KeyboardInterrupt("stopped.")
    if state != "finished":
        error = replies.extract(label, reply, {"error": str})["error"]
        raise DeviceError(f"device {label}: {replies.sanitize(error)}")
    return replies.parse_load_test(label, reply)


def _follow(plan: Plan, trial_ids: Collection[str], report: Report) -> None:
    """Report the stages of a load test until it is done."""
    from ngbkit.cluster import replies
    from ngbkit.cluster.engine import EngineLostError

    label, checked_at = plan.engine.device, time.monotonic()
    while not plan.is_done:
        text = plan.next_event(_POLL_S)
        event = None if text is None else replies.parse_event(label, text, trial_ids)
        if event is not None and event["kind"] == "stage":
            report(event["text"])
        if time.monotonic() - checked_at > _CHECK_S:
            checked_at = time.monotonic()
            if not plan.engine.is_alive() and not plan.is_done:
                raise EngineLostError(f"the engine of device {label} was lost. Check again.")


def _stop(plan: Plan) -> None:
    """End a load test; end the engine itself if it does not stop."""
    deadline = time.monotonic() + _STOP_S
    while not plan.is_done and plan.engine.is_alive():
        if time.monotonic() > deadline:
            plan.engine.close()
            return
        plan.interrupt()
        plan.next_event(_POLL_S)
