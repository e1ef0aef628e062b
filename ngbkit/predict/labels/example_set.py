"""The examples that a predictor is fitted to: graphs, and the seconds of each on each runtime; their file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ngbkit.dataset import storage
from ngbkit.dataset.assembly import describe
from ngbkit.errors import UsageError
from ngbkit.predict.graphs import Graph
from ngbkit.predict.labels.rows import Runtime, format_runtimes
from ngbkit.predict.network_graphs import ATTRIBUTE, load_graphs, pack
from ngbkit.predict.scoring.scores import noise_floor
from ngbkit.user_text import clean_line, format_count, parse_path

if TYPE_CHECKING:
    import pandas as pd

LAYOUT = 1
"""The version of the format of a file of examples."""

OPERATOR = "operator"
"""The family of single operators that were measured alone."""

TEXTS = ("names", "families", "parents", "rules")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Examples:
    """Distinct graphs with their latencies on each runtime.

    `ngbkit.predict.examples` builds them from files, models or a table, `ngbkit.predict.collect` from datasets.

    Parameters
    ----------
    graphs
        Their digests are distinct.
    seconds
        The median latency, of shape ``(graphs, runtimes)``; NaN where there is none.
    runtimes
        A device and a compiler per column.
    names
        Networks with their factors and batch size.
    families
        The family of each network, for a split that leaves out whole families.
    parents
        The network that each was rewritten from, or its own name; a split keeps these together.
    rules
        The rules that rewrote it; empty for an original network.
    errors
        Standard errors of the logarithms of `seconds`, by the spread of graphs measured several times; for a graph
        measured once, the error of its label, if that is known; else NaN. For a variant of `collect`, this is the error
        of its speed-up over the original in the same rounds. No prediction can be more accurate.
    operator_seconds
        By graph, how long each of its operators takes inside it, of shape ``(operators, runtimes)``, where the profiler
        of a runtime told (`ngbkit.predict.profile`); NaN where it did not. They sum up to `seconds`.

    Raises
    ------
    UsageError
        Two graphs have one digest or different lowerings, or the lengths of two fields differ.
    """

    graphs: tuple[Graph, ...]
    seconds: NDArray[np.float64]
    runtimes: tuple[Runtime, ...]
    names: tuple[str, ...]
    families: tuple[str, ...]
    parents: tuple[str, ...]
    rules: tuple[str, ...]
    errors: NDArray[np.float64] | None = None
    operator_seconds: tuple[NDArray[np.float64], ...] | None = None

    def __post_init__(self) -> None:
        shape = (len(self.graphs), len(self.runtimes))
        arrays = {"seconds": self.seconds} | ({} if self.errors is None else {"errors": self.errors})
        for name, values in arrays.items():
            if np.shape(values) != shape:
                raise UsageError(
                    f"invalid {name}: got an array of shape {np.shape(values)}; expected (graphs, runtimes), {shape}. "
                    "Build examples with ngbkit.predict.examples()."
                )
        for name in TEXTS:
            if len(getattr(self, name)) != len(self.graphs):
                raise UsageError(
                    f"invalid {name}: got {len(getattr(self, name))}; expected one for each of the {len(self.graphs)} "
                    "graphs."
                )
        if self.operator_seconds is not None and [np.shape(values) for values in self.operator_seconds] != [
            (len(graph.operators), len(self.runtimes)) for graph in self.graphs
        ]:
            raise UsageError(
                "invalid operator_seconds: got arrays that do not fit the graphs; expected one of shape (operators, "
                "runtimes) for each graph, as of ngbkit.predict.profile."
            )
        distinct = len({graph.digest for graph in self.graphs})
        if distinct < len(self.graphs):
            raise UsageError(
                f"invalid graphs: got {len(self.graphs)}, of which {distinct} are distinct; expected each once, or it "
                "would be in the training and in the test set. ngbkit.predict.examples() merges equal graphs."
            )
        lowerings = {graph.lowering for graph in self.graphs}
        if len(lowerings) > 1:
            listed = ", ".join(sorted(name or "the export" for name in lowerings))
            raise UsageError(f"invalid graphs: got those of {listed}; expected all of one. Read them in one way.")

    def __len__(self) -> int:
        return len(self.graphs)

    def __repr__(self) -> str:
        families = format_count(len(set(self.families)), "family", "families")
        return (
            f"<Examples: {format_count(len(self), 'graph', 'graphs')} of {families}, {format_runtimes(self.runtimes)}>"
        )

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> Examples:
        """The examples at these indices."""
        indices = [int(index) for index in places]
        texts = {name: tuple(getattr(self, name)[index] for index in indices) for name in TEXTS}
        errors = None if self.errors is None else self.errors[indices]
        selected = tuple(self.graphs[index] for index in indices)
        profiles = None if self.operator_seconds is None else tuple(self.operator_seconds[index] for index in indices)
        return replace(
            self, graphs=selected, seconds=self.seconds[indices], errors=errors, operator_seconds=profiles, **texts
        )

    @property
    def lowering(self) -> str:
        """The compiler whose executed operators the graphs have; empty for networks as they were exported."""
        return self.graphs[0].lowering if self.graphs else ""

    @property
    def isolated(self) -> NDArray[np.bool_]:
        """The examples that are a single operator measured alone, as a mask; sums of operators are fitted to these."""
        return np.array([family_name == OPERATOR for family_name in self.families], dtype=bool)

    @property
    def noise(self) -> pd.DataFrame:
        """The noise of the labels of original networks, a row per runtime.

        ``device``, ``compiler``; ``graphs``, those with a latency; ``known``, those of them whose error is known;
        ``error``, the median standard error of these; and ``floor``, the mean absolute relative error that a predictor
        of the true latencies would have on them (shares; NaN where no error is known).
        """
        import pandas as pd

        networks = ~self.isolated & np.array([not rule for rule in self.rules], dtype=bool)
        errors = np.full(self.seconds.shape, np.nan) if self.errors is None else self.errors
        rows = []
        for column, (device, compiler) in enumerate(self.runtimes):
            measured = networks & np.isfinite(self.seconds[:, column])
            finite = errors[measured & np.isfinite(errors[:, column]), column]
            counts = {"graphs": int(measured.sum()), "known": len(finite)}
            error = float(np.median(finite)) if len(finite) else np.nan
            rows.append(
                {"device": device, "compiler": compiler, **counts, "error": error, "floor": noise_floor(finite)}
            )
        return pd.DataFrame(rows)

    def save(self, path: str | Path) -> Path:
        """Write one netCDF file, with seconds, labels and graphs, for `ngbkit.predict.load_examples`."""
        devices, compilers = zip(*self.runtimes, strict=True)
        coords = {name: ("network", np.array(getattr(self, name), dtype=object)) for name in TEXTS}
        coords |= {"device": ("runtime", np.array(devices, dtype=object))}
        coords |= {"compiler": ("runtime", np.array(compilers, dtype=object))}
        seconds = (("network", "runtime"), self.seconds, describe("s", "median latency of one inference of the batch"))
        data = xr.Dataset({"seconds": seconds, **coords})
        if self.errors is not None:
            attributes = describe("1", "standard error of the logarithm of that latency")
            data["errors"] = (("network", "runtime"), self.errors, attributes)
        if self.operator_seconds is not None:
            attributes = describe("s", "time of an operator inside its network, all operators of a graph in a row")
            data["operator_seconds"] = (("operator", "runtime"), np.concatenate(self.operator_seconds), attributes)
        packed = pack(dict(zip(map(str, range(len(self))), self.graphs, strict=True)))
        data.attrs = {ATTRIBUTE: packed, "layout": LAYOUT, "ngbkit_version": metadata.version("ngbkit")}
        return storage.save(data, parse_path(path), overwrite=True)


def load_examples(path: str | Path) -> Examples:
    """The examples that `Examples.save` wrote.

    Raises
    ------
    UsageError
        The file holds no examples, or its layout is unknown to this ngbkit.
    """
    data = storage.load(parse_path(path))
    stored = load_graphs(data)
    if not isinstance(data, xr.Dataset) or "seconds" not in data or not stored:
        expected = "expected a file that Examples.save() wrote. `collect` builds examples from datasets."
        raise UsageError(f"{path} holds no examples; {expected}")
    layout = data.attrs.get("layout")
    if layout != LAYOUT:
        raise UsageError(f"invalid layout of {path}: got {layout}; expected {LAYOUT}. Collect from the runs again.")
    try:
        graphs = tuple(stored[str(index)] for index in range(len(stored)))
        ends = np.cumsum([len(graph.operators) for graph in graphs])[:-1]
        runtimes = zip(data["device"].values.tolist(), data["compiler"].values.tolist(), strict=True)
        return Examples(
            graphs=graphs,
            seconds=data["seconds"].values,
            errors=data["errors"].values if "errors" in data else None,
            operator_seconds=tuple(np.split(data["operator_seconds"].values, ends))
            if "operator_seconds" in data
            else None,
            runtimes=tuple((clean_line(str(device)), clean_line(str(compiler))) for device, compiler in runtimes),
            **{name: tuple(data[name].values.tolist()) for name in TEXTS},
        )
    except (KeyError, ValueError, TypeError) as error:
        raise UsageError(f"{path} holds no examples: {type(error).__name__}: {error}. Collect them again.") from error


def to_frame(examples: Examples) -> pd.DataFrame:
    """The examples, one row per network.

    Returns
    -------
    pandas.DataFrame
        ``name``, ``family``, ``parent``, ``rule`` (empty for an original) and, for each runtime, the median latency in
        seconds: NaN where there is none. A runtime is named by its compiler, and by its device where there are several.
    """
    import pandas as pd

    labels = {"name": examples.names, "family": examples.families, "parent": examples.parents, "rule": examples.rules}
    seconds = dict(zip(name_runtimes(examples), examples.seconds.T, strict=True))
    return pd.DataFrame({**{name: list(values) for name, values in labels.items()}, **seconds})


def name_runtimes(examples: Examples) -> list[str]:
    """Return the name of each runtime: its compiler, and its device where there are several."""
    devices = {device for device, _ in examples.runtimes}
    return [compiler if len(devices) == 1 else f"{compiler} on {device}" for device, compiler in examples.runtimes]
