"""Captions of figures: title, provenance, and remarks that a reader needs."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ngbkit.dataset.assembly import list_origins, nodes
from ngbkit.dataset.contention import select_samples
from ngbkit.dataset.long_form import list_labels
from ngbkit.dataset.storage import Data
from ngbkit.metrics import contracts
from ngbkit.metrics.disturbances import describe_contention
from ngbkit.metrics.drift import describe_drift
from ngbkit.metrics.unchecked import count_unchecked, explain_inconclusive
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.records import MEASURED, OPEN
from ngbkit.user_text import format_count

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd


# Of a line of the width of a page.
_TITLE_LETTERS, _SUBTITLE_LETTERS = 84, 130


def build_title(
    text: str,
    data: Data,
    frame: pd.DataFrame,
    remarks: Sequence[str] = (),
    *,
    against: Collection[str] = (),
    baseline: str = BASELINE,
    ci: float | None = None,
    absolute: bool = False,
    evaluated: bool = False,
) -> alt.TitleParams:
    """The title of a figure; its subtitle has the provenance and the remarks, one per line.

    `frame` holds the rows of the figure; `against` names the dims along which columns are compared
    (``"compiler"``, ``"batch_size"``), for a remark on each column that is not. `ci` is the probability that the drawn
    intervals cover. Numbers that are `absolute`, not ratios, get a remark on what they differ by between groups. Costs
    in answers are `evaluated` over other samples than those that are timed.
    """
    groups = len(frame[["network", "batch_size"]].drop_duplicates()) if absolute else 1
    lines = [
        describe_provenance(data, frame, evaluated=evaluated),
        *([f"bars: {100 * ci:g} % intervals"] if ci is not None and frame["low"].notna().any() else []),
        *remarks,
        *(["synthetic: nothing was measured"] if data.attrs.get("synthetic") else []),
        *contracts.list_uncompared(data, against, baseline=baseline),
        *describe_open(frame),
        *describe_settling(data, frame),
        # Groups are measured at different times, between which the machine may drift.
        *filter(None, [describe_drift(data) if groups > 1 else ""]),
    ]
    heads = textwrap.wrap(text, _TITLE_LETTERS)
    return build_heading(heads if len(heads) > 1 else text, lines, _SUBTITLE_LETTERS)


def build_heading(text: str | list[str], remarks: Sequence[str], letters: int) -> alt.TitleParams:
    """Build a title with remarks below it, wrapped at so many letters."""
    import altair as alt

    subtitle = [part for remark in remarks for part in _wrap(remark, letters)]
    return alt.TitleParams(text, subtitle=subtitle, fontSize=16, offset=16)


def _wrap(text: str, letters: int) -> list[str]:
    """Wrap a remark at so many letters; a line that the next one continues ends with a space."""
    *others, last = textwrap.wrap(text, letters, break_on_hyphens=False) or [""]
    return [*(f"{line} " for line in others), last]


def unwrap(lines: str | Sequence[str]) -> list[str]:
    """Join the lines of `_wrap` to remarks again."""
    return (lines if isinstance(lines, str) else "\n".join(lines)).replace(" \n", " ").split("\n")


def describe_provenance(data: Data, frame: pd.DataFrame | None = None, *, evaluated: bool = False) -> str:
    """Number of samples that estimates use, devices and run; only the devices of `frame`, if there is one."""
    parts = list(nodes(data).values())
    if evaluated:
        counts = [node["evaluated_samples"].values.ravel() for node in parts if "evaluated_samples" in node]
    else:
        measured = [select_samples(node)["latency"] for node in parts if "latency" in node]
        counts = [latency.notnull().sum("repeat").values.ravel() for latency in measured]
    samples = np.concatenate(counts) if counts else np.array([], int)
    samples = samples[samples > 0]
    devices = list_labels(data, "device")
    if frame is not None and "device" in frame:
        devices = [label for label in devices if label in set(frame["device"])]
    items = [f"device {', '.join(devices)}"]
    if len(samples):
        least, most = int(samples.min()), int(samples.max())
        count = f"{least} to {most}" if least != most else f"{most}"
        items.insert(0, f"{count} evaluated samples" if evaluated else f"median of {count} samples per trial")
    if data.attrs.get("source"):
        items.append(str(data.attrs["source"]))
    if data.attrs.get("run_id"):
        runs = str(data.attrs["run_id"]).split(", ")
        # A merge of many runs names the first and the last; its attributes list them all.
        items.append(f"run {', '.join(runs)}" if len(runs) < 4 else f"{len(runs)} runs, {runs[0]} to {runs[-1]}")
    if origins := list_origins(data):
        items.append(f"{format_count(sum(origins.values()), 'trial', 'trials')} known from run {', '.join(origins)}")
    return " · ".join(items)


def describe_open(frame: pd.DataFrame) -> list[str]:
    """The number of trials that are pending, and of those that are predicted, which no figure draws."""
    counts = {status: int((frame["status"] == status).sum()) for status in OPEN}
    return [f"{format_count(count, 'trial is', 'trials are')} {status}" for status, count in counts.items() if count]


def describe_settling(data: Data, frame: pd.DataFrame) -> list[str]:
    """Describe the run's disturbances, and count the marks that are not conclusive and those that were not checked."""
    state = describe_contention(data)
    count = int((~frame["conclusive"].astype(bool) & (frame["status"] == "ok")).sum()) if "conclusive" in frame else 0
    reason = explain_inconclusive(data, plural=count > 1) if count else ""
    # A grid of statuses has no marks.
    look = " (drawn hollow or pale)" if "value" not in frame or frame["value"].notna().any() else ""
    subject = format_count(count, "trial is", "trials are")
    inconclusive = f"{subject} not conclusive{look}, since {reason}" if count else ""
    return [*filter(None, ["; ".join(filter(None, [state, inconclusive]))]), *count_unchecked(frame, look)]


def describe_failures(frame: pd.DataFrame) -> list[str]:
    """The number of trials without a result, by compiler and status, for figures that cannot draw them."""
    failed = frame[~frame["status"].isin([*MEASURED, *OPEN])]
    if failed.empty:
        return []
    counts = Counter(zip(failed["compiler"], failed["status"], strict=True))
    items = [f"{compiler} {status} {count}" for (compiler, status), count in counts.items()]
    return [f"no result: {', '.join(items)}"]
