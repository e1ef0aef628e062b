"""CPU use, absolute and relative: the paper's figure 12."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.storage import Data
from ngbkit.figures import captions, lines, provenance, rows
from ngbkit.metrics import ratios
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import altair as alt


@provenance.traced
def cpu(data: Data, **select: Any) -> alt.VConcatChart:
    """CPU use by batch size, and its reduction by each compiler (the paper's figure 12, in two rows).

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
    import altair as alt

    use = rows.build_rows(data, rows.wrap_variable("cpu_percent"), select)
    reduction = rows.drop_baseline(rows.build_rows(data, _compute_reduction, select))
    above, remarks = lines.draw(lines.Lines(frame=use, x="batch_size", value="CPU use (%)"))
    below, _ = lines.draw(lines.Lines(frame=reduction, x="batch_size", value="CPU reduction (%)", reference=0))
    parts = [above.properties(title="CPU use (%)"), below.properties(title=f"CPU reduction against {BASELINE} (%)")]
    chart = alt.vconcat(*parts, spacing=30)
    return lines.finish(chart, captions.build_title("CPU use by batch size", data, use, remarks))


def _compute_reduction(node: xr.Dataset) -> xr.Dataset:
    use = rows.wrap_variable("cpu_percent")(node)["value"]
    baseline = ratios.select_reference(use, "cpu", "compiler", BASELINE)
    return xr.Dataset({"value": (100 * (1 - ratios.ratio(use, baseline))).transpose(*use.dims)})
