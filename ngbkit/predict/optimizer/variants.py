"""Variants of a network, measured interleaved with the original."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import xarray as xr

from ngbkit import metrics, registry, runs
from ngbkit.compilers.base import GRAPH
from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UsageError
from ngbkit.files import hash_file
from ngbkit.predict.lowering.execution import locate_values
from ngbkit.predict.network_graphs import export_network
from ngbkit.sweep.column import Column
from ngbkit.sweep.grid import Grid
from ngbkit.workloads import onnx, values
from ngbkit.workloads.base import FactorValue, Workload

_REPEATS = 60

Values = FactorValue | Iterable[FactorValue]
"""The value of a factor, alone or as the only one of several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measured speed-up of a variant on a runtime.

    Parameters
    ----------
    speedup, low, high
        The speed-up over the original, paired round by round, and its interval; NaN without a result.
    problem
        The reason for a missing result.
    """

    speedup: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    problem: str = ""


def parse_network(
    network: Any, compilers: Iterable[str], factors: Mapping[str, Values] | None = None, **feeding: Any
) -> Workload:
    """Parse one network, with one value of each of its factors, for runtimes that read ONNX.

    `feeding` are arguments of `Sweep` about inputs: ``inputs``, ``batch_axis``.
    """
    labels = list(compilers)
    for compiler in labels:
        column = Column.parse(compiler)
        if "onnx" not in column.load_compiler().forms:
            compilers_by_name = registry.load_all(registry.COMPILERS)
            readers = [name for name, loaded in compilers_by_name.items() if "onnx" in loaded.forms]
            raise UsageError(
                f"invalid compiler: got {column.compiler}, which does not read ONNX; expected one of "
                f"{', '.join(readers)}."
            )
    levels_by_factor = {
        name: [value] if isinstance(value, (int, float, str)) else list(value)
        for name, value in (factors or {}).items()
    }
    workloads = Grid(network, compilers=labels, factors=levels_by_factor, **feeding).workloads
    if len(workloads) != 1:
        names = ", ".join(workload.name for workload in workloads)
        raise UsageError(f"invalid network: got {names}; expected one network.")
    for name, levels in workloads[0].factors.items():
        if len(levels) != 1:
            raise UsageError(
                f"invalid factor {name}: got {', '.join(map(str, levels))}; expected one value, such as "
                f"{name}={levels[0]}: a rewritten network has static shapes. Optimise it once for each value."
            )
    return workloads[0]


def export(workload: Workload, batch_size: int, folder: Path) -> Path:
    """Export a network of `parse_network` as one ONNX file, static in every dimension."""
    return export_network(workload, batch_size, folder, {name: value for name, (value,) in workload.factors.items()})


def measure(
    name: str,
    start: Path,
    files: Sequence[Path],
    compilers: Sequence[str],
    *,
    batch_size: int = 1,
    device: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> xr.Dataset:
    """Measure the original and its variants on each runtime, interleaved as the columns of one group.

    `start` and `files` are static at this batch size; each variant is checked against the original's float64 reference.
    `settings` are further arguments of `Sweep`: ``{"repeats": 100}``.
    """
    workload = onnx.file(start, name=name)
    if locate_values(start).is_file():
        workload = values.attach(workload, values.store(values.read(locate_values(start))))
    workload = replace(workload, artifacts={**workload.artifacts, **{hash_file(file): file for file in files}})
    # Equal files are one column.
    columns = dict.fromkeys(
        column for compiler in compilers for column in (compiler, *(build_label(compiler, file) for file in files))
    )
    arguments = {"repeats": _REPEATS, **(settings or {})}
    grid = Grid(workload, compilers=list(columns), batch_sizes=[batch_size], devices=device, **arguments)
    data = runs.start(grid).result()
    assert isinstance(data, xr.Dataset)
    return data


def build_label(compiler: str, file: Path) -> str:
    """Build the label of a variant on a runtime in the dataset."""
    column = Column.parse(compiler)
    return replace(column, options={**column.options, GRAPH: hash_file(file)}).label


def compute_outcomes(data: xr.Dataset, compiler: str, files: Sequence[Path]) -> list[Outcome]:
    """Compute the outcome of each variant on a runtime from the dataset of `measure`."""
    speedups = metrics.speedup(data, baseline=Column.parse(compiler).label, ci=LEVEL)
    rows = []
    for file in files:
        selection = {"compiler": build_label(compiler, file)}
        numbers = {name: float(speedups[field].sel(selection).item()) for name, field in _NAMES.items()}
        rows.append(Outcome(**numbers, problem=str(data["error"].sel(selection).item())))
    return rows


_NAMES = {"speedup": "speedup", "low": "ci_low", "high": "ci_high"}
