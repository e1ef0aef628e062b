"""One record a metric: the accessor, figures, tables, comparisons, frames and pages are derived from it."""

from __future__ import annotations

import inspect
import textwrap
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import xarray as xr

from ngbkit import registry, validation
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError, NgbkitError, NgbkitWarning, UnknownNameError
from ngbkit.metrics import ratios
from ngbkit.metrics.contracts import Unlike, UnlikeContractsError, mask_unlike
from ngbkit.metrics.draws import Sampler, annotate, combine_interval, estimate
from ngbkit.metrics.drift import estimate_drifts
from ngbkit.sweep.column import BASELINE

Result = xr.DataArray | xr.Dataset
"""A metric; with `ci`, a dataset with the metric under its own name, ``ci_low``, ``ci_high`` and ``conclusive``."""

Interval = Callable[[xr.Dataset, float], tuple[xr.DataArray, xr.DataArray]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The line chart of a metric: one panel per network, one line per compiler, the batch size along x.

    Parameters
    ----------
    reference
        The value of a horizontal line; None draws none.
    zero
        Whether a linear y axis begins at zero.
    paper
        The figure of the paper that it repeats, such as ``"figure 8"``.
    """

    reference: float | None = None
    zero: bool = True
    paper: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A metric of trials that were measured side by side.

    A package adds one by an entry point, whose name is that of the metric; ngbkit itself needs no change::

        [project.entry-points."ngbkit.metrics"]
        seconds = "my_package.metrics:SECONDS"

    Parameters
    ----------
    name
        That of the method ``ds.ngb.NAME()``, of tables, columns and flags.
    symbol
        The abbreviation on the axis of its chart; empty for `long_name`.
    units, unit_symbol
        The unit as UDUNITS has it, and as people read it, where that differs.
    long_name
        A noun phrase, with a formula behind a colon if there is one; ``{baseline}`` and other options are replaced by
        their values.
    meaning
        A sentence on how to read it.
    formula
        In LaTeX, for the page of metrics.
    notes
        Further paragraphs of its docstring.
    relative_to
        What it compares each trial with: ``"compiler"``, the baseline; ``"batch_size"``, batch size 1; or both. The
        first is the one whose timing contract must be the same.
    compute
        Called with the prepared data (`ngbkit.metrics.ratios.prepare`) and a `Sampler`: medians where that is None,
        else replicates along ``draw``. Further parameters are options of the metric.
    options
        A sentence on each option of `compute` that ngbkit does not describe, by name.
    over
        The factor that it reduces, the default of the option ``dim``; empty for a number of each trial.
    variables
        The variables of the dataset that `compute` reads besides latencies.
    interval
        Returns the ends of its interval from the prepared data and the probability; None for a bootstrap over rounds.
    chart
        Its line chart; None for none.
    in_frames
        Whether tables of trials, exported frames, comparisons and means have it, as a number of each trial.
    neutral
        The value of a trial that is compared with itself; NaN where it is compared with none.
    variants
        More tables of it: by name, the options that differ.
    place
        Its place among the metrics of tables, from the left.
    """

    name: str
    symbol: str = ""
    units: str = "1"
    unit_symbol: str = ""
    long_name: str
    meaning: str
    formula: str = ""
    notes: str = ""
    relative_to: tuple[str, ...] = ()
    compute: Callable[..., xr.DataArray]
    options: Mapping[str, str] = field(default_factory=dict)
    over: str = ""
    variables: tuple[str, ...] = ()
    interval: Interval | None = None
    chart: Chart | None = None
    in_frames: bool = True
    neutral: float = 1.0
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    place: int = 100

    def __call__(self, dataset: xr.Dataset, *arguments: Any, **options: Any) -> Result:
        """Compute the metric of a dataset; arguments are those of `signature`."""
        bound = self.signature.bind(dataset, *arguments, **options)
        bound.apply_defaults()
        settings = dict(bound.arguments)
        del settings["dataset"]
        ci, unlike, normalised = settings.pop("ci"), settings.pop("unlike", "error"), settings.pop("normalised", True)
        baseline = settings.get("baseline", BASELINE)
        data = self.prepare(dataset, unlike=unlike, normalised=normalised, baseline=baseline)

        def compute(part: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
            return self.compute(part, sampler, **settings)

        if ci is not None and self.interval is not None:
            validation.check("ci", validation.Probability, ci)
            point = annotate(self.compute(data, None), self.name, self.units, self.describe())
            is_measured = annotate(point.notnull(), "conclusive", "1", "whether it is of samples")
            return combine_interval(point, self.interval(data, ci), is_measured, ci)
        dim = settings.get("dim", self.over)
        name = self.name.replace(self.over, dim) if dim else self.name
        return estimate(compute, data, ci, (name, self.units, self.describe(**settings)), along=dim)

    def is_in(self, data: Data) -> bool:
        """Return whether a dataset has the variables that it is of, if it is not of latencies."""
        is_of_latencies = self.interval is None
        return is_of_latencies or any(all(name in node for name in self.variables) for node in nodes(data).values())

    def prepare(
        self, dataset: xr.Dataset, *, unlike: Unlike = "error", normalised: bool = True, baseline: str = BASELINE
    ) -> xr.Dataset:
        """Prepare the data of `compute`, in which trials that are unlike their reference are NaN or an error."""
        if not {"throughput", "latency"} & set(dataset):
            raise MetricError(
                f"invalid dataset: got the variables {', '.join(map(str, dataset)) or 'none'}; {self.name}() expects "
                "throughput or latency. Use the dataset of a run: ngbkit.load(path)."
            )
        mask = None
        if self.against:
            mask = mask_unlike(dataset, self.name, unlike, against=self.against[0], baseline=baseline)
        data = ratios.prepare(dataset, mask=mask, anchored=normalised and self.is_scaled)
        is_apart = self.is_scaled or bool(self.relative_to and ratios.are_apart(data))
        drifts = [drift.sd for drift in estimate_drifts(dataset).values()] if is_apart else []
        data["drift_sd"] = ratios.along_devices(dataset, drifts, 0.0) if drifts else 0.0
        return data.assign({name: dataset[name] for name in self.variables if name in dataset})

    def compute_masked(self, dataset: xr.Dataset, **options: Any) -> Result:
        """Compute the metric with NaN where timing contracts differ, as tables and figures have it."""
        return self(dataset, **({"unlike": "mask"} if self.relative_to else {}), **options)

    def describe(self, **options: Any) -> str:
        """Describe the metric with these values of its options."""
        defaults = {name: parameter.default for name, parameter in self._parameters.items()}
        return self.long_name.format(**{**defaults, **options})

    @property
    def against(self) -> tuple[str, ...]:
        """The dim along which a trial and its reference differ; empty where there is none."""
        return self.relative_to[:1]

    @property
    def is_scaled(self) -> bool:
        """Return whether it compares batch sizes of one column, which are measured one after the other."""
        return self.against == ("batch_size",)

    @property
    def is_evaluated(self) -> bool:
        """Return whether it is over samples that judge answers, and not over those that are timed."""
        return "evaluated_samples" in self.variables

    @property
    def is_absolute(self) -> bool:
        """Return whether its numbers are times, which differ between groups measured at different minutes."""
        is_ratio = bool(self.relative_to) or (self.chart is not None and self.chart.reference is not None)
        return not is_ratio and not self.is_evaluated

    @property
    def is_tabulated(self) -> bool:
        """Return whether it can be computed without a choice of the user, and so in tables."""
        return all(parameter.default is not parameter.empty for parameter in self._parameters.values())

    @property
    def unit_suffix(self) -> str:
        """The unit in brackets, for titles; empty for a pure number."""
        symbol = self.unit_symbol or self.units
        return "" if symbol == "1" else f" ({symbol})"

    @property
    def signature(self) -> inspect.Signature:
        """The signature of its function: the dataset, the options of `compute`, and those of every metric."""
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = {
            "normalised": inspect.Parameter("normalised", keyword, default=True, annotation="bool"),
            "ci": inspect.Parameter("ci", keyword, default=None, annotation="float | None"),
            "unlike": inspect.Parameter("unlike", keyword, default="error", annotation="Unlike"),
        }
        absent = [] if self.is_scaled else ["normalised"]
        absent += [] if self.relative_to else ["unlike"]
        dataset = inspect.Parameter("dataset", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="xr.Dataset")
        parameters = [dataset, *self._parameters.values()]
        parameters += [parameter for name, parameter in shared.items() if name not in absent]
        return inspect.Signature(parameters, return_annotation="Result")

    @property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        """The options of `compute`: its parameters after the data and the sampler."""
        parameters = inspect.signature(self.compute).parameters
        return {name: parameters[name] for name in list(parameters)[2:]}

    @property
    def docstring(self) -> str:
        """The docstring of its function."""
        described = {**_OPTIONS, **self.options}
        needs = [*(REFERENCES[dim] for dim in self.relative_to), *self.variables]
        raised = [f"The dataset lacks {' or '.join(needs)}."] if needs else []
        raised += ["`dim` has fewer than two values, or values that are no numbers."] if self.over else []
        raised += ["Timing contracts differ, unless `unlike` says otherwise."] if self.relative_to else []
        raised.append("With `ci`: the dataset has no rounds to bootstrap over.")
        names = ", ".join(name for name in self.signature.parameters if name != "dataset")
        parameters = [
            f"{name}\n{textwrap.indent(textwrap.fill(described.get(name, ''), 112), '    ')}"
            for name in self.signature.parameters
        ]
        sections = {
            "Parameters": parameters,
            "Returns": [f"xarray.DataArray or xarray.Dataset\n{textwrap.indent(_RETURNED, '    ')}"],
            "Raises": [
                f"MetricError\n{textwrap.indent(textwrap.fill(' '.join(raised), 112), '    ')}",
                f"UsageError\n    A value is invalid: {names}.",
            ],
        }
        described_name = self.describe(**{name: f"`{name}`" for name in self._parameters})
        head = f"{_capitalise(described_name)}{self.unit_suffix}."
        paragraphs = [head, f"{_capitalise(self.meaning)}.", *([self.notes] if self.notes else [])]
        text = [textwrap.fill(paragraph, 116) for paragraph in paragraphs]
        text += ["\n".join([title, "-" * len(title), *lines]) for title, lines in sections.items()]
        return "\n\n".join(text)

    def to_function(self) -> Callable[..., Any]:
        """Build the public function of the metric, with its signature and its docstring."""

        @map_nodes
        def compute(*arguments: Any, **options: Any) -> Result:
            return self(*arguments, **options)

        compute.__name__ = compute.__qualname__ = self.name
        compute.__module__ = "ngbkit.metrics"
        compute.__doc__ = self.docstring
        compute.__signature__ = self.signature  # type: ignore[attr-defined]  # inspect reads it
        return compute


def map_nodes(metric: Callable[..., Result]) -> Callable[..., Any]:
    """Convert a function of a dataset to one of a tree too, which returns a tree of results."""

    @wraps(metric)
    def compute(data: Data, /, *arguments: Any, **options: Any) -> Any:
        if isinstance(data, xr.Dataset):
            return metric(data, *arguments, **options)
        results: dict[str, xr.Dataset] = {}
        problems: list[MetricError] = []
        for path, node in nodes(data).items():
            try:
                result = metric(node, *arguments, **options)
            except UnlikeContractsError:
                raise
            except MetricError as error:
                problems.append(error)
            else:
                results[path] = result.to_dataset() if isinstance(result, xr.DataArray) else result
        if problems and not results:
            raise problems[0]
        return xr.DataTree.from_dict({"/": xr.Dataset(attrs=data.attrs), **results})

    return compute


_OPTIONS: Mapping[str, str] = {
    "dataset": "The dataset of a run, a selection from it, or a tree of them, which has a tree of results.",
    "baseline": "The label of the reference column, whose own value is 1.",
    "dim": "The factor.",
    "normalised": "Batch sizes are measured one after the other. Where the dataset has anchors, each rate is divided "
    f"by that of `{BASELINE}` at batch size 1 in the same rounds, so that drift between them cancels; the price is "
    f"the noise of `{BASELINE}`, which more repeats reduce, as they never reduce drift. False compares the rates as "
    "measured.",
    "ci": "The probability that the interval covers, in (0, 1), by bootstrap over rounds (`ngbkit.metrics.draws`); "
    "None for no interval.",
    "unlike": "How to treat columns whose timing contract differs from that of the reference in precision, threads, "
    'transfers, synchronisation or overlap: "error" raises, "mask" sets them to NaN, "allow" compares them anyway.',
}
REFERENCES: Mapping[str, str] = {"compiler": "the baseline", "batch_size": "batch size 1"}
"""The reference of a metric, by the dim."""

_RETURNED = (
    "Without the dim `repeat`; a failed or pending trial is NaN, and so is every trial relative to it. With `ci` a\n"
    "dataset of the metric, ``ci_low``, ``ci_high`` and ``conclusive``."
)


def _capitalise(text: str) -> str:
    return text[0].upper() + text[1:]


def load_metrics() -> dict[str, Metric]:
    """Load the metrics of ngbkit and of other packages, by name, in the order of tables."""
    records = registry.load_all(registry.METRICS)
    for name, record in records.items():
        if not isinstance(record, Metric) or record.name != name:
            message = f"the metric {name!r} is ignored: got {record!r:.60}; expected a Metric of that name."
            warnings.warn(message, NgbkitWarning, stacklevel=2)
    metrics = {name: record for name, record in records.items() if isinstance(record, Metric) and record.name == name}
    if "throughput" not in metrics:
        raise NgbkitError(
            "invalid installation: got an ngbkit that lists no metrics; expected those of its entry points. Install it "
            "again, in a checkout by `pip install -e .`."
        )
    return dict(sorted(metrics.items(), key=lambda item: item[1].place))


def name_regression(data: Data, columns: tuple[str, str], cell: Mapping[str, Any]) -> str:
    """Name the piece that surely takes longer in the second of two columns, in the cell with such labels.

    Empty where either has no profile there, where no piece surely takes longer, or without the add-on that explains.
    """
    explain = registry.find(registry.ACCESSORS, "explain")
    try:
        return str(explain(data, *columns, **cell).regression) if explain else ""
    except NgbkitError:  # a version whose nodes have other names, and a trial without a profile
        return ""


def load_frame_metrics() -> dict[str, Metric]:
    """Load the metrics that are a number of each trial, by name: those of frames, comparisons and means."""
    return {name: metric for name, metric in load_metrics().items() if metric.in_frames and metric.is_tabulated}


def find_metric(name: str, metrics: Mapping[str, Metric]) -> Metric:
    """Find a metric among some; `UnknownNameError` with the nearest names if there is none."""
    if name not in metrics:
        raise UnknownNameError("metric", name, metrics)
    return metrics[name]
