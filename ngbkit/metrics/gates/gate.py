"""A gate between two versions: the verdict of each trial, whether the gate passes, and how to print it.

Of 40 trials, two are outside of their 95 % interval by chance. So each trial has a one-sided test of "slower by the
margin at most", and the tests are combined by Holm's procedure (1979, "A Simple Sequentially Rejective Multiple Test
Procedure", Scandinavian Journal of Statistics 6), which keeps the probability of any false alarm below `ALPHA` whatever
the trials have in common.

The tests reach far into the tails, where the spread that few rounds show is too uncertain for a normal distribution:
they use Student's t (`ngbkit.metrics.statistics.FAMILY_DEGREES`). ``tests/metrics/gates/test_regressions.py`` counts
false alarms of 10 to 40 rounds and 1 to 40 trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ngbkit.device.timing.normal import LEVEL
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.statistics import FAMILY_DEGREES, adjust_by_holm, estimate_deviation, to_normal_scores
from ngbkit.report import Report, Reported
from ngbkit.sweep.json_values import to_json_value
from ngbkit.sweep.trials import split_labels
from ngbkit.tabular import Texts
from ngbkit.user_text import format_value

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["slower", "failed", "not conclusive", "not judged", "not slower"]
"""``"slower"`` by more than the margin, beyond chance; ``"failed"`` where the earlier side was measured and the later
one failed; ``"not slower"`` than the margin, with 95 % confidence; ``"not conclusive"`` where neither is sure, or
outputs were not checked; and ``"not judged"`` where the earlier side failed."""

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

ALPHA = 0.05
"""The probability of any false alarm among all trials, and of a trial that passes although it is slower."""

MARGIN = 0.01
"""The slowdown that is no regression unless the user says otherwise."""

FailOn = Literal["slower", "inconclusive"]
FAIL_ON: tuple[FailOn, ...] = get_args(FailOn)
"""The reasons to fail a gate: trials that are slower or no longer run, and trials that are not conclusive."""

_SURE: tuple[Verdict, ...] = ("slower", "failed", "not slower")
_CAUSES: Mapping[FailOn, tuple[Verdict, ...]] = {"slower": ("slower", "failed"), "inconclusive": ("not conclusive",)}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Gate(Reported):
    """The verdicts of all trials that the earlier side measured, or that failed there.

    `trials` has one row per trial: its labels; ``before`` and ``after``, the compared values; ``slowdown``, how many
    times as long a call takes after, with ``low`` and ``high``, its 95 % interval; ``verdict``, one of `VERDICTS`; and
    ``reason``, why it failed, was not checked, or is not judged.
    """

    trials: pd.DataFrame
    margin: float  # the slowdown that is accepted: 0.02 for 2 %
    compared: str  # what ``before`` and ``after`` are: ``"latency, measured in turns"``
    warnings: tuple[str, ...] = ()  # what weakens the verdicts, in sentences

    def count(self, verdict: Verdict) -> int:
        """The number of trials with that verdict."""
        return int((self.trials["verdict"] == verdict).sum())

    def passes(self, fail_on: Iterable[FailOn] = ("slower",)) -> bool:
        """Return whether no trial has a verdict that fails the gate."""
        return not any(self.count(verdict) for cause in fail_on for verdict in _CAUSES[cause])

    def list_unjudged_compilers(self) -> list[str]:
        """List the compilers whose trials have no sure verdict."""
        is_sure = self.trials["verdict"].isin(_SURE).groupby(self.trials["compiler"], sort=False).any()
        return [str(compiler) for compiler in is_sure.index[~is_sure]]

    def describe_outcome(self, fail_on: Iterable[FailOn] = ("slower",)) -> str:
        """Describe the outcome in a word, and the compilers without a known result."""
        if not self.passes(fail_on):
            return "failed"
        unjudged = self.list_unjudged_compilers()
        names = "any compiler" if len(unjudged) == self.trials["compiler"].nunique() else " and ".join(unjudged)
        return f"passed, but no trial of {names} could be judged" if unjudged else "passed"

    def to_report(self) -> Report:
        """Build the counts of the verdicts, and the table of the trials, the worst verdicts first."""
        ordered = self.trials.sort_values("verdict", key=lambda verdicts: verdicts.map(VERDICTS.index), kind="stable")
        labels = [str(name) for name in ordered if name not in _NUMBERS]
        rows = [
            {
                **{name: format_value(row[name]) for name in labels},
                "slowdown": str(Estimate(row["slowdown"], row["low"], row["high"])),
                "verdict": ": ".join(filter(None, [row["verdict"], row["reason"]])),
            }
            for row in ordered.to_dict("records")
        ]
        return Report(sentences=[str(self)], frames=[Texts.of_rows(rows)])

    def to_json(self) -> dict[str, Any]:
        """The gate as plain JSON."""
        return {
            "margin": self.margin,
            "compared": self.compared,
            "verdicts": {verdict: self.count(verdict) for verdict in VERDICTS},
            "warnings": list(self.warnings),
            "trials": to_json_value(self.trials.to_dict("records")),
        }

    def __str__(self) -> str:
        total, counts = len(self.trials), {verdict: self.count(verdict) for verdict in VERDICTS}
        parts = [
            f"{counts['slower']} of {total} trials slower by more than {100 * self.margin:g} % ({self.compared}; "
            f"unchanged code has any such alarm in at most {100 * ALPHA:g} % of gates)"
        ]
        parts += [f"{counts['failed']} failed"] if counts["failed"] else []
        parts += [f"{counts[name]} {name}" for name in ("not conclusive", "not judged") if counts[name]]
        return "; ".join([*parts, f"{counts['not slower']} not slower"]) + "."


def build_gate(
    judged: pd.DataFrame, lost: pd.DataFrame, *, margin: float, compared: str, warnings: Iterable[str] = ()
) -> Gate:
    """Judge the trials that both sides measured, as one family, and build their gate with the `lost` ones.

    Those have a verdict and a reason, and no numbers. UsageError: there is no trial, or only such that failed before.
    """
    import pandas as pd

    if len(judged):
        slowdown, low, high = (judged[name] for name in ("slowdown", "low", "high"))
        rounds, conclusive = judged["rounds"], judged["conclusive"]
        verdicts = judge(slowdown, low, high, level=LEVEL, rounds=rounds, conclusive=conclusive, margin=margin)
        judged = judged.assign(verdict=verdicts)
    nothing = dict.fromkeys(("before", "after", "slowdown", "low", "high"), math.nan)
    frames = [judged, lost.assign(**nothing, rounds=0, conclusive=False)]
    trials = pd.concat([frame for frame in frames if len(frame)] or frames[:1], ignore_index=True)
    if trials.empty:
        raise UsageError(
            "no trial to judge: the two sides have no trial in common, beside what is compared with itself."
        )
    if (trials["verdict"] == "not judged").all():
        reasons = ", ".join(dict.fromkeys(trials["reason"]))
        raise UsageError(f"no trial to judge: none has a result before ({reasons}). Mend that side, and measure again.")
    return Gate(trials=trials, margin=margin, compared=compared, warnings=tuple(warnings))


def judge(
    slowdown: ArrayLike,
    low: ArrayLike,
    high: ArrayLike,
    *,
    level: float,
    rounds: ArrayLike,
    conclusive: ArrayLike,
    margin: float = MARGIN,
    alpha: float = ALPHA,
) -> NDArray[np.str_]:
    """Judge trials that both sides measured: one of `VERDICTS` for each; without an interval it is not conclusive.

    `alpha` is the probability of any false alarm, and of a trial that passes although it is slower.
    """
    deviation = estimate_deviation(low, high, level)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = np.where(deviation > 0, (np.log(np.asarray(slowdown, float)) - math.log1p(margin)) / deviation, np.nan)
    normal = to_normal_scores(score, rounds, FAMILY_DEGREES)
    usable = np.asarray(conclusive, bool) & ~np.isnan(normal)
    slower = np.zeros(usable.shape, bool)
    slower[usable] = adjust_by_holm(ndtr(-normal[usable])) < alpha
    fine = usable & (ndtr(normal) < alpha)
    return np.select([slower, fine], ["slower", "not slower"], "not conclusive")


def judge_lost(before: str, after: str) -> dict[str, str]:
    """Judge a trial without a value on both sides, by why it failed before and after, empty where it did not."""
    if before:
        suffix = f", {after} after" if after else ""
        return {
            "verdict": "not judged",
            "reason": f"{before} {'on both sides' if before == after else 'before' + suffix}",
        }
    return {"verdict": "failed" if after else "not conclusive", "reason": after}


_NUMBERS = frozenset({"before", "after", "slowdown", "low", "high", "rounds", "conclusive", "verdict", "reason"})


def parse_fail_on(text: str) -> tuple[FailOn, ...]:
    """Parse ``slower,inconclusive``; UnknownNameError or UsageError if there is another word, or none."""
    causes = split_labels(text)
    for cause in causes:
        if cause not in FAIL_ON:
            raise UnknownNameError("cause of --fail-on", cause, FAIL_ON)
    if not causes:
        raise UsageError(f"invalid --fail-on: got {text!r}; expected {' or '.join(FAIL_ON)}, or both with a comma.")
    return tuple(cause for cause in FAIL_ON if cause in causes)
