"""The operations of a child process: build or load one network, compile it, check it, and time it on request.

A child is forked for one trial (`load`, `warm`, then `turn` after `turn`, at the end `usage`, `check`, `profile` by
`profile` where the sweep asks for it, and `explain`), for one preparation (`prepare`), or for a load test (`load` and
`warm` for each batch size, then `serve`). It answers one message at a time, and blocks in between. It answers every
error with a description of the error and its stage.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import re
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import limits
from ngbkit.compilers import torch_runtime
from ngbkit.compilers.base import Program, Task
from ngbkit.compilers.profiles.profile import PROFILED
from ngbkit.device import contents, equivalence, evaluation, overflow, preparation, quantised_graphs, reference
from ngbkit.device.isolation import profiling
from ngbkit.device.isolation.channel import Channel, ChannelClosedError, Message
from ngbkit.device.isolation.imported_release import OtherReleaseError, check_release
from ngbkit.device.isolation.profiling import ProfiledTurns
from ngbkit.device.isolation.settings import observe_memory
from ngbkit.device.isolation.tasks import build_task
from ngbkit.device.serving import loadgen
from ngbkit.device.timing import timed_checks
from ngbkit.device.timing.timed_checks import TimedChecks
from ngbkit.device.timing.warming import warm_up
from ngbkit.errors import UnsupportedError, WorkloadError
from ngbkit.files import describe_disk_fault
from ngbkit.hardware import resources
from ngbkit.hardware.accelerators import events
from ngbkit.hardware.accelerators.events import Method
from ngbkit.requirements import describe_import
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import FailureStatus, Stage
from ngbkit.workloads.precision import PRECISION

# The batches of samples in which an overflow is looked for.
_BATCHES = 8


class StageError(Exception):
    """Carries the stage in which its cause was raised."""

    def __init__(self, stage: Stage, refusals: Sequence[str] = (), facts: dict[str, Any] | None = None) -> None:
        super().__init__(stage)
        self.stage, self.refusals, self.facts = stage, refusals, facts or {}


class NotEquivalentError(Exception):
    """The compiled network computes a different function."""


@dataclass(slots=True)
class Loaded:
    """The program of this child, the last one that it loaded, and the programs of all batch sizes."""

    # Sends a progress message.
    report: Callable[[Message], None]
    program: Program | None = None
    programs: dict[int, Program] = field(default_factory=dict)
    method: Method = field(default_factory=Method)
    # The context of the program's calls, from the first one to the child's end.
    within: ExitStack = field(default_factory=ExitStack)
    profiled: ProfiledTurns | None = None
    timed: TimedChecks | None = None
    # Before anything was held for checks.
    peak_memory_bytes: int = 0

    @property
    def checks(self) -> TimedChecks:
        """The inputs of the program's calls, and the checks of its timed ones."""
        if self.timed is None:
            raise RuntimeError("nothing is loaded in this child")
        return self.timed

    @property
    def run(self) -> Callable[[], Any]:
        if self.program is None:
            raise RuntimeError("nothing is loaded in this child")
        return self.program.run

    @property
    def overlap(self) -> int:
        return self.program.contract.overlap if self.program else 1


def serve(channel: Channel) -> None:
    """Answer messages until the channel closes."""
    loaded = Loaded(report=channel.send)
    while True:
        try:
            message = channel.receive()
        except ChannelClosedError:
            return
        try:
            reply = _OPERATIONS[message["op"]](loaded, message)
        except Exception as error:  # noqa: BLE001  a network or a compiler may raise anything, which is then the answer
            reply = {"failure": describe_failure(error)}
        channel.send(reply)


def describe_failure(error: BaseException) -> Message:
    """Describe an error in the fields of a `Failure`, and the fault of a disk that caused it."""
    stage: Stage = "measure"
    refusals: Sequence[str] = ()
    facts: dict[str, Any] = {}
    if isinstance(error, StageError) and error.__cause__ is not None:
        stage, refusals, facts, error = error.stage, error.refusals, error.facts, error.__cause__
    if isinstance(error, OtherReleaseError):
        stage = "install"
    line = format_error(error)
    detail = error.traceback if isinstance(error, WorkloadError) else ""
    detail = detail or "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {
        "status": _classify(error, line, refusals),
        "stage": stage,
        "error": ": ".join(filter(None, [describe_import(error), line, limits.describe(line)])),
        "detail": detail[-20000:],
        "disk": describe_disk_fault(error),
        "facts": facts,
    }


def format_error(error: BaseException) -> str:
    """Format type and message of an error, in one line of at most 500 characters."""
    text = " ".join(str(error).split())
    line = (
        text
        if isinstance(error, (UnsupportedError, WorkloadError, NotEquivalentError))
        else f"{type(error).__name__}: {text}"
    )
    return line if len(line) <= 500 else line[:499] + "…"


