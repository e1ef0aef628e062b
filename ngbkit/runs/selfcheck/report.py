"""A self-check for people: a sentence on what it comes to, what disturbed, and two tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from ngbkit.metrics import tables
from ngbkit.runs.selfcheck.record import LEVEL, TARGET, Bias, Noise, SelfCheck

if TYPE_CHECKING:
    import pandas as pd


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.3g} %"


def _factor(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _covered(noise: Noise) -> str:
    if math.isnan(noise.coverage):
        return "–"
    interval = f"{100 * noise.coverage_low:.1f} to {100 * noise.coverage_high:.1f} %"
    return f"{100 * noise.coverage:.1f} % ({interval})"


def _counted(noise: Noise) -> str:
    others = {"failed": noise.failed, "still to be measured": noise.pending}
    return ", ".join([str(noise.groups), *(f"{count} {what}" for what, count in others.items() if count)])


# what it is called, how it is written, what it says
_FIGURES: tuple[tuple[str, Callable[[Noise], str], str], ...] = (
    ("groups", _counted, "of two columns that are the same"),
    ("samples", lambda noise: f"{noise.samples:g} in {noise.rounds:g} rounds", "a column, the median over the groups"),
    (
        "noise floor",
        lambda noise: _percent(noise.noise_floor),
        f"half a {LEVEL:.0%} interval, median: rounds of one pair of processes alone",
    ),
    ("smallest speed-up", lambda noise: _factor(noise.smallest_speedup), "would be told from 1 in nine groups of ten"),
    (
        "between processes",
        lambda noise: _percent(noise.process_sd),
        "standard deviation of the ratio of two that run the same",
    ),
    (
        "between rounds",
        lambda noise: _percent(noise.round_sd),
        "standard deviation of the ratio within a group, median",
    ),
    ("drift", lambda noise: _percent(noise.drift), "of the latency over the groups; a speed-up does not feel it"),
    ("coverage", _covered, f"of 1 by the {LEVEL:.0%} intervals, with its own {LEVEL:.0%} interval"),
    (
        "coverage, rounds alone",
        lambda noise: _percent(noise.coverage_within),
        "of intervals without an allowance for processes",
    ),
    (
        "disturbed",
        lambda noise: _percent(noise.disturbed_share),
        "of the samples are marked: something else had the cores",
    ),
)


def sentences(check: SelfCheck) -> list[str]:
    """What the figures come to: what can be told apart here, and whether the intervals are right."""
    smallest = check.quiet.smallest_speedup
    told = [
        f"A speed-up of {smallest:.4f} or more, or of {1 / smallest:.4f} or less, can be told from none here."
        if math.isfinite(smallest)
        else "There are too few rounds for intervals; take more repeats (-r)."
    ]
    for noise, where in ((check.quiet, ""), (check.disturbed, " beside a busy process")):
        if noise is not None and noise.coverage_high < LEVEL:
            told.append(
                f"The {LEVEL:.0%} intervals cover the truth in {100 * noise.coverage:.1f} % of the groups{where}: they "
                "are too narrow. Look for what disturbs the machine, and check it again."
            )
    off = [one for one in check.bias if not one.problem and not one.within]
    told += [
        f"{one.network} takes {one.ratio:.3f} times as long in ngbkit ({one.compiler}) as in {one.tool}." for one in off
    ]
    return told


def noise_table(check: SelfCheck) -> pd.DataFrame:
    """One row a figure, one column for the quiet groups and one for those beside a busy process."""
    import pandas as pd

    columns = (
        {"quiet": check.quiet}
        if check.disturbed is None
        else {"quiet": check.quiet, "beside a busy process": check.disturbed}
    )
    rows = [
        {"figure": name, **{label: write(noise) for label, noise in columns.items()}, "what it is": about}
        for name, write, about in _FIGURES
    ]
    table = pd.DataFrame(rows)
    table.attrs["title"] = f"identity against identity: {check.device}, {check.chip}, {check.threads} threads"
    return table


def bias_table(check: SelfCheck) -> pd.DataFrame:
    """One row a network and a vendor's tool."""
    import pandas as pd

    table = pd.DataFrame([_bias_row(one) for one in check.bias])
    table.attrs["title"] = f"our median latency over the vendors' own tools' (target {TARGET[0]} to {TARGET[1]})"
    return table


def to_text(check: SelfCheck) -> str:
    """For a terminal."""
    parts = ["\n".join(check.conditions), tables.to_text(noise_table(check))]
    if check.bias:
        parts.append(tables.to_text(bias_table(check)))
    parts.append("\n".join([*sentences(check), _origin(check)]))
    return "\n\n".join(part for part in parts if part)


def to_html(check: SelfCheck) -> str:
    """For a notebook: without script or request."""
    parts = [f"<p>{escape(line)}</p>" for line in check.conditions]
    parts.append(tables.to_html(noise_table(check)))
    if check.bias:
        parts.append(tables.to_html(bias_table(check)))
    parts += [f"<p>{escape(line)}</p>" for line in sentences(check)]
    return "".join([*parts, f"<p><small>{escape(_origin(check))}</small></p>"])


def _bias_row(one: Bias) -> dict[str, str]:
    what = {"network": one.network, "compiler": one.compiler, "tool": one.tool}
    if one.problem:
        return {**what, "ratio": "–", "95 % interval": "", "ours (ms)": "", "theirs (ms)": "", "": one.problem}
    return {
        **what,
        "ratio": f"{one.ratio:.3f}",
        "95 % interval": "–" if math.isnan(one.low) else f"{one.low:.3f} to {one.high:.3f}",
        "ours (ms)": f"{1e3 * one.ours_s:.3f}",
        "theirs (ms)": f"{1e3 * one.theirs_s:.3f}",
        "": "" if one.within else "outside the target",
    }


def _origin(check: SelfCheck) -> str:
    return f"run {check.run}, {check.created}, ngbkit {check.ngbkit_version}"
