"""The line charts of metrics: by batch size for each metric, the speed-up by depth, and the CPU use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import altair as alt
import pandas as pd
import xarray as xr

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, provenance, rows
from ngbkit.metrics import ratios
from ngbkit.metrics.metric import Metric, load_metrics
from ngbkit.sweep.column import BASELINE


def build_figure(metric: Metric) -> Callable[..., alt.FacetChart]:
    """Build the function that draws a metric by batch size, with its signature and its docstring."""
    options = list(metric.signature.parameters.values())[1:]
    options = [parameter for parameter in options if parameter.name not in ("ci", "normalised", "unlike")]
    # What is of the dataset by default is assigned to it, so that the archived dataset draws the same figure.
    options = [parameter for parameter in options if parameter.default is not None]

    def draw(data: Data, *, by: lines.By = "network", ci: float | None = 0.95, **settings: Any) -> alt.FacetChart:
        chosen = {parameter.name: parameter.default for parameter in options}
        chosen |= {name: settings.pop(name) for name in list(settings) if name in chosen}
        values = rows.wrap_metric(partial(metric.compute_masked, **chosen), ci)
        if metric.is_evaluated:
            values = rows.count_evaluated(values)
        frame, x = rows.build_line_rows(data, values, settings, by_batch="batch_size" in metric.relative_to)
        return _draw(metric, data, frame, x=x, by=by, ci=ci, options=chosen)

    draw.__name__ = draw.__qualname__ = metric.name
    draw.__module__, draw.__doc__ = "ngbkit.figures", _describe(metric)
    first, by, ci, select = inspect.signature(draw).parameters.values()
    keywords = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in options]
    draw.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # inspect reads it
        [first, by, *keywords, ci, select.replace(name="select")], return_annotation="alt.FacetChart"
    )
    return provenance.traced(draw)


@provenance.traced
def depth(
    data: Data, *, factor: str = "depth", baseline: str = BASELINE, ci: float | None = 0.95, **select: Any
) -> alt.FacetChart:
    """Speed-up by depth, one panel per network and batch size, one line per compiler (the paper's figure 7).

    Each panel has its own axis, as in the paper, so that compilers are distinguishable at one batch size; the line at 1
    is common to all.

    Parameters
    ----------
    data
        With at least two values of `factor`; networks that do not take it are excluded.
    factor
        The factor along the x axis; texts have no order and no line.
    baseline, ci, **select
        As for `speedup`.

    Raises
    ------
    MetricError
        There is no such baseline, or no network with two values of `factor`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    metric = load_metrics()["speedup"]
    speedups = rows.wrap_metric(partial(metric.compute_masked, baseline=baseline), ci)
    values = rows.require_factor(factor, speedups, "depth", "1:6")
    frame = rows.split_batch_sizes(rows.build_rows(data, values, select, axes=[factor]))
    return _draw(metric, data, frame, x=factor, ci=ci, options={"baseline": baseline})


@provenance.traced
def cpu(data: Data, **select: Any) -> alt.VConcatChart:
    """CPU use, and its reduction by each compiler (the paper's figure 12, in two rows), by batch size or a factor.

    Use is of all cores of the machine. The reduction is 1 - use / use of identity, in percent: above 0, a compiler
    leaves the CPU more time for other work. Use is one number per trial, so that it has no interval.

    Parameters
    ----------
    data
        With `cpu_percent`.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        The dataset has no CPU use, or no `identity`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    use, x = rows.build_line_rows(data, rows.wrap_variable("cpu_percent"), select, by_batch=False)
    reduction, _ = rows.build_line_rows(data, _compute_reduction, select, by_batch=False)
    above, remarks = lines.draw(lines.Lines(frame=use, x=x, value="CPU use (%)"))
    compared = rows.drop_baseline(reduction)
    below, _ = lines.draw(lines.Lines(frame=compared, x=x, value="CPU reduction (%)", reference=0))
    parts = [above.properties(title="CPU use (%)"), below.properties(title=f"CPU reduction against {BASELINE} (%)")]
    chart = alt.vconcat(*parts, spacing=30)
    return lines.finish(chart, captions.build_title(f"CPU use by {x.replace('_', ' ')}", data, use, remarks))


def _draw(
    metric: Metric,
    data: Data,
    frame: pd.DataFrame,
    *,
    options: dict[str, Any],
    ci: float | None,
    x: str,
    by: lines.By = "network",
) -> alt.FacetChart:
    """Draw the rows of a metric along the batch size or a factor, whose panels are in their own order."""
    assert metric.chart is not None
    baseline = options.get("baseline", BASELINE)
    frame = rows.drop_baseline(frame, baseline) if "compiler" in metric.relative_to else frame
    is_by_batch = x == "batch_size"
    long_name = metric.describe(**options)
    chart, remarks = lines.draw(
        lines.Lines(
            frame=frame,
            x=x,
            value=(metric.symbol or long_name) + metric.unit_suffix,
            reference=metric.chart.reference,
            zero=metric.chart.zero and is_by_batch,
            by=by,
            families=is_by_batch,
        )
    )
    name, colon, formula = f"{long_name[0].upper()}{long_name[1:]}".partition(":")
    text = f"{name}{metric.unit_suffix} by {x.replace('_', ' ')}{colon}{formula}"
    title = captions.build_title(
        text,
        data,
        frame,
        remarks,
        against=metric.against,
        baseline=baseline,
        ci=ci,
        absolute=metric.is_absolute,
        evaluated=metric.is_evaluated,
    )
    return lines.finish(chart, title)


_AXIS = """

    A factor that varies more than the batch size is along x in its place, with a panel per batch size."""


def _describe(metric: Metric) -> str:
    """The docstring of the chart of a metric."""
    paper = f" (the paper's {metric.chart.paper})" if metric.chart and metric.chart.paper else ""
    name = metric.describe(**dict.fromkeys(("baseline",), "a baseline")).partition(":")[0]
    axis = "" if "batch_size" in metric.relative_to else _AXIS
    return f"""{name[0].upper()}{name[1:]} by batch size, one panel per network, one line per compiler{paper}.

    {metric.meaning[0].upper()}{metric.meaning[1:]}.{axis}

    Networks of one family form a column, the smallest first. A trial without a result is a mark at the bottom of its
    panel, whose shape shows its status. A column whose timing contract differs from its reference has no line; the
    subtitle explains why.

    Parameters
    ----------
    data
        The dataset or tree of a run.
    by
        The panels: one per ``"network"``, with a line per compiler; or one per ``"compiler"``, with a line per network.
    ci
        The probability that the intervals cover; None draws none. A dataset without samples has none either.
    **select
        Other options of `ngbkit.metrics.{metric.name}`; and by dim, the label or the labels to draw:
        ``compiler=["identity", "tvm"], batch_size=8``. Their reference need not be among them.

    Raises
    ------
    MetricError
        The dataset lacks the reference of the metric.
    UnknownNameError
        The dataset lacks a selected dim or label.
    UsageError
        The selection is empty, `by` is invalid, or `ci` is not a probability.
    """


def _compute_reduction(node: xr.Dataset) -> xr.Dataset:
    use = rows.wrap_variable("cpu_percent")(node)["value"]
    baseline = ratios.select_reference(use, "cpu", "compiler", BASELINE)
    return xr.Dataset({"value": (100 * (1 - ratios.ratio(use, baseline))).transpose(*use.dims)})
