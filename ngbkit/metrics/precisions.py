"""Every column with its precision: what it gains over f32 and over the baseline, what it takes, and what it costs."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import list_factors, to_frame
from ngbkit.dataset.storage import Data
from ngbkit.errors import MetricError
from ngbkit.metrics.disturbances import describe_contention
from ngbkit.metrics.estimate import INCONCLUSIVE, Estimate
from ngbkit.metrics.metric import load_metrics, name_regression
from ngbkit.metrics.originals import find_originals
from ngbkit.metrics.paired_accuracy import describe_losses
from ngbkit.metrics.tables import estimate
from ngbkit.metrics.unchecked import explain_inconclusive
from ngbkit.sweep.column import Column
from ngbkit.sweep.records import MEASURED

if TYPE_CHECKING:
    import pandas as pd

_METRICS = {
    "precision_gain": "speed-up over f32",
    "speedup": "over identity",
    "accuracy": "accuracy",
    "accuracy_change": "change from f32",
    "accuracy_chance": "p",
    "agreement": "agreement",
    "sqnr": "SQNR (dB)",
}
# Of no interest beside the accuracy.
_WITHOUT_LABELS = ("agreement", "sqnr")
_MOST_SLOWDOWNS = 5
_BYTES = {"peak_memory": "memory (MB)", "file_bytes": "file (MB)"}


def precisions(data: Data) -> pd.DataFrame:
    """Every column with its precision: its gain over f32 of its runtime and over the baseline, and its cost.

    Parameters
    ----------
    data
        The dataset or tree of a run.

    Returns
    -------
    pandas.DataFrame
        A row per trial. The columns are ``workload, <factors>, device, batch_size, compiler``; ``precision``, that was
        asked for, and in brackets the one that the runtime computes in where it differs; speed-ups with intervals;
        accuracy, its change and McNemar's p, or without labels agreement and signal to noise, where there were samples;
        peak memory and the file in megabytes; and ``status``. A number that the dataset lacks is no column.
    """
    import pandas as pd

    frame = pd.concat(map(_tabulate, nodes(data).values()), ignore_index=True)
    labels = ["workload", *list_factors(data), "device", "batch_size", "compiler"]
    index = [name for name in labels if name != "device" or frame["device"].nunique() > 1]
    slowdowns = _describe_slowdowns(data, frame)
    columns = [name for name in ("precision", *_METRICS.values(), *_BYTES.values(), "status") if name in frame]
    table: pd.DataFrame = frame.reindex(columns=[*index, *columns]).set_index(index)
    table.attrs["title"] = "precisions"
    table.attrs["notes"] = list(filter(None, [describe_contention(data), describe_losses(data), *slowdowns]))
    if any(not getattr(cell, "conclusive", True) for cell in table.to_numpy().ravel()):
        table.attrs["notes"].append(f"{INCONCLUSIVE} not conclusive: {explain_inconclusive(data)}")
    return table


def _tabulate(node: xr.Dataset) -> pd.DataFrame:
    variables: dict[str, xr.DataArray] = {}
    metrics = load_metrics()
    has_labels = metrics["accuracy"].is_in(node)
    for name, title in _METRICS.items():
        if not metrics[name].is_in(node) or (has_labels and name in _WITHOUT_LABELS):
            continue
        try:
            cells = estimate(node, metrics[name])
        except MetricError:  # without a baseline, or a lower precision
            continue
        variables[title] = cells.reset_coords(drop=True)
    for name, title in _BYTES.items():
        if name in node and bool(node[name].notnull().any()):
            variables[title] = node[name] / 1e6
    trials = xr.Dataset({**variables, "contract": node["contract"], "status": node["status"]})
    frame = to_frame(trials)
    frame = frame[frame["status"] != ""].reset_index(drop=True)
    frame["precision"] = [_name_precision(row) for row in frame.to_dict("records")]
    for title in variables:
        frame[title] = ["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in frame[title]]
    del frame["contract"]
    return frame


def _describe_slowdowns(data: Data, frame: pd.DataFrame) -> list[str]:
    """Describe the columns that are surely slower than in f32, and the piece that loses most, if profiled."""
    gain = _METRICS["precision_gain"]
    sentences: list[str] = []
    gains = list(frame[gain]) if gain in frame else []  # records would be plain numbers
    originals = find_originals(list(dict.fromkeys(frame["compiler"])))
    for row, value in zip(frame.to_dict("records"), gains, strict=False):
        if not isinstance(value, Estimate) or not value.conclusive or not value.high < 1:
            continue
        label, original = str(row["compiler"]), originals[row["compiler"]]
        cell = {name: row[name] for name in ("workload", *list_factors(data), "device", "batch_size") if name in row}
        piece = name_regression(data, (original, label), cell)
        where = f"most in {piece}" if piece else f"--profile and ds.ngb.explain({original!r}, {label!r}) tell where"
        sentences.append(f"Slower than in f32: {label} on {row['workload']} batch {row['batch_size']}: {where}")
    more = len(sentences) - _MOST_SLOWDOWNS
    return [*sentences[:_MOST_SLOWDOWNS], *([f"and {more} more are slower than in f32"] if more > 0 else [])]


def _name_precision(row: dict[Any, Any]) -> str:
    """Name the precision that a label asks for, and the one that the runtime computes in where it differs."""
    requested = Column.read(str(row["compiler"])).precision
    contract = json.loads(row["contract"]) if str(row["contract"]).startswith("{") else {}
    computed = str(contract.get("precision", "")) if row["status"] in MEASURED else ""
    if not requested or not computed or computed == requested:
        return requested or computed or "f32"
    return f"{requested} ({computed})"
