"""The column in f32 of the same runtime, for each column of a lower precision, and the gain over it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import xarray as xr

from ngbkit.dataset.long_form import list_labels, map_cells
from ngbkit.errors import MetricError
from ngbkit.metrics import ratios
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Chart, Metric
from ngbkit.sweep.column import BASELINE, Column


def find_originals(labels: Sequence[str]) -> dict[str, str]:
    """Find the column in f32 for each column of another precision: of its runtime, or else the baseline."""
    present = {Column.read(label): label for label in labels}
    baseline = present.get(Column(compiler=BASELINE))
    originals = {label: present.get(column.base, baseline) for column, label in present.items() if column.precision}
    return {label: original for label, original in originals.items() if original is not None}


def select_originals(values: xr.DataArray, metric: str) -> xr.DataArray:
    """Select the values of each column's original, in place of its own; those that have none become NaN."""
    labels = list_labels(values, "compiler")
    originals = find_originals(labels)
    if not originals or "compiler" not in values.dims:
        raise MetricError(
            f"{metric}() compares a column of a lower precision with that in f32 of its runtime; this dataset has "
            f"{', '.join(labels) or 'none'}. Measure with precisions=['f32', 'int8']."
        )
    moved = values.sel(compiler=[originals.get(label, label) for label in labels])
    moved = moved.assign_coords(compiler=values["compiler"])
    return moved.where(values["compiler"].isin(list(originals)))


def find_referred(node: xr.Dataset) -> xr.DataArray:
    """Find the trials whose answers are compared with those of a file, `reference` of their sweep."""
    if "facts" not in node:
        return xr.zeros_like(node["status"], dtype=bool)
    return map_cells(node["facts"], lambda text: '"reference"' in str(text) and "reference" in json.loads(text), bool)


def _compute_gain(data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    if "medians" not in data:
        return ratios.ratio(data["throughput"], select_originals(data["throughput"], "precision_gain"))
    medians, deviation = (select_originals(data[name], "precision_gain") for name in ("medians", "process_sd"))
    return ratios.compare_columns(data, medians, deviation, sampler)


PRECISION_GAIN = Metric(
    name="precision_gain",
    long_name="speed-up over f32 of the same runtime",
    meaning="the gain of a lower precision alone: above 1 it is faster than the same runtime in f32",
    formula=r"\frac{T_{c,\mathrm{int8}}}{T_{c,\mathrm{f32}}}",
    notes="A column is compared with that of its label without the option `precision`, round by round, or with "
    f"`{BASELINE}` where the sweep lacks it.",
    compute=_compute_gain,
    chart=Chart(reference=1.0),
    in_frames=False,
    place=3,
)
