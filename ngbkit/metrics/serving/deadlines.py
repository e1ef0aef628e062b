"""The configuration that serves most under a deadline: the highest throughput whose latency keeps it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from ngbkit import validation
from ngbkit.dataset.long_form import list_factors
from ngbkit.dataset.storage import Data
from ngbkit.metrics import acceptance
from ngbkit.metrics.contracts import Unlike
from ngbkit.metrics.serving.choices import Choices, name_configuration, name_setting
from ngbkit.metrics.serving.configurations import NUMBERS, check_quantile, list_configurations
from ngbkit.user_text import parse_duration

if TYPE_CHECKING:
    import pandas as pd

Per = Literal["network", "all"]
_PROBABILITY = Annotated[float, validation.share(0, "a probability from 0 to below 1, such as 0.95")]
_LABELS = ("device", "compiler", "batch_size")


def choose(
    data: Data,
    deadline: str | float,
    quantile: float = 0.99,
    *,
    probability: float = 0.0,
    per: Per = "network",
    unlike: Unlike = "mask",
    untuned: bool = False,
    contended: bool = False,
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
    per
        ``"network"`` chooses one configuration for each network with its factors; ``"all"`` chooses one of all.
    unlike
        Configurations that were timed under another contract than `identity` of their group are excluded with the
        reason (``"mask"``), are an error (``"error"``), or are chosen from as well (``"allow"``).
    untuned
        Whether to choose from those whose contract marks them as untuned, although their compiler supports tuning.
        Those whose outputs were not checked are never chosen.
    contended
        Whether samples count that other work slowed: a device that has other work to do is slower. By default
        they are left out, as all metrics do, wherever enough others remain.
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
    (`ngbkit.metrics.quantiles`), and `Choices` says how many samples are needed.

    Short calls are timed in blocks, whose mean hides the slow ones. No call takes longer than its whole block, so the
    latency here is that of the block, an upper bound, and the probability is a lower one.

    Examples
    --------
    >>> print(ds.ngb.choose(deadline="50ms"))  # doctest: +SKIP
    resnet18 in openvino at batch 4 on cpu: 123 ± 4 samples/s, 99 % of calls within 41 ± 2 ms (deadline 50 ms, p = 0.97)
    """
    deadline_s, share = parse_duration(deadline, "deadline"), check_quantile(quantile)
    validation.check("per", Per, per)
    validation.check("probability", _PROBABILITY, probability)
    data = acceptance.accept(data, accept) if accept else data
    trials = list_configurations(data, share, deadline_s, unlike=unlike, untuned=untuned, contended=contended)
    trials["excluded"] = [_find_exclusion(row, deadline_s) for row in trials.to_dict("records")]
    networks = ["workload", *list_factors(data)]
    usable = trials[trials["excluded"] == ""]
    return Choices(
        deadline_s=deadline_s,
        quantile=share,
        probability=probability,
        networks=tuple(networks),
        table=_build_table(trials, usable, networks if per == "network" else [], deadline_s, probability),
        trials=usable.drop(columns=["excluded", "status", "error"]).reset_index(drop=True),
        excluded=trials.loc[trials["excluded"] != "", [*networks, *_LABELS, "excluded"]].reset_index(drop=True),
    )


def _find_exclusion(row: Mapping[Hashable, Any], deadline_s: float) -> str:
    """Explain why a trial cannot be chosen; empty if it can."""
    reason = str(row["excluded"])
    calls = int(row["calls"])
    # The mean of a block says too little if only the whole block is longer than the deadline.
    if not reason and row["latency"] / calls <= deadline_s < row["latency"]:
        return "short calls are timed in blocks, which here hide whether a single call keeps the deadline"
    return reason


def _build_table(
    trials: pd.DataFrame, usable: pd.DataFrame, networks: list[str], deadline_s: float, probability: float
) -> pd.DataFrame:
    """One row per network: the chosen configuration, or the nearest to the deadline, and the runner-up."""
    import pandas as pd

    factors = [name for name in map(str, trials) if name not in _COLUMNS]
    rows = [
        _choose(candidates, group, ["workload", *factors], deadline_s, probability)
        for group, candidates in _group(trials, usable, networks, factors)
    ]
    return pd.DataFrame(rows, columns=["workload", *factors, *_LABELS, "keeps", *NUMBERS, *_EVIDENCE, *_SECOND])


_EVIDENCE = ("probability", "samples", "left_out", "samples_needed", "calls", "conclusive")
_NUMBERS_OF_SECOND = ("throughput", "throughput_low", "throughput_high", "probability", "calls")
_SECOND = ("second", *(f"second_{name}" for name in _NUMBERS_OF_SECOND))
_COLUMNS = {"workload", *_LABELS, *NUMBERS, *_EVIDENCE, "status", "error", "excluded"}


def _group(
    trials: pd.DataFrame, usable: pd.DataFrame, networks: list[str], factors: list[str]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """Each network with its configurations, of which there may be none; or all networks as one group."""
    if not networks:
        yield {}, usable
        return
    names = ["workload", *factors]
    for labels, members in trials.groupby(names, sort=False, dropna=False):
        group = dict(zip(names, labels if isinstance(labels, tuple) else (labels,), strict=True))
        yield group, usable.loc[usable.index.intersection(members.index)]


def _choose(
    candidates: pd.DataFrame, group: dict[str, Any], networks: list[str], deadline_s: float, probability: float
) -> dict[str, Any]:
    if candidates.empty:
        return {**group, "device": "", "compiler": "", "keeps": False, "second": ""}
    chances = candidates["probability"].fillna(0.0)
    keeps = (candidates["latency"] <= deadline_s) & (chances >= probability)
    ordered = candidates.assign(keeps=keeps, chance=chances)
    # The fastest of those that keep it; of the others, the nearest.
    speeds = np.where(keeps, ordered["throughput"], 0.0)
    order = np.lexsort((ordered["latency"], -ordered["chance"], -speeds, ~keeps))
    ordered = ordered.iloc[order]
    first, *rest = ({str(name): value for name, value in row.items()} for row in ordered.to_dict("records"))
    second = next((row for row in rest if row["keeps"]), {})
    return {
        **group,
        **first,
        "second": (name_setting(second) if group else name_configuration(second, networks)) if second else "",
        **{f"second_{name}": second.get(name, float("nan")) for name in _NUMBERS_OF_SECOND},
    }
