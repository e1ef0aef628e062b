"""The lower precisions of a dataset judged by the cost that a reader accepts, as a sweep with `accept` judges them.

So are all columns of a network that is compared with its f32 original, `reference` of a sweep.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.long_form import map_cells
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics.originals import find_originals, find_referred
from ngbkit.sweep.low_precision import UNJUDGED, Bound, to_bounds
from ngbkit.sweep.records import NOT_CHECKED

REFUSED = "not-equivalent"
"""The status of a column that costs more than is accepted."""


def accept(data: Data, bounds: str | Iterable[str]) -> Data:
    """Judge the columns of lower precisions, and all of a network with a reference, by bounds on their cost.

    The result is as if the sweep had been measured with these, such as ``"agreement>=0.99"``: what costs more has the
    status ``"not-equivalent"``, and what lacked bounds is ``"ok"``. MetricError: a bounded cost was not measured.
    """
    parsed = [Bound.parse(text) for text in to_bounds(bounds)]
    if isinstance(data, xr.Dataset):
        return _accept(data, parsed)
    nodes = {node.path: _accept(node.to_dataset(), parsed) for node in data.subtree if node.data_vars}
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=_request(data.attrs, parsed)), **nodes})


def _accept(node: xr.Dataset, bounds: Sequence[Bound]) -> xr.Dataset:
    missing = [bound.cost for bound in bounds if bound.cost not in node]
    if missing:
        raise MetricError(
            f"accept={', '.join(map(str, bounds))} needs {missing[0]}, which this dataset lacks. Measure with "
            "calibrate= or evaluate=."
        )
    is_lower = node["compiler"].isin(list(find_originals(np.ravel(node["compiler"].values).tolist())))
    is_judged = find_referred(node) | is_lower
    has_result = is_judged & node["latency"].notnull().any("repeat") if "latency" in node else is_judged
    status, error = node["status"], node["error"]
    admitted = xr.ones_like(status, dtype=bool)
    for bound in bounds:
        cost = node[bound.cost]
        is_within = cost >= bound.value if bound.is_least else cost <= bound.value
        texts = [
            f"{bound.cost} {value:.4g}; accepted: {bound}" if value == value else f"{bound.cost} is unknown"
            for value in cost.values.ravel().tolist()
        ]
        reasons = cost.copy(data=np.reshape(np.array(texts, dtype=object), cost.shape))
        is_refused = has_result & ~is_within & admitted
        status, error = status.where(~is_refused, REFUSED), error.where(~is_refused, reasons)
        admitted = admitted & is_within
    is_unjudged = (node["status"] == NOT_CHECKED) & map_cells(node["error"], lambda text: UNJUDGED in str(text), bool)
    is_accepted = has_result & admitted & is_unjudged
    status, error = status.where(~is_accepted, "ok"), error.where(~is_accepted, "")
    judged = node.assign(
        status=status.transpose(*node["status"].dims).assign_attrs(node["status"].attrs),
        error=error.transpose(*node["error"].dims).assign_attrs(node["error"].attrs),
    )
    return judged.assign_attrs(_request(node.attrs, bounds))


def _request(attributes: Mapping[Hashable, Any], bounds: Sequence[Bound]) -> dict[Hashable, Any]:
    """Return the attributes of a dataset whose sweep accepts the bounds, so that its precisions are compared."""
    sweep = json.loads(str(attributes.get("sweep") or "{}"))
    return {**attributes, "sweep": json.dumps({**sweep, "accept": list(map(str, bounds))})}
