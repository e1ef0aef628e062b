"""The accessor `ds.ngb`: the metrics, and the figures, as methods of every dataset and tree."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from types import MethodType
from typing import Any, Literal, TypeVar

import pandas as pd

from ngbkit import figures, registry
from ngbkit.dataset import contention, schema
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.environments import environments
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.selection import select
from ngbkit.dataset.storage import Data
from ngbkit.errors import UnknownNameError
from ngbkit.figures import statements
from ngbkit.metrics import frames, trials
from ngbkit.metrics.comparison import Comparison
from ngbkit.metrics.contracts import allow_unlike
from ngbkit.metrics.host_states import by_state, in_state
from ngbkit.metrics.means import Groups, mean
from ngbkit.metrics.metric import load_metrics, map_nodes
from ngbkit.metrics.pairing import compare, compare_sides
from ngbkit.metrics.precisions import precisions
from ngbkit.metrics.published import beside_paper
from ngbkit.metrics.rankings.front import front
from ngbkit.metrics.rankings.networks import compare_networks
from ngbkit.metrics.rankings.ranking import network_ranking, ranking, winners
from ngbkit.metrics.rankings.reversals import reversals
from ngbkit.metrics.roofline import roofline
from ngbkit.metrics.serving.choices import choose
from ngbkit.metrics.tables import Table, compact

_Result = TypeVar("_Result")
Rows = Literal["trials", "samples"]


def _concat_nodes(tabulate: Callable[..., pd.DataFrame]) -> Callable[..., pd.DataFrame]:
    """Convert a function of a dataset to one of a tree too, which returns the rows of all nodes."""

    @wraps(tabulate)
    def concat(data: Data, /, *arguments: Any, **options: Any) -> pd.DataFrame:
        import pandas as pd

        parts = [tabulate(node, *arguments, **options) for node in nodes(data).values()]
        frame = pd.concat(parts, ignore_index=True)
        first = [name for name in ("workload", *list_factors(data)) if name in frame]
        return frame[[*first, *(name for name in frame if name not in first)]]

    return concat


def _to_method(function: Callable[..., _Result], attribute: str) -> Callable[..., _Result]:
    """Convert a function of a dataset to a method of an object that has the dataset as an attribute."""

    @wraps(function)
    def method(self: Any, /, *arguments: Any, **options: Any) -> _Result:
        return function(getattr(self, attribute), *arguments, **options)

    dataset, *others = inspect.signature(function).parameters.values()
    method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # inspect reads it
        [dataset.replace(name="self", annotation=inspect.Parameter.empty), *others],
        return_annotation=inspect.signature(function).return_annotation,
    )
    return method


class Plots:
    """The figures of `ngbkit.figures` as methods, those of metrics included.

    Besides its own parameters, each accepts the labels to draw by the name of their dim:
    ``ds.ngb.plot.speedup(compiler=["openvino", "tvm"], batch_size=8)``. Their reference need not be among them.
    """

    def __init__(self, data: Data) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in figures.list_figures():
            raise AttributeError(f"there is no figure {name!r}; `ngbkit.figures.list_figures()` lists them")
        return MethodType(schema.explain_damage(_to_method(getattr(figures, name), "_data")), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *figures.list_figures()})


@schema.explain_missing
class Metrics:
    """The metrics of `ngbkit.metrics` as methods, those of other packages included.

    On a tree, each returns a tree of results, without the nodes that lack the reference of the metric; if all lack it,
    the `MetricError` of the first is raised. Differing contracts are an error in any node. Select afterwards, so that
    the baseline is present: ``ds.ngb.bsr().sel(compiler="openvino", batch_size=8)``.
    """

    def __init__(self, data: Data) -> None:
        self._any_data = data  # xarray gives every dataset its `ngb`

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if added := registry.find(registry.ACCESSORS, name):
            return MethodType(schema.explain_damage(_to_method(added, "_pooled")), self)
        metrics = load_metrics()
        if name not in metrics:
            raise AttributeError(f"there is no metric {name!r}; dir(ds.ngb) lists them")
        method = _to_method(metrics[name].to_function(), "_data")
        return MethodType(schema.explain_damage(method), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *load_metrics(), *registry.list_names(registry.ACCESSORS)})

    @property
    def _data(self) -> Data:
        return schema.require_measured(self._any_data)

    @property
    def _pooled(self) -> Data:
        return schema.require_distinct(self._data)

    @property
    def plot(self) -> Plots:
        """The figures, as methods: ``ds.ngb.plot.speedup()``."""
        return Plots(self._pooled)

    # Nodes of a tree are compared with one another.
    beside_paper = _to_method(beside_paper, "_pooled")
    choose = _to_method(choose, "_pooled")
    compare_networks = _to_method(compare_networks, "_pooled")
    front = _to_method(front, "_pooled")
    network_ranking = _to_method(network_ranking, "_pooled")
    ranking = _to_method(ranking, "_pooled")
    reversals = _to_method(reversals, "_pooled")
    winners = _to_method(winners, "_pooled")
    by_state = _to_method(_concat_nodes(by_state), "_pooled")
    failures = _to_method(_concat_nodes(trials.failures), "_pooled")
    why = _to_method(_concat_nodes(trials.why), "_pooled")
    allow_unlike = _to_method(allow_unlike, "_data")
    # Each node has its own result.
    environments = _to_method(environments, "_data")
    mean = _to_method(map_nodes(mean), "_data")
    roofline = _to_method(map_nodes(roofline), "_data")
    in_state = _to_method(map_nodes(in_state), "_data")
    sel = _to_method(select, "_data")
    conclusive = _to_method(map_nodes(contention.conclusive), "_data")
    uncontended = _to_method(map_nodes(contention.uncontended), "_data")

    def table(self, figure: str = "speedup", *, by: Groups | None = None, **select: Any) -> Table:
        """A metric or a variable with a row per network and batch size and a column per compiler, with its intervals.

        See `ngbkit.metrics.tables.compact`: `figure` is one of its figures, and labels are selected as for a figure:
        ``ds.ngb.table("bsr", compiler=["openvino"], batch_size=8)``. With `by`, rows are groups of networks.
        """
        arguments: dict[str, Any] = {"figure": figure, "by": by, "select": select}
        mark = partial(statements.mark, name="table", data=self._pooled, **arguments)
        return Table(compact(self._pooled, **arguments), mark)

    def precisions(self) -> Table:
        """See `ngbkit.metrics.precisions.precisions`: each column's gain over f32, its memory, file and accuracy."""
        return Table(precisions(self._pooled))

    def compare(self, other: Data | str, metric: str | None = None, *, names: Sequence[str] = ()) -> Comparison:
        """See `ngbkit.metrics.pairing.compare`: what changed from this run to the `other`.

        A text is the label of the earlier networks in this run, which `ngbkit.Sweep.beside` measured in turns with the
        new ones: ``ds.ngb.compare("it2")``.
        """
        if isinstance(other, str):
            return compare_sides(self._pooled, other, names[1] if len(names) > 1 else "this run", metric)
        return compare(self._pooled, schema.require_distinct(schema.require_measured(other)), metric, names=names)

    def to_dataframe(self, rows: Rows = "trials") -> pd.DataFrame:
        """The trials, one per row, with their metrics and all that was measured; or every ``"samples"``.

        See `ngbkit.metrics.frames.to_dataframe` and `ngbkit.metrics.frames.to_samples` for the columns and their units.
        """
        if rows not in frames.BUILDERS:
            raise UnknownNameError("rows", rows, frames.BUILDERS)
        return frames.BUILDERS[rows](self._pooled)
