"""Rewritten networks beside the one that they were made of: as files, and measured in turns with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from ngbkit import metrics, options, registry
from ngbkit.compilers.base import GRAPH
from ngbkit.dataset.tabulate import NO_ROUND
from ngbkit.errors import UsageError
from ngbkit.files import hash_file
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.trials import Choice
from ngbkit.workloads import onnx
from ngbkit.workloads.base import Source, Workload
from ngbkit.workloads.export import export_for

LEVEL = 0.95
"""Of the intervals of what was measured."""

_REPEATS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a variant takes on a runtime, beside the original.

    Parameters
    ----------
    speedup, low, high
        Over the original, paired round by round, with its interval; NaN where it gave no result.
    problem
        Why it gave none.
    """

    speedup: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    problem: str = ""


def single(network: Any, compilers: Iterable[str]) -> Workload:
    """The one network that this names, for runtimes that read ONNX.

    Raises
    ------
    UsageError
        It is none or several, it varies a factor, or a runtime reads no ONNX.
    """
    asked = list(compilers)
    for compiler in asked:
        choice = Choice.parse(compiler)
        if "onnx" not in registry.load(registry.COMPILERS, choice.compiler).forms:
            readers = [name for name, one in registry.load_all(registry.COMPILERS).items() if "onnx" in one.forms]
            raise UsageError(
                f"{choice.compiler} reads no ONNX, which is what is rewritten; those that do: {', '.join(readers)}."
            )
    workloads = Sweep(network, compilers=asked).workloads
    if len(workloads) != 1 or workloads[0].factors:
        names = ", ".join(one.name for one in workloads)
        raise UsageError(f"one network at a time is rewritten, without factors; {names} came.")
    return workloads[0]


def write(workload: Workload, batch_size: int, folder: Path) -> Path:
    """A network as one ONNX file, static in every dimension.

    Raises
    ------
    UnsupportedError
        It has no ONNX form.
    """
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    network = source.build(workload, {})
    return export_for(network, folder, [batch_size], options.get_options()["seed"])[batch_size]


def measure(
    name: str,
    start: Path,
    files: Sequence[Path],
    compilers: Sequence[str],
    *,
    batch_size: int = 1,
    device: str | None = None,
    how: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """The original and its variants on each runtime, as columns of one group: all take turns.

    Parameters
    ----------
    name
        Of the network.
    start, files
        The original and its variants, static at this batch size. Each is held against the original's own reference.
    compilers
        The runtimes.
    batch_size, device
        Of the sweep.
    how
        More of the sweep: ``{"repeats": 100}``.
    """
    workload = onnx.file(start, name=name)
    workload = replace(workload, artifacts={**workload.artifacts, **{hash_file(file): file for file in files}})
    columns = [one for compiler in compilers for one in (compiler, *(label(compiler, file) for file in files))]
    asked = {"repeats": _REPEATS, **(how or {})}
    found = Sweep(workload, compilers=columns, batch_sizes=[batch_size], devices=device, **asked).run()
    assert isinstance(found, xr.Dataset)
    return found


def label(compiler: str, file: Path) -> str:
    """What results call a variant on a runtime."""
    choice = Choice.parse(compiler)
    return replace(choice, options={**choice.options, GRAPH: hash_file(file)}).label


def outcomes(data: xr.Dataset, compiler: str, files: Sequence[Path]) -> list[Outcome]:
    """What each variant takes on a runtime, beside the original, of what `measure` gave."""
    found = metrics.speedup(data, baseline=Choice.parse(compiler).label, ci=LEVEL)
    rows = []
    for file in files:
        at = {"compiler": label(compiler, file)}
        numbers = {name: float(found[of].sel(at).item()) for name, of in _NAMES.items()}
        rows.append(Outcome(**numbers, problem=str(data["error"].sel(at).item())))
    return rows


def halves(data: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """What `measure` gave, by its even rounds and by its odd ones: to choose by the one, and to judge by the other."""
    even = data["round"] % 2 == 0
    return _only(data, even), _only(data, ~even)


def _only(data: xr.Dataset, rounds: xr.DataArray) -> xr.Dataset:
    """The dataset with the samples of these rounds; as many rounds of the others are none, as where none was taken."""
    there = rounds & (data["round"] >= 0)
    found = data.assign(
        latency=data["latency"].where(there).assign_attrs(data["latency"].attrs),
        round=data["round"].where(there, NO_ROUND).assign_attrs(data["round"].attrs),
    )
    return found.drop_vars("throughput", errors="ignore")


_NAMES = {"speedup": "speedup", "low": "ci_low", "high": "ci_high"}