def _classify(error: BaseException, line: str, refusals: Sequence[str]) -> FailureStatus:
    if isinstance(error, NotEquivalentError):
        return "not-equivalent"
    if isinstance(error, UnsupportedError):
        return "unsupported"
    if limits.OUT_OF_MEMORY.search(line):
        return "out-of-memory"
    if any(re.search(refusal, line) for refusal in refusals):
        return "unsupported"
    return "failed"


def _load(loaded: Loaded, message: Message) -> Message:
    start = time.perf_counter()
    try:
        column = Column.read(message["compiler"])
        compiler = column.load_compiler()
        memory = observe_memory(message["memory"])
        task = build_task(message, compiler, column, loaded.report)
        for module in compiler.forms[task.form]:
            # The server has imported it, unless that calls CUDA. It is no part of a compile.
            with contextlib.suppress(Exception):  # the compiler's own import of it raises that again
                importlib.import_module(module)
        check_release(column, compiler)
    except Exception as error:
        raise StageError("build") from error
    built_s = time.perf_counter() - start
    # A compiler starts Python to test instructions and to tune, where a file of the working folder must hide no module.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        start = time.perf_counter()
        loaded.program = compiler.compile(task)
        compile_time_s = time.perf_counter() - start
        loaded.within.enter_context(loaded.program.within())
        start = time.perf_counter()
        outputs = loaded.program.run()
        first_call_time_s = (time.perf_counter() - start) / loaded.overlap
        fetched = loaded.program.fetch(outputs)
        release = check_release(column, compiler)
        if task.accelerator == "cuda":
            loaded.method = events.choose_method(
                loaded.program.enqueue,
                loaded.program.stream,
                gpu_timer=message["gpu_timer"],
                flush_l2=message["flush_l2"],
            )
    except Exception as error:
        raise StageError("compile", compiler.refusals) from error
    precision = column.precision or str(task.options.get(PRECISION, "f32"))
    verdict = _judge(fetched, message, task, precision)
    cost = _measure_cost(loaded.program, message, task)
    verdict = evaluation.judge(verdict, cost, precision, message["accept"])
    check = verdict.check
    facts = {**loaded.program.facts, **message["facts"], **cost, "build_time_s": built_s, **release}
    if check is not None and check.problem:
        facts |= {"rmse": check.rmse, "max_abs_error": check.max_abs_error, "compile_time_s": compile_time_s}
        place = _locate_overflow(check.problem, precision, message, task)
        raise StageError("check", facts=_replace_infinity(facts)) from NotEquivalentError(check.problem + place)
    loaded.timed = timed_checks.build(loaded.program, task, message, precision, verdict)
    # All objects so far stay alive: the collector need not visit them again between timed calls.
    gc.collect()
    gc.freeze()
    loaded.programs[task.batch_size] = loaded.program
    method = loaded.method
    contract = replace(
        loaded.program.contract,
        clock=method.clock,
        flushed=method.flushed,
        inputs=loaded.checks.fresh.manner,
        memory=memory,
    )
    if contract.runtime.lower().startswith("torch"):
        contract = torch_runtime.observe_state(contract)
    if quantised := message["quantised"]:  # of which the runtime reports the numbers between its operators
        notes = "; ".join(filter(None, [contract.notes, quantised["notes"]]))
        contract = replace(contract, precision=quantised["computes"], notes=notes)
    return {
        "compile_time_s": compile_time_s,
        "reused_s": loaded.program.reused_s,
        "first_call_time_s": first_call_time_s,
        "contract": asdict(contract),
        "rmse": check.rmse if check else None,
        "max_abs_error": check.max_abs_error if check else None,
        "unchecked": verdict.unchecked,
        "facts": facts,
    }


def _judge(outputs: list[np.ndarray], message: Message, task: Task, requested: str) -> reference.Verdict:
    """Judge the outputs of a trial by the reference in a file."""
    path = message["reference"]
    if path is None:
        return reference.Verdict(unchecked="nothing here could run the uncompiled network for a reference")
    tolerated = equivalence.choose_tolerance(requested)
    return reference.judge(reference.read_reference(path), outputs, task.batch_size, tolerated)


def _measure_cost(program: Program, message: Message, task: Task) -> dict[str, Any]:
    """Measure the outputs for the user's samples against those of the uncompiled network; empty without samples."""
    if message["evaluation"] is None:
        return {}
    examples = preparation.read_arrays(message["examples"])
    return evaluation.measure(program, evaluation.read(Path(message["evaluation"])), task, message["seed"], examples)


