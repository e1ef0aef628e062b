"""The configuration that serves most under a deadline: the highest throughput whose latency keeps it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from ngbkit import validation
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.device.timing.normal import LEVEL
from ngbkit.metrics import acceptance
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.estimate import Estimate, format_time
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.serving.configurations import NUMBERS, list_configurations
from ngbkit.report import Report, Reported
from ngbkit.sweep.json_values import to_json_value
from ngbkit.user_text import format_seconds, format_share, format_value, join_names, parse_duration

if TYPE_CHECKING:
    import pandas as pd

_PROBABILITY = Annotated[float, validation.share(0, "a probability from 0 to below 1, such as 0.95")]
_LABELS = ("device", "compiler", "batch_size")
_EVIDENCE = ("probability", "samples", "left_out", "samples_needed", "calls", "conclusive")
_NUMBERS_OF_SECOND = (*NUMBERS[:3], "probability", "calls", "conclusive")
_LONGEST = 160


def choose(
    data: Data,
    deadline: str | float,
    quantile: float = 0.99,
    *,
    probability: float = 0.0,
    unlike: Unlike = "mask",
    untuned: bool = False,
    accept: str | Iterable[str] = (),
) -> Choices:
    """The compiler, batch size and device of the highest throughput whose latency keeps a deadline, for each network.

    A configuration keeps it if its estimated quantile of latency is at most the deadline; the probability says how sure
    that is. A latency is of one call with the whole batch, by a single caller without a queue.

    Parameters
    ----------
    data
        The dataset or tree of a run, with its samples.
    deadline
        The longest latency, such as ``"50ms"``, or in seconds.
    quantile
        The share of the calls that must keep it, from 0.5 to below 1.
    probability
        The least probability with which a configuration must keep the deadline, in addition to its estimate.
    unlike
        Configurations that were timed under another contract than `identity` of their group are excluded with the
        reason (``"mask"``), are an error (``"error"``), or are chosen from as well (``"allow"``).
    untuned
        Whether to choose from those whose contract marks them as untuned, although their compiler supports tuning.
        Those whose outputs were not checked are never chosen.
    accept
        Bounds on the cost of lower precisions, such as ``"accuracy>=0.95"``, in place of those of the sweep: what costs
        more is excluded.

    Returns
    -------
    Choices
        The choices, all configurations, and what was excluded and why; it prints as sentences.

    Raises
    ------
    UsageError
        The deadline, the quantile or a keyword is invalid.
    MetricError
        The dataset has no samples in rounds, or lacks a cost that is bounded; or contracts differ, and `unlike` is
        ``"error"``.

    Notes
    -----
    The probability is from replicates of rounds, not of samples, since the samples of a round resemble each other; it
    allows for differences between processes as all intervals do. It does not trust the slowest sample to be the slowest
    call: with 100 samples below any deadline, the probability that 99 % of all calls keep it is at most 0.63
    (`ngbkit.metrics.serving.configurations`), and `Choices` says how many samples are needed.

    Short calls are timed in blocks, whose mean hides the slow ones. No call takes longer than its whole block, so the
    latency here is that of the block, an upper bound, and the probability is a lower one.

    Examples
    --------
    >>> print(ds.ngb.choose(deadline="50ms"))  # doctest: +SKIP
    resnet18 in openvino at batch 4 on cpu: 123 ± 4 samples/s, 99 % of calls within 41 ± 2 ms (deadline 50 ms, p = 0.97)
    """
    deadline_s = parse_duration(deadline, "deadline")
    share = validation.check("quantile", validation.Quantile, quantile)
    validation.check("probability", _PROBABILITY, probability)
    data = acceptance.accept(data, accept) if accept else data
    trials = list_configurations(data, share, deadline_s, unlike=unlike, untuned=untuned)
    trials["excluded"] = [_find_exclusion(row, deadline_s) for row in trials.to_dict("records")]
    networks = ["workload", *list_factors(data)]
    usable = trials[trials["excluded"] == ""]
    return Choices(
        deadline_s=deadline_s,
        quantile=share,
        probability=probability,
        networks=tuple(networks),
        table=_build_table(trials, networks, deadline_s, probability),
        trials=usable.drop(columns=["excluded", "status", "error"]).reset_index(drop=True),
        excluded=trials.loc[trials["excluded"] != "", [*networks, *_LABELS, "excluded"]].reset_index(drop=True),
    )


def _find_exclusion(row: Mapping[Any, Any], deadline_s: float) -> str:
    """Explain why a trial cannot be chosen; empty if it can."""
    reason = str(row["excluded"])
    calls = int(row["calls"])
    # The mean of a block says too little if only the whole block is longer than the deadline.
    if not reason and row["latency"] / calls <= deadline_s < row["latency"]:
        return "short calls are timed in blocks, which here hide whether a single call keeps the deadline"
    return reason


def _build_table(trials: pd.DataFrame, networks: list[str], deadline_s: float, probability: float) -> pd.DataFrame:
    """One row per network: the chosen configuration, or the nearest to the deadline, and the runner-up."""
    import pandas as pd

    rows = [
        {**dict(zip(networks, labels, strict=True)), **_choose(group[group["excluded"] == ""], deadline_s, probability)}
        for labels, group in trials.groupby(networks, sort=False, dropna=False)
    ]
    second = ("second", *(f"second_{name}" for name in _NUMBERS_OF_SECOND))
    return pd.DataFrame(rows, columns=[*networks, *_LABELS, "keeps", *NUMBERS, *_EVIDENCE, *second])


def _choose(candidates: pd.DataFrame, deadline_s: float, probability: float) -> dict[Any, Any]:
    """Choose the fastest of the candidates that keep the deadline; of the others, the nearest."""
    if candidates.empty:
        return {"device": "", "compiler": "", "keeps": False, "second": ""}
    chances = candidates["probability"].fillna(0.0)
    keeps = (candidates["latency"] <= deadline_s) & (chances >= probability)
    ordered = candidates.assign(keeps=keeps, speed=candidates["throughput"].where(keeps, 0.0), chance=chances)
    ordered = ordered.sort_values(["keeps", "speed", "chance", "latency"], ascending=[False, False, False, True])
    first, *rest = ordered.to_dict("records")
    second = next((row for row in rest if row["keeps"]), {})
    numbers = {f"second_{name}": second.get(name, math.nan) for name in _NUMBERS_OF_SECOND}
    return {**first, "second": _name_setting(second) if second else "", **numbers}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Choices(Reported):
    """The configuration of the highest throughput whose latency keeps a deadline, for each network.

    `table` has one row per network: ``workload, <factors>, device, compiler, batch_size``; ``keeps``, false where none
    keeps the deadline and the row is the nearest; ``throughput`` (samples/s) and ``latency`` (s, the quantile), each
    with the ``_low`` and ``_high`` end of its 95 % interval; ``probability``, that the quantile keeps the deadline;
    ``samples``, ``left_out`` (contended) and ``samples_needed`` for an upper end; ``calls`` that a sample spans;
    ``conclusive``; and ``second``, the runner-up, with ``second_throughput`` and ``second_probability``.
    """

    deadline_s: float
    quantile: float  # the share of the calls that must keep it
    probability: float  # the least with which a configuration must keep it
    networks: tuple[str, ...]  # the columns that name a network
    table: pd.DataFrame
    trials: pd.DataFrame  # all configurations to choose from, with the same columns
    excluded: pd.DataFrame  # the others, with the reason in the column ``excluded``

    @property
    def verdicts(self) -> list[str]:
        """The choice for each network, in a sentence or two."""
        return [self._describe_choice(row) for row in self.table.to_dict("records")]

    @property
    def notes(self) -> list[str]:
        """The limits of the choices: samples that are too few, blocks of calls, disturbances, and excluded trials."""
        notes = [*self._explain_few_samples()]
        trials = self.trials
        if count := int((trials["calls"] > 1).sum()):
            notes.append(
                f"{count} of {len(trials)} configurations were timed in blocks of calls, too short to be timed "
                "one by one: their quantile of single calls is not known. Their latency here is that of a whole block, "
                "which no call of it exceeds, and their probability a lower bound (p ≥)."
            )
        if count := int(trials["left_out"].sum()):
            total = count + int(trials["samples"].sum())
            notes.append(f"{count} of {total} samples were left out, since other work slowed them")
        if not trials["conclusive"].all():
            notes.append("? not conclusive: too few of its rounds were uncontended")
        for reason, rows in self.excluded.groupby("excluded", sort=False):
            text = str(reason) if len(str(reason)) <= _LONGEST else f"{str(reason)[: _LONGEST - 1]}…"
            notes.append(f"excluded: {join_names(self._name_excluded(rows))} ({text})")
        return notes

    def to_json(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        frames = {"choices": self.table, "trials": self.trials, "excluded": self.excluded}
        return {
            "deadline_s": self.deadline_s,
            "quantile": self.quantile,
            **{name: to_json_value(frame.to_dict("records")) for name, frame in frames.items()},
            "verdicts": self.verdicts,
            "notes": self.notes,
        }

    def to_frame(self) -> pd.DataFrame:
        """The choices as a table for people, with estimates as the cells."""
        import pandas as pd

        rows = [self._format_row(row) for row in self.table.to_dict("records")]
        frame = pd.DataFrame(rows, dtype=object)  # floats would lose their intervals
        frame.attrs["title"] = (
            f"Highest throughput within {format_seconds(self.deadline_s)} for {self._describe_share()}"
        )
        return frame

    def to_report(self) -> Report:
        """Build the choice of each network in a sentence, the table, and its limits."""
        return Report(sentences=self.verdicts, frames=[to_texts(self.to_frame())], notes=self.notes)

    def _describe_share(self) -> str:
        return f"{format_share(self.quantile, '.10g')} of calls"

    def _describe_choice(self, row: Mapping[Any, Any]) -> str:
        network, deadline = _name_network(row, self.networks), format_seconds(self.deadline_s)
        if not row["compiler"]:
            return f"{network}: no configuration to choose from"
        if not row["keeps"]:
            least = f" with a probability of at least {self.probability:g}" if self.probability else ""
            return (
                f"{network}: nothing keeps {deadline} for {self._describe_share()}{least}; nearest is "
                f"{_name_setting(row)}, {self._describe_numbers(row)} ({_format_probability(row)})"
            )
        limits = f"deadline {deadline}, {_format_probability(row)}"
        sentence = f"{network} in {_name_setting(row)}: {self._describe_numbers(row)} ({limits})"
        parts = [sentence, *self._describe_surest(row)]
        if row["second"]:
            second = {name: row[f"second_{name}"] for name in _NUMBERS_OF_SECOND}
            chance = _format_probability(second)
            parts.append(f"next is {row['second']} with {_estimate_rate(second)} samples/s ({chance})")
        return "; ".join(parts)

    def _describe_numbers(self, row: Mapping[Any, Any]) -> str:
        at_most = "at most " if row["calls"] > 1 else ""
        return f"{_estimate_rate(row)} samples/s, {self._describe_share()} within {at_most}{self._format_latency(row)}"

    def _format_latency(self, row: Mapping[Any, Any]) -> str:
        return format_time(row["latency"], row["latency_low"], row["latency_high"], conclusive=bool(row["conclusive"]))

    def _describe_surest(self, row: Mapping[Any, Any]) -> Iterator[str]:
        """The fastest configuration that surely keeps the deadline, where the chosen one does not surely."""
        if row["probability"] >= LEVEL:
            return
        trials = self.trials
        for name in self.networks:
            trials = trials[(trials[name] == row[name]) | (trials[name].isna() & (row[name] != row[name]))]
        sure = trials[(trials["probability"] >= LEVEL) & (trials["latency"] <= self.deadline_s)]
        if sure.empty:
            yield "no configuration surely keeps it"
            return
        best = sure.sort_values("throughput", ascending=False).to_dict("records")[0]
        rate, chance = _estimate_rate(best), _format_probability(best)
        yield f"surely {_name_setting(best)} keeps it, with {rate} samples/s ({chance})"

    def _explain_few_samples(self) -> Iterator[str]:
        few = self.trials[self.trials["samples"] < self.trials["samples_needed"]]
        if few.empty:
            return
        counts = sorted({int(count) for count in few["samples"]})
        samples = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        most = float(few["samples_needed"].max())
        step = 10.0 ** max(0, math.floor(math.log10(most)) - 1)
        needed = int(math.ceil(most / step) * step)
        yield (
            f"{samples} samples say little of the slowest {100 - 100 * self.quantile:.3g} % of calls: in {len(few)} of "
            f"{len(self.trials)} configurations nothing bounds the quantile from above, and no probability is high. "
            f"Measure more: -r {needed}."
        )

    def _name_excluded(self, rows: pd.DataFrame) -> Iterator[str]:
        """Name configurations; a compiler that has no other is named alone."""
        usable = set(self.trials["compiler"])
        for compiler, members in rows.groupby("compiler", sort=False):
            elsewhere = len(self.excluded[self.excluded["compiler"] == compiler]) > len(members)
            if compiler in usable or elsewhere or len(members) == 1:
                for row in members.to_dict("records"):
                    yield f"{_name_network(row, self.networks)} in {_name_setting(row)}"
            else:
                yield f"all {len(members)} of {compiler}"

    def _format_row(self, row: Mapping[Any, Any]) -> dict[str, Any]:
        labels = {name: row[name] if row[name] == row[name] else "" for name in self.networks}
        return {
            **labels,
            **{name: row[name] for name in ("device", "compiler")},
            "batch_size": int(row["batch_size"]) if row["compiler"] else "",
            "samples/s": _estimate_rate(row) if row["compiler"] else "",
            f"{self._describe_share()} within": self._format_latency(row) if row["compiler"] else "",
            "keeps it": "yes" if row["keeps"] else "no",
            "p": _format_probability(row).removeprefix("p ").removeprefix("= ") if row["compiler"] else "",
            "runner-up": row["second"],
        }


def _name_network(row: Mapping[Any, Any], networks: Sequence[str]) -> str:
    factors = [f"{name} {format_value(row[name])}" for name in networks[1:] if row[name] == row[name]]
    return ", ".join([row["workload"], *factors])


def _name_setting(row: Mapping[Any, Any]) -> str:
    """Name what a network runs in: ``openvino at batch 4 on cpu``."""
    return f"{row['compiler']} at batch {int(row['batch_size'])} on {row['device']}"


def _estimate_rate(row: Mapping[Any, Any]) -> Estimate:
    return Estimate(row["throughput"], row["throughput_low"], row["throughput_high"], bool(row["conclusive"]))


def _format_probability(row: Mapping[Any, Any]) -> str:
    """The probability that the deadline is kept; of a thousand replicates, none proves certainty."""
    probability = row["probability"]
    if math.isnan(probability):
        return "too few rounds for a probability"
    if row["calls"] > 1:
        return f"p ≥ {min(probability, 0.99):.2f}"
    if probability > 0.99:
        return "p > 0.99"
    return "p < 0.01" if probability < 0.01 else f"p = {probability:.2f}"
