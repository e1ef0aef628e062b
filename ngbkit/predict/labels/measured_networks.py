"""Networks that somebody measured, as names, files, models or graphs: their graphs and texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngbkit.errors import MissingDependencyError, NgbkitError, UnsupportedError, UsageError
from ngbkit.predict import network_graphs
from ngbkit.predict.graphs import Graph
from ngbkit.predict.labels.rows import Runtime
from ngbkit.predict.lowering import EXPORT
from ngbkit.sweep.conversion import parse_workload
from ngbkit.user_text import format_value, parse_path
from ngbkit.workloads import onnx
from ngbkit.workloads.base import Factors, FactorValue, Workload
from ngbkit.workloads.paper import find_family

LEAST_S, MOST_S = 1e-12, 3.2e9
"""The shortest and the longest latency of a label, in seconds: a picosecond and a century."""

NETWORKS = "the path of an .onnx file, a name such as 'resnet18', an onnx.ModelProto, a Workload or a Graph"
_FILES = (".onnx", ".py")
# The largest batch size and size of a dimension that runtimes take.
_LARGEST = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeasurement:
    """The latencies of one network from elsewhere; relative paths start at `folder`, of which no code runs."""

    network: Any
    seconds: Mapping[Runtime, float]
    #: Standard errors of the logarithms of `seconds`.
    errors: Mapping[Runtime, float] = field(default_factory=dict)
    batch_size: int | None = None
    factors: Factors = field(default_factory=dict)
    name: str = ""
    family: str = ""
    parent: str = ""
    #: For errors: "network 3", or a line of a table.
    place: str = ""
    folder: Path | None = None
    #: Of the graph that is built: see `Graph.lowering`.
    lowering: str = EXPORT

    @property
    def description(self) -> tuple[Any, ...]:
        """All that determines its entry: equal for repeated measurements of a network."""
        network = self.network if isinstance(self.network, (str, Path)) else id(self.network)
        return (network, self.batch_size, *self.factors.items(), self.name, self.family, self.parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A network whose graph can be built: equal keys are the same network, described in the same way."""

    key: tuple[Any, ...]
    texts: Mapping[str, str]
    build: Callable[[], Graph]
    place: str

    def build_graph(self) -> Graph:
        """Build the graph; errors say which network it is."""
        try:
            return self.build()
        except MissingDependencyError:
            raise
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.place}: {error}") from error
        except NgbkitError as error:
            raise UsageError(f"{self.place}: {error}") from error


def parse_network(measurement: ImportedMeasurement, number: int, workloads: dict[str, Workload] | None = None) -> Entry:
    """Parse a network; `number` names one that has no name, equal for the same object.

    `workloads` caches files and names, so that each is read once. UsageError: it is no network, its file is missing, or
    dimensions other than the batch are open.
    """
    network = measurement.network
    try:
        if isinstance(network, Graph):
            return _parse_graph(network, measurement, number)
        if isinstance(network, Workload):
            return _parse_workload(network, network.name, measurement)
        if isinstance(network, (str, Path)):
            text, workloads = str(network), {} if workloads is None else workloads
            if text not in workloads:
                workloads[text] = _find_workload(text, measurement.folder)
            return _parse_workload(workloads[text], text, measurement)
        if hasattr(network, "SerializeToString") and hasattr(network, "graph"):
            return _parse_model(network, measurement, number)
    except MissingDependencyError:
        raise
    except NgbkitError as error:
        raise UsageError(f"{measurement.place}: {error}") from error
    raise UsageError(f"{measurement.place}: {describe_mistake(network)}")


def describe_mistake(network: Any) -> str:
    """Describe what is wrong with something that is no network."""
    if any(kind.__module__.startswith("torch.nn") for kind in type(network).__mro__):
        return (
            "got a torch module, whose input shapes are unknown. Pass "
            "ngbkit.from_module('name', module, torch.randn(1, 3, 224, 224)), or an ONNX file of it."
        )
    if isinstance(network, (tuple, list)):
        return (
            f"invalid network: got a {type(network).__name__} of {len(network)}; expected {NETWORKS}. For a list of "
            "pairs of a network and its seconds, leave out seconds=."
        )
    return f"invalid network: got a {type(network).__name__}; expected {NETWORKS}."