def _locate_overflow(problem: str, precision: str, message: Message, task: Task) -> str:
    """Locate the operator that overflows in a lower precision, for the inputs of the trial or of some samples."""
    if precision not in evaluation.LOWER or not ("not finite" in problem or "overflows" in problem):
        return ""
    batches = [task.arrays]
    if message["evaluation"] is not None:
        judging = evaluation.read(Path(message["evaluation"]))
        samples = judging.iterate_batches(task, message["seed"], preparation.read_arrays(message["examples"]))
        batches += [arrays for _, arrays in islice(samples, _BATCHES)]
    return overflow.locate(task, batches)


def _warm(loaded: Loaded, message: Message) -> Message:
    del message
    warm = asdict(warm_up(loaded.run, vary=loaded.checks.fresh.vary))
    loaded.peak_memory_bytes = resources.read_peak_memory_bytes()
    return {**warm, "peak_memory_bytes": loaded.peak_memory_bytes}


def _time_turn(loaded: Loaded, message: Message) -> Message:
    checks = loaded.checks
    cpu_start, start = time.process_time(), time.perf_counter()
    durations = checks.time_turn(loaded.run, loaded.method, message)
    spent_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    _reject(checks.conclude(durations, message["block"]))
    return {
        "latency_s": [duration * 1e-9 / loaded.overlap for duration in durations],
        "spent_s": spent_s,
        "timed_s": sum(durations) * message["block"] * 1e-9,
        "cpu_s": cpu_s,
        "events": checks.events,
        "resident_bytes": resources.read_resident_memory_bytes(),
    }


def _reject(problem: str) -> None:
    """End a trial of which a timed call was wrong."""
    if problem:
        raise StageError("check") from NotEquivalentError(problem)


def _serve(loaded: Loaded, message: Message) -> Message:
    """Serve the requests of one test of LoadGen with the programs of all batch sizes."""
    load = message["load"]
    calls = {size: program.run for size, program in loaded.programs.items()}
    return loadgen.run_test(calls, dict(load["call_s"]), load, Path(load["folder"]))


def _check_last(loaded: Loaded, message: Message) -> Message:
    """Check one more call, after the last round."""
    del message
    checks = loaded.checks
    checks.check_untimed()
    _reject(checks.conclude([], 1))
    return {"checked_calls": checks.checked, "unchecked": checks.find_doubt()}


def _read_usage(loaded: Loaded, message: Message) -> Message:
    """Read the peak memory, without what is held for checks."""
    del message
    check_bytes = loaded.timed.held_bytes if loaded.timed else 0
    return {"peak_memory_bytes": max(loaded.peak_memory_bytes, resources.read_peak_memory_bytes() - check_bytes)}


def _explain(loaded: Loaded, message: Message) -> Message:
    """Collect the compiler's facts about its work; an error in that must not cost the measurement."""
    del message
    try:
        return {"facts": _replace_infinity(loaded.program.explain() if loaded.program else {})}
    except Exception as error:  # noqa: BLE001  it inspects internals of a runtime, which differ by version
        return {"facts": {"explain_error": format_error(error)}}


def _profile(loaded: Loaded, message: Message) -> Message:
    """Call the program with and without its profiler; an error in that must not cost the measurement."""
    program = loaded.program
    try:
        if program is None or program.profile is None:
            return {"profile": profiling.build_refusal(PROFILED)}
        if loaded.profiled is None:
            loaded.profiled = ProfiledTurns(program, program.profile())
        if message["calls"]:
            loaded.profiled.time_turn(message["calls"], message["settle"])
            return {"profile": {}}
        return {"profile": loaded.profiled.to_json()}
    except Exception as error:  # noqa: BLE001  it inspects internals of a runtime, which differ by version
        return {"profile": profiling.build_refusal(format_error(error))}


def _quantise(loaded: Loaded, message: Message) -> Message:
    del loaded
    try:
        return quantised_graphs.quantise(message)
    except Exception as error:
        raise StageError("export") from error


def _prepare(loaded: Loaded, message: Message) -> Message:
    del loaded
    try:
        return preparation.prepare(message, contents.build_observed)
    except Exception as error:
        raise StageError("export" if message["exports"] and describe_import(error) else "build") from error


def _replace_infinity(facts: dict[str, Any]) -> dict[str, Any]:
    """Replace infinity by text, since JSON has none."""
    return {key: value if json.dumps(value) != "Infinity" else "inf" for key, value in facts.items()}


_OPERATIONS: dict[str, Callable[[Loaded, Message], Message]] = {
    "load": _load,
    "warm": _warm,
    "turn": _time_turn,
    "serve": _serve,
    "check": _check_last,
    "usage": _read_usage,
    "explain": _explain,
    "profile": _profile,
    "prepare": _prepare,
    "quantise": _quantise,
}
