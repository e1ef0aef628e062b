"""Reports a self-check to users: the conditions, tables of the noise and the bias, and the conclusions."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from ngbkit.metrics import tables
from ngbkit.metrics.conclusions import QUIET
from ngbkit.runs.selfcheck.limits import LEVEL, TARGET

if TYPE_CHECKING:
    import pandas as pd

    from ngbkit.runs.selfcheck.record import Bias, Noise, SelfCheck


# A drift of the latency beyond this share is worth a word.
UNSTEADY = 0.1


def _format_percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.3g} %"


def _format_factor(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.4f}"


def _format_coverage(noise: Noise) -> str:
    if math.isnan(noise.coverage):
        return "–"
    interval = f"{100 * noise.coverage_low:.1f} to {100 * noise.coverage_high:.1f} %"
    return f"{100 * noise.coverage:.1f} % ({interval})"


def _format_groups(noise: Noise) -> str:
    others = {"failed": noise.failed, "not measured yet": noise.pending}
    return ", ".join([str(noise.groups), *(f"{count} {state}" for state, count in others.items() if count)])


# The name, the format and the meaning of each figure.
_FIGURES: tuple[tuple[str, Callable[[Noise], str], str], ...] = (
    ("groups", _format_groups, "pairs of processes that run the same block"),
    ("samples", lambda noise: f"{noise.samples:g} in {noise.rounds:g} rounds", "a column: median over the groups"),
    (
        "noise floor",
        lambda noise: _format_percent(noise.noise_floor),
        f"half the width of a {LEVEL:.0%} interval from the rounds of one pair alone: median over the groups",
    ),
    (
        "smallest speed-up",
        lambda noise: _format_factor(noise.smallest_speedup),
        "distinguishable from 1 in nine groups of ten",
    ),
    (
        "between processes",
        lambda noise: _format_percent(noise.process_sd),
        "standard deviation of the latency ratio of two identical processes",
    ),
    (
        "between rounds",
        lambda noise: _format_percent(noise.round_sd),
        "standard deviation of the latency ratio within a group: median over the groups",
    ),
    (
        "drift",
        lambda noise: _format_percent(noise.drift),
        "of the latency over the groups; it cancels in speed-ups",
    ),
    ("coverage", _format_coverage, f"share of {LEVEL:.0%} intervals that cover 1, with its own {LEVEL:.0%} interval"),
    (
        "coverage, rounds alone",
        lambda noise: _format_percent(noise.coverage_within),
        "the same without an allowance for processes",
    ),
    (
        "disturbed",
        lambda noise: _format_percent(noise.disturbed_share),
        "share of samples from rounds in which other work used the cores",
    ),
)


def write_conclusions(check: SelfCheck) -> list[str]:
    """Write sentences on the smallest distinguishable speed-up, on intervals that are too narrow, and on a bias."""
    smallest = check.quiet.smallest_speedup
    sentences = [
        f"A speed-up of {smallest:.4f} or more, or of {1 / smallest:.4f} or less, is distinguishable from none between "
        "two copies of one program here."
        if math.isfinite(smallest)
        else "There are too few rounds for intervals; measure more repeats (-r)."
    ]
    sentences += _warn_of_other_programs(check.quiet)
    for noise, where in ((check.quiet, ""), (check.disturbed, " beside a busy process")):
        if noise is not None and noise.coverage_high < LEVEL:
            sentences.append(
                f"The {LEVEL:.0%} intervals cover the truth in {100 * noise.coverage:.1f} % of the groups{where}: they "
                "are too narrow. Find out what disturbs the machine, then repeat the self-check."
            )
    sentences += [
        f"{bias.network} takes {bias.ratio:.3f} times as long in ngbkit ({bias.compiler}) as in {bias.tool}."
        for bias in check.bias
        if not bias.problem and not bias.within
    ]
    return sentences


def _warn_of_other_programs(noise: Noise) -> list[str]:
    """What two copies cannot show, where there was something to show."""
    reasons = []
    if noise.disturbed_share > QUIET:
        reasons.append(f"{100 * noise.disturbed_share:.0f} % of the samples were disturbed")
    if noise.drift > UNSTEADY:
        reasons.append(f"the latency moved by {100 * noise.drift:.0f} % over the groups")
    if not reasons:
        return []
    return [
        f"{' and '.join(reasons).capitalize()}: two copies of one program suffer alike from that, and two different "
        "programs do not. Trust what a run marks as settled, or wait until the machine is quiet."
    ]


def build_noise_table(check: SelfCheck) -> pd.DataFrame:
    """Build a table with one row a figure, and one column for the quiet and for the disturbed groups each."""
    import pandas as pd

    columns = {"quiet": check.quiet}
    if check.disturbed is not None:
        columns["beside a busy process"] = check.disturbed
    rows = [
        {"figure": name, **{label: write(noise) for label, noise in columns.items()}, "meaning": meaning}
        for name, write, meaning in _FIGURES
    ]
    table = pd.DataFrame(rows)
    table.attrs["title"] = f"identity against identity: {check.device}, {check.chip}, {check.threads} threads"
    return table


def build_bias_table(check: SelfCheck) -> pd.DataFrame:
    """Build a table with one row a network and a vendor's tool."""
    import pandas as pd

    table = pd.DataFrame([_build_bias_row(bias) for bias in check.bias])
    table.attrs["title"] = f"ngbkit's median latency over that of vendors' tools (target {TARGET[0]} to {TARGET[1]})"
    return table


def to_text(check: SelfCheck) -> str:
    """Format a self-check for a terminal."""
    parts = ["\n".join(check.conditions), tables.to_text(build_noise_table(check))]
    if check.bias:
        parts.append(tables.to_text(build_bias_table(check)))
    parts.append("\n".join([*write_conclusions(check), _format_origin(check)]))
    return "\n\n".join(part for part in parts if part)


def to_html(check: SelfCheck) -> str:
    """Format a self-check for a notebook, without scripts or requests."""
    parts = [f"<p>{escape(line)}</p>" for line in check.conditions]
    parts.append(tables.to_html(build_noise_table(check)))
    if check.bias:
        parts.append(tables.to_html(build_bias_table(check)))
    parts += [f"<p>{escape(line)}</p>" for line in write_conclusions(check)]
    return "".join([*parts, f"<p><small>{escape(_format_origin(check))}</small></p>"])


def _build_bias_row(bias: Bias) -> dict[str, str]:
    keys = {"network": bias.network, "compiler": bias.compiler, "tool": bias.tool}
    if bias.problem:
        return {**keys, "ratio": "–", "95 % interval": "", "ngbkit (ms)": "", "tool (ms)": "", "": bias.problem}
    return {
        **keys,
        "ratio": f"{bias.ratio:.3f}",
        "95 % interval": "–" if math.isnan(bias.low) else f"{bias.low:.3f} to {bias.high:.3f}",
        "ngbkit (ms)": f"{1e3 * bias.ours_s:.3f}",
        "tool (ms)": f"{1e3 * bias.theirs_s:.3f}",
        "": "" if bias.within else "outside the target",
    }


def _format_origin(check: SelfCheck) -> str:
    return f"run {check.run}, {check.created}, ngbkit {check.ngbkit_version}"
