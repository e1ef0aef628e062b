"""The graph that a runtime executes: a network after the runtime's own optimisation, as far as the runtime tells it.

Two exports that a runtime turns into the same program take the same time. A model that sees what ran need not learn
which operators a runtime fuses, folds and drops. ONNX Runtime writes its graph; OpenVINO tells which nodes of the file
each of its nodes replaces. Memory layouts, which depend on the processor, are left out of both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngbkit import registry
from ngbkit.compilers import onnx_graph
from ngbkit.compilers.base import Compiler
from ngbkit.errors import MissingDependencyError, NgbkitError, UnsupportedError, UsageError
from ngbkit.predictor import graphs
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.lowering import kernels
from ngbkit.workloads import labels
from ngbkit.workloads.export import specialise

EXPORT = ""
"""The lowering of a network that no runtime has optimised."""


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
    name, options = _parse(runtime)
    with TemporaryDirectory(prefix="ngbkit-lowering-") as folder:
        static = specialise(path, batch_size, Path(folder, "static.onnx"), fold=False)
        try:
            graph = _LOWERINGS[name](static, options, Path(folder))
        except NgbkitError:
            raise
        except Exception as error:  # runtimes raise anything
            reason = str(error).strip().partition("\n")[0]
            raise UnsupportedError(f"{runtime} cannot load {path.name}: {type(error).__name__}: {reason}") from error
    return replace(graph, lowering=runtime)


def find_lowering(compilers: Sequence[str]) -> str:
    """Return the lowering of labels that were measured with these compilers.

    UsageError: there are several, each with a graph of its own, or the only one does not tell its graph.
    """
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
    compiler = _load(_parse(runtime)[0])
    return registry.find_version(compiler.packages[0]) or ""


def _parse(runtime: str) -> tuple[str, Mapping[str, Any]]:
    name, options = labels.split(runtime)
    if name not in _LOWERINGS:
        raise UsageError(
            f"{runtime or 'a network as exported'} tells no graph; expected one of {', '.join(_LOWERINGS)}. Use the "
            "graph as it was exported, without lowered."
        )
    compiler = _load(name)
    if missing := compiler.missing():
        raise MissingDependencyError(missing[0], name)
    return name, compiler.settle(options)


def _load(name: str) -> Compiler:
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    return compiler


def _lower_onnxruntime(path: Path, options: Mapping[str, Any], folder: Path) -> Graph:
    from ngbkit.compilers.onnxruntime import write_optimised

    target = folder / "optimised.onnx"
    write_optimised(path, target, str(options["optimization"]))
    return graphs.read(target)


def _lower_openvino(path: Path, options: Mapping[str, Any], folder: Path) -> Graph:
    from ngbkit.compilers.openvino import list_executed

    source = graphs.write_named(path, folder / "named.onnx")
    names = {output: node.name for node in onnx_graph.read_operators(source) for output in node.output}
    return kernels.build_graph(graphs.read(source), names, list_executed(source, str(options["precision"])))


_LOWERINGS: Mapping[str, Callable[[Path, Mapping[str, Any], Path], Graph]] = {
    "onnxruntime": _lower_onnxruntime,
    "openvino": _lower_openvino,
}

RUNTIMES = tuple(_LOWERINGS)
"""The runtimes that tell their graph."""
