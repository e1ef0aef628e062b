"""What stands above a figure: what it shows, of what it was made, and what a reader must know to read it right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.metrics import contracts
from ngbkit.sweep.records import OPEN
from ngbkit.sweep.trials import BASELINE

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


def title(
    text: str,
    data: Data,
    frame: pd.DataFrame,
    remarks: Sequence[str] = (),
    *,
    against: Iterable[str] = (),
    baseline: str = BASELINE,
) -> alt.TitleParams:
    """The title of a figure, with its provenance and its remarks below it, a line each.

    Parameters
    ----------
    text
        What is shown.
    data
        Where it is from.
    frame
        The rows that are drawn, of `ngbkit.figures.rows`.
    remarks
        More lines.
    against
        What columns are compared with, for a line on each that is not: ``"compiler"``, ``"batch_size"``, or both.
    baseline
        The compiler that they are compared with.
    """
    import altair as alt

    lines = [provenance(data, frame), *remarks, *warnings(data, against, baseline), *pending(frame)]
    return alt.TitleParams(text, subtitle=lines, fontSize=16, offset=16)


def provenance(data: Data, frame: pd.DataFrame | None = None) -> str:
    """How many samples, of which run, on which devices: those of `frame`, where that is what is drawn."""
    found = list(nodes(data).values())
    counts = [node["latency"].notnull().sum("repeat").values.ravel() for node in found if "latency" in node]
    known = np.concatenate(counts) if counts else np.array([], int)
    known = known[known > 0]
    devices = dict.fromkeys(label for node in found for label in np.atleast_1d(node["device"].values).tolist())
    if frame is not None and "device" in frame:
        devices = dict.fromkeys(label for label in devices if label in set(frame["device"]))
    parts = [f"device {', '.join(devices)}"]
    if len(known):
        least, most = int(known.min()), int(known.max())
        samples = f"{least} to {most}" if least != most else f"{most}"
        parts.insert(0, f"median of {samples} samples a trial")
    if data.attrs.get("source"):
        parts.append(str(data.attrs["source"]))
    if data.attrs.get("run_id"):
        runs = str(data.attrs["run_id"]).split(", ")
        # What was merged of many runs names the first and the last: all of them are in its attributes.
        parts.append(f"run {', '.join(runs)}" if len(runs) < 4 else f"{len(runs)} runs, {runs[0]} to {runs[-1]}")
    return " · ".join(parts)


def warnings(data: Data, against: Iterable[str], baseline: str = BASELINE) -> list[str]:
    """What was not measured, and which columns are not compared."""
    said = ["synthetic: nothing was measured"] if data.attrs.get("synthetic") else []
    return [*said, *contracts.remarks(data, against, baseline=baseline)]


def pending(frame: pd.DataFrame) -> list[str]:
    """How many of the trials are still to come, and how many were predicted in their place, which no figure draws."""
    counts = {status: int((frame["status"] == status).sum()) for status in OPEN}
    return [f"{count} trials are {status}" for status, count in counts.items() if count]


def failures(frame: pd.DataFrame) -> list[str]:
    """The trials without a result, by compiler and status, for figures that have no place for them."""
    failed = frame[~frame["status"].isin(["ok", *OPEN])]
    if failed.empty:
        return []
    counts = Counter(zip(failed["compiler"], failed["status"], strict=True))
    said = [f"{compiler} {status} {count}" for (compiler, status), count in counts.items()]
    return [f"no result: {', '.join(said)}"]
