"""The graph that a runtime executes: a network after the runtime's own optimisation, as far as the runtime tells it.

Two exports that a runtime turns into the same program take the same time. A model that sees what ran need not learn
which operators a runtime fuses, folds and drops. ONNX Runtime writes its graph; OpenVINO tells which nodes of the file
each of its nodes replaces. Memory layouts and kernels are those of this machine's processor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ngbkit import registry
from ngbkit.compilers.base import Compiler
from ngbkit.errors import MissingDependencyError, NgbkitError, UnsupportedError, UsageError
from ngbkit.predict import onnx_graphs
from ngbkit.predict.graphs import Graph
from ngbkit.predict.lowering import execution, onnxruntime_probe, openvino_probe
from ngbkit.predict.lowering.execution import Execution, Probe
from ngbkit.sweep.column import Column
from ngbkit.workloads.onnx_binding import specialise

EXPORT = ""
"""The lowering of a network that no runtime has optimised."""

LAYOUT = 2
"""The version of what a lowered graph tells: a change invalidates those that are cached."""


def lower(path: Path, runtime: str, batch_size: int = 1) -> Graph:
    """The graph that a runtime executes for an ONNX file.

    Parameters
    ----------
    path
        The file, with its weights: a runtime folds constants.
    runtime
        The label of a compiler, one of `RUNTIMES`, with its options: those that change its graph count.
    batch_size
        The size of an open first dimension.

    Raises
    ------
    UsageError
        The runtime does not tell its graph.
    UnsupportedError
        The runtime cannot load the network.
    MissingDependencyError
        The runtime is not installed.
    """

    def read(probe: Probe) -> Graph:
        probe.run_profiled()  # ONNX Runtime tells the shapes of its own operators when they run
        return probe.read()[0]

    return replace(_probe(path, runtime, batch_size, None, read), lowering=runtime)


def execute(path: Path, runtime: str, batch_size: int = 1, *, calls: int = 20, threads: int | None = None) -> Execution:
    """As `lower`, with the median time of each operator on this machine."""
    result = _probe(path, runtime, batch_size, threads, lambda probe: execution.measure(probe, calls))
    return replace(result, graph=replace(result.graph, lowering=runtime))


Result = TypeVar("Result")


def _probe(path: Path, runtime: str, batch_size: int, threads: int | None, use: Callable[[Probe], Result]) -> Result:
    """Open a network in a runtime, and return what `use` makes of it."""
    compiler, options = _parse(runtime)
    with TemporaryDirectory(prefix="ngbkit-lowering-") as folder:
        static = specialise(path, batch_size, Path(folder, "static.onnx"), fold=False)
        try:
            return use(_PROBES[compiler.name](static, Path(folder), options, threads or execution.count_threads()))
        except NgbkitError:
            raise
        except Exception as error:  # runtimes raise anything
            raise UnsupportedError(f"{runtime} cannot run {path.name}: {onnx_graphs.describe_cause(error)}") from error


def find_lowering(compilers: Sequence[str]) -> str:
    """Return the lowering of labels of these compilers; UsageError if several have graphs of their own, or one none."""
    names = sorted(set(compilers))
    if len(names) != 1:
        raise UsageError(
            f"lowered graphs are of one runtime, and these labels are of {', '.join(names) or 'none'}: each executes "
            "another graph. Select one, such as ds.sel(compiler=['onnxruntime']), or fit a predictor for each."
        )
    _parse(names[0])
    return names[0]


def describe_version(runtime: str) -> str:
    """Return the version of a runtime's package, on which its graph depends."""
    return registry.find_version(_parse(runtime)[0].packages[0]) or ""


def _parse(runtime: str) -> tuple[Compiler, Mapping[str, Any]]:
    column = Column.read(runtime)
    if column.name not in _PROBES:
        raise UsageError(
            f"{runtime or 'a network as exported'} tells no graph; expected one of {', '.join(_PROBES)}. Use the "
            "graph as it was exported, without lowered."
        )
    compiler = column.load_compiler()
    if compiler.find_package_problem():
        raise MissingDependencyError(compiler.packages[0], column.name)
    return compiler, compiler.settle(column.settings)


_PROBES: Mapping[str, Callable[[Path, Path, Mapping[str, Any], int], Probe]] = {
    "onnxruntime": onnxruntime_probe.open_probe,
    "openvino": openvino_probe.open_probe,
}

RUNTIMES = tuple(_PROBES)
"""The runtimes that tell their graph."""