def _find_workload(text: str, folder: Path | None) -> Workload:
    path = parse_path(text)
    if path.suffix.lower() not in _FILES:
        return parse_workload(text)
    if folder is not None and path.suffix.lower() != ".onnx":
        raise UsageError(f"invalid network {text!r}: a table names .onnx files and networks, and runs no code.")
    path = path if folder is None else folder / path
    if not path.is_file():
        beside = "" if folder is None else " Paths are relative to the folder of the table."
        raise UsageError(f"there is no file {path}; expected {NETWORKS}.{beside}")
    return parse_workload(str(path))


def _parse_workload(workload: Workload, name: str, measurement: ImportedMeasurement) -> Entry:
    fixed_factors = {factor: values[0] for factor, values in workload.factors.items() if len(values) == 1}
    factors: dict[str, FactorValue] = dict(fixed_factors)
    factors |= {factor: value for factor, value in measurement.factors.items() if factor in workload.takes}
    missing = [factor for factor in workload.takes if factor not in factors and factor not in workload.optional]
    if missing:
        listed, first = ", ".join(missing), missing[0]
        raise UsageError(
            f"{name} is open in {listed}: its graph depends on that. Give a value by factors={{'{first}': …}}, by a "
            f"column {first} of the table, or export it with fixed dimensions."
        )
    fixed = workload.spec.get("batch_size") if workload.source == "onnx" else None
    size = measurement.batch_size or fixed or 1
    for dimension, value in {"batch size": size, **factors}.items():
        if isinstance(value, (int, float)) and value > _LARGEST:
            raise UsageError(
                f"invalid {dimension} of {name}: got {value:g}; expected at most {_LARGEST:,}. Correct it."
            )
    name = measurement.name or name
    title = " ".join([name, *(f"{factor}={format_value(value)}" for factor, value in factors.items()), f"batch {size}"])
    return Entry(
        key=(workload.id, tuple(sorted(factors.items())), size),
        texts=_describe(measurement, title, parent=name),
        build=lambda: network_graphs.graph(workload, size, factors, lowering=measurement.lowering),
        place=f"{measurement.place} ({name})",
    )


def _parse_model(model: Any, measurement: ImportedMeasurement, number: int) -> Entry:
    name = measurement.name or f"network {number + 1}"
    size = measurement.batch_size

    def build() -> Graph:
        with TemporaryDirectory(prefix="ngbkit-model-") as folder:
            path = Path(folder) / "model.onnx"
            try:
                path.write_bytes(model.SerializeToString())
            except ValueError as error:
                raise UsageError(
                    f"this model is no file of less than 2 GB ({error}). Save it and pass its path."
                ) from error
            return _parse_workload(onnx.file(path), name, measurement).build()

    texts = _describe(measurement, f"{name} batch {size or 1}", parent=name)
    return Entry(key=(id(model), size), texts=texts, build=build, place=f"{measurement.place} ({name})")


def _parse_graph(graph: Graph, measurement: ImportedMeasurement, number: int) -> Entry:
    if measurement.batch_size is not None or measurement.factors:
        raise UsageError("a Graph has its batch size and its dimensions: leave out batch_size and factors.")
    name = measurement.name or f"network {number + 1}"
    texts = _describe(measurement, name, parent=name)
    return Entry(key=(graph.digest,), texts=texts, build=lambda: graph, place=f"{measurement.place} ({name})")


def _describe(measurement: ImportedMeasurement, title: str, *, parent: str) -> dict[str, str]:
    return {"names": title, "families": measurement.family, "parents": measurement.parent or parent, "rules": ""}


def find_families(names: Iterable[str]) -> dict[str, str]:
    """Find the family of each network: the leading letters of its name, or else the folder of its file."""
    letters, folders = {}, {}
    for name in names:
        path = Path(name)
        stem = path.stem if path.suffix.lower() in _FILES else name
        letters[name] = find_family(stem) if stem[:1].isalpha() else ""
        folders[name] = path.parent.name if path.suffix.lower() in _FILES else ""
    by_letters, by_folder = (set(families.values()) for families in (letters, folders))
    if not 1 < len(by_letters - {""}) < len(letters) and 1 < len(by_folder) < len(folders):
        letters = folders
    return {name: letters[name] or folders[name] or "network" for name in letters}
