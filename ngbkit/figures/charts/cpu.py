"""CPU use, absolute and relative: the paper's figure 12."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.figures import captions, lines, provenance, rows
from ngbkit.metrics import ratios
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import altair as alt


@provenance.traced
def cpu(data: Data, **select: Any) -> alt.VConcatChart:
    """CPU use by batch size, and by how much a compiler lowers it (the paper's figure 12, in two rows).

    Use is of all cores of the machine. The reduction is 1 - use / use of identity, in percent: above 0 a compiler
    leaves the CPU more time for other work. Use is one number a trial, so that there is no interval.

    Parameters
    ----------
    data
        With `cpu_percent`.
    **select
        As for `throughput`.

    Raises
    ------
    MetricError
        Nothing was measured of the CPU, or there is no `identity`.
    UnknownNameError, UsageError
        As for `throughput`.
    """
    import altair as alt

    use = rows.rows(data, rows.of_variable("cpu_percent"), select)
    less = rows.without_baseline(rows.rows(data, _reduction, select))
    above, remarks = lines.draw(lines.Lines(frame=use, x="batch_size", value="CPU use (%)"))
    below, _ = lines.draw(lines.Lines(frame=less, x="batch_size", value="CPU reduction (%)", reference=0))
    parts = [above.properties(title="CPU use (%)"), below.properties(title=f"CPU reduction against {BASELINE} (%)")]
    chart = alt.vconcat(*parts, spacing=30)
    return lines.finished(chart, captions.title("CPU use by batch size", data, use, remarks))


def _reduction(node: xr.Dataset) -> xr.Dataset:
    use = node.get("cpu_percent")
    if use is None or not use.notnull().any():
        raise MetricError("cpu() draws 'cpu_percent', and the dataset has none. Take one that was measured.")
    own = ratios.at(use, "cpu", "compiler", BASELINE)
    return xr.Dataset({"value": (100 * (1 - ratios.ratio(use, own))).transpose(*use.dims)})
