"""Measures many networks in one sweep a set of options, on one engine."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from field.case import Case

from ngbkit.api import Sweep
from ngbkit.errors import NgbkitError
from ngbkit.workloads import cell
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Workload

#: A network that a row of OpenVINO is about; others are measured without, since each trial takes a moment.
WITH_OPENVINO = ("identity", "onnxruntime", "openvino")
REFUSED = "refused"

#: By compiler and batch size, a status and its reason.
Results = Mapping[tuple[str, int], tuple[str, str]]


def measure(cases: Sequence[Case], folder: Path) -> dict[str, Results]:
    """Measure the cases, and return the results of each by its name."""
    results: dict[str, Results] = {}
    groups: dict[tuple[object, ...], list[tuple[Case, Workload]]] = {}
    for case in cases:
        try:
            workload = _build_workload(case, folder / case.name)
            _build_sweep([case], [workload])
        except Exception as error:  # noqa: BLE001  another exception is a fault of this case alone
            trials = [(compiler, size) for compiler in case.compilers for size in case.batch_sizes]
            status = REFUSED if isinstance(error, NgbkitError) else type(error).__name__
            results[case.name] = dict.fromkeys(trials, (status, str(error)))
            continue
        key = (case.compilers, case.batch_sizes, case.name if case.options else "")
        groups.setdefault(key, []).append((case, workload))
    for pairs in groups.values():
        results |= _run([case for case, _ in pairs], [workload for _, workload in pairs])
    return results


def find_faults(case: Case, results: Results) -> list[str]:
    """List what differs from the right results of a case, one sentence a trial."""
    faults = []
    for (compiler, batch_size), (status, reason) in results.items():
        outcome = case.get_outcome(compiler, batch_size)
        if not re.fullmatch(outcome.status, status) or not re.search(outcome.reason, reason):
            faults.append(
                f"{compiler} batch {batch_size}: got {status} {reason!r}; expected {outcome.status} {outcome.reason!r}"
            )
    return faults


def _build_workload(case: Case, folder: Path) -> Workload:
    folder.mkdir(parents=True)
    built = case.build(folder)
    if isinstance(built, Workload):
        return built.with_factors(case.factors) if case.factors else built
    if built.suffix == ".onnx":
        workload = onnx_source.file(built, name=case.name)
    else:
        (workload,) = cell.from_source(built.read_text(), name=case.name, filename=str(built))
    return workload.with_factors(case.factors)


def _build_sweep(cases: Sequence[Case], workloads: Iterable[Workload]) -> Sweep:
    case = cases[0]
    return Sweep(list(workloads), case.compilers, case.batch_sizes, repeats=1, threads=1, **case.options)


def _run(cases: Sequence[Case], workloads: Sequence[Workload]) -> dict[str, Results]:
    run = _build_sweep(cases, workloads).start()
    run.wait()
    trials = {trial.id: trial for trial in run.sweep.trials()}
    results: dict[str, dict[tuple[str, int], tuple[str, str]]] = {case.name: {} for case in cases}
    for record in run.records():
        trial = trials.get(record.trial_id)
        if trial is not None:
            results[trial.workload][trial.compiler, trial.batch_size] = (record.status, record.error)
    return dict(results)
