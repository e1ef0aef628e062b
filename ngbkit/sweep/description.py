"""The inputs of networks before anything is measured: the batch, the factors that need values, and what is fed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.sweep import conversion, feeding
from ngbkit.sweep.parsing import format_factors
from ngbkit.user_text import format_count
from ngbkit.workloads import dimensions
from ngbkit.workloads.base import BATCH, Factors, FactorValue, Source, TensorSpec, Workload
from ngbkit.workloads.dimensions import Dimension

if TYPE_CHECKING:
    import numpy as np

NO_BATCH = "no input has a batch: a sample is a call, throughput counts calls"
# Fewer values than this are shown themselves, if their input has no batch.
_MOST_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInputs:
    """The inputs of a network, a text on the values of each, the batch, and its factors."""

    network: str
    inputs: tuple[TensorSpec, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    # The only batch size, as in `Network`.
    batch_size: int | None = None
    batch_reason: str = ""
    factors: Mapping[str, tuple[FactorValue, ...]] = field(default_factory=dict)
    missing_factors: tuple[str, ...] = ()
    # The values of factors at which it was built; None if its description was enough.
    built_at: Factors | None = None
    # The reason why the inputs are unknown.
    unknown: str = ""

    def list_rows(self) -> list[dict[str, str]]:
        """List a row for each input, as people read it."""
        if self.unknown:
            return [{**dict.fromkeys(COLUMNS, ""), "network": self.network, "values": self.unknown}]
        return [
            {
                "network": self.network,
                "input": spec.name,
                "dtype": spec.dtype,
                "shape": spec.format_shape(),
                "batch": _describe_batch(spec) if has_batch(self.inputs) else "none",
                "values": self.values[spec.name],
            }
            for spec in self.inputs
        ]

    def list_notes(self) -> list[str]:
        """List sentences on the batch, the factors, the dimensions that follow them, and the values to give."""
        notes = [*self._describe_batch_sizes(), *self._describe_factors(), *self._describe_expressions()]
        return [f"{self.network}: {note}" for note in [*notes, *self._describe_missing_values()]]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "network": self.network,
            "inputs": [
                {
                    "name": spec.name,
                    "dtype": spec.dtype,
                    "shape": list(spec.shape),
                    "batch_axis": spec.batch_axis,
                    "values": self.values[spec.name],
                }
                for spec in self.inputs
            ],
            "batch_size": self.batch_size,
            "factors": {
                **{name: list(options) for name, options in self.factors.items()},
                **dict.fromkeys(self.missing_factors),
            },
            "notes": self.list_notes(),
        }

    def _describe_batch_sizes(self) -> Iterator[str]:
        if self.unknown:
            return
        if self.batch_reason:
            yield f"batch size {self.batch_size} only: {self.batch_reason}."
        elif not has_batch(self.inputs):
            spec = next((spec for spec in self.inputs if spec.shape), None)
            remedy = f" If a dimension is the batch, name it: --batch-axis {spec.name}=0." if spec else ""
            yield f"{NO_BATCH}; use -b 1.{remedy}"
        elif self.batch_size is None:
            yield "batch: any size."
        else:
            yield f"batch: {self.batch_size} only, its dimension is fixed."

    def _describe_factors(self) -> Iterator[str]:
        if self.missing_factors:
            flags = " ".join(f"--factor {name}=…" for name in self.missing_factors)
            yield f"{format_count(len(self.missing_factors), 'factor')} without a value: {flags}."
        if self.factors:
            listed = "; ".join(format_factors(self.factors))
            yield f"factors: {listed}{'; the shapes are those at the first values' if self.built_at else ''}."

    def _describe_expressions(self) -> Iterator[str]:
        """Yield the dimensions that are an expression, with their size where all factors have a value."""
        sides = [side for spec in self.inputs for side in spec.shape if isinstance(side, str)]
        expressions = [side for side in dict.fromkeys(sides) if dimensions.list_names(side) != (side,)]
        first = {name: options[0] for name, options in self.factors.items()}
        for expression in expressions:
            names = [name for name in dimensions.list_names(expression) if name != BATCH]
            sizes = {name: int(first[name]) for name in names if name in first}
            size = dimensions.substitute(expression, sizes) if len(sizes) == len(names) > 0 else ""
            values = ", ".join(f"{name}={value}" for name, value in sizes.items())
            result = f", {size} at {values}" if size else ""
            yield f"dimension {expression} follows from {' and '.join(dimensions.list_names(expression))}{result}."

    def _describe_missing_values(self) -> Iterator[str]:
        from ngbkit.workloads import feeds

        yield from (feeds.describe_missing(spec) for spec in self.inputs if self.values[spec.name] == _demand(spec))


COLUMNS = ("network", "input", "dtype", "shape", "batch", "values")
"""The columns of the rows."""


def describe_networks(
    networks: str | Workload | Iterable[str | Workload],
    factors: Mapping[str, FactorValue | Iterable[FactorValue]] | None = None,
    inputs: Any = None,
    batch_axis: Mapping[str, int | None] | None = None,
) -> list[NetworkInputs]:
    """Describe the inputs of networks, with those options of a sweep; factors and values may be missing."""
    files = feeding.to_inputs(inputs)
    workloads = feeding.attach(conversion.to_workloads(networks), files, feeding.to_batch_axes(batch_axis))
    swept = conversion.to_factors(factors)
    conversion.check_factors(workloads, swept)
    sources = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    has_names = all(isinstance(source, (str, Path)) for source in sources)  # else an artifact, whose name is its hash
    names = {network: Path(file).name for network, file in (files or {}).items()} if has_names else {}
    return [_describe(item, swept, names.get(item.name, names.get(feeding.ALL, ""))) for item in workloads]


def has_batch(inputs: Sequence[TensorSpec]) -> bool:
    """Return whether a dimension of an input depends on the batch."""
    return any(spec.batch_axes for spec in inputs)


def _describe(workload: Workload, swept: Mapping[str, tuple[FactorValue, ...]], file: str) -> NetworkInputs:
    accepted = {name: swept[name] for name in workload.takes if name in swept}
    factors = {name: options for name, options in {**accepted, **workload.factors}.items() if options}
    missing = tuple(name for name in workload.takes if name not in {*factors, *workload.optional})
    partial = NetworkInputs(network=workload.name, factors=factors, missing_factors=missing)
    source = workload.load_source()
    if not workload.inputs or source.preload:
        return _describe_built(workload, source, partial, file)
    described = replace(partial, batch_size=workload.spec.get("batch_size"))
    return _fill(described, workload, workload.inputs, {}, file)


def _describe_built(workload: Workload, source: Source, partial: NetworkInputs, file: str) -> NetworkInputs:
    """Build a network here, at the first values of its factors, and describe its inputs."""
    from ngbkit.workloads import building

    packages = [name for name in source.preload if find_spec(name) is None]
    if packages:
        return replace(partial, unknown=f"known on the device: {', '.join(packages)} not installed here")
    if partial.missing_factors:
        return replace(partial, unknown="known once its factors have values")
    first = {name: options[0] for name, options in partial.factors.items()}
    network = building.build(workload, first)
    described = replace(partial, batch_size=network.batch_size, batch_reason=network.batch_reason, built_at=first)
    return _fill(described, workload, network.inputs, network.examples, file)


def _fill(
    partial: NetworkInputs,
    workload: Workload,
    specs: Sequence[TensorSpec],
    examples: Mapping[str, np.ndarray],
    file: str,
) -> NetworkInputs:
    """Fill in the inputs of a network, with a text on the values of each."""
    from ngbkit.workloads import values

    arrays = values.read_given(workload, specs)
    texts = {spec.name: _describe_values(spec, arrays.get(spec.name), examples.get(spec.name), file) for spec in specs}
    return replace(partial, inputs=tuple(specs), values=texts)


def _describe_batch(spec: TensorSpec) -> str:
    places = " and ".join(f"dimension {axis}" for axis in spec.batch_axes)
    return places or "none: the same for every sample"


def _describe_values(spec: TensorSpec, array: np.ndarray | None, example: np.ndarray | None, file: str) -> str:
    from ngbkit.workloads import feeds

    if array is not None:
        return f"given: {_describe_array(spec, array)}{f' of {file}' if file else ''}"
    if example is not None:
        return f"its own: {_describe_array(spec, example)}"
    if spec.role:
        return _demand(spec)
    if spec.below is not None:
        return _describe_bound(spec.below)
    if spec.dtype == feeds.TEXT:
        return "texts: a and b"
    return "noise" if feeds.is_floating(feeds.find_dtype(spec.dtype)) else "zeros and ones"


def _demand(spec: TensorSpec) -> str:
    return f"MUST BE GIVEN: {spec.role}; --inputs FILE" if spec.role else ""


def _describe_bound(below: Dimension) -> str:
    if isinstance(below, str):
        return f"integers from 0 to {below} - 1"
    return f"integers from 0 to {below - 1}" if below > 1 else "zeros"


def _describe_array(spec: TensorSpec, array: np.ndarray) -> str:
    """Describe values by the number of their rows; a few values without a batch by themselves."""
    axis = spec.batch_axis
    if axis is not None and axis < array.ndim:
        return format_count(array.shape[axis], "row")
    if 0 < array.size <= _MOST_SHOWN:
        return ", ".join(map(str, array.ravel().tolist()))
    return format_count(array.size, "value")
