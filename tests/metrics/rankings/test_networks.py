"""Which network is faster: ratios, intervals, probabilities and verdicts of known truth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from synthetic_records import QUIET, build_network, build_record

from ngbkit.api import Sweep
from ngbkit.dataset.assembly import assemble
from ngbkit.dataset.merging import merge
from ngbkit.dataset.storage import Data, load, save
from ngbkit.device.timing.correlation import pool_series
from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.drift import APART_SD
from ngbkit.metrics.estimate import Estimate
from ngbkit.metrics.rankings.candidates import RankingCandidate
from ngbkit.metrics.rankings.contests import list_contests
from ngbkit.metrics.rankings.leads import Lead, compute_lead, draw_leads, pair
from ngbkit.metrics.rankings.networks import NetworkComparison, compare_candidates, compare_networks
from ngbkit.metrics.rankings.ranking import network_ranking

ROUNDS = 40


def measure(
    seconds: Mapping[str, float],
    *,
    bundles: Mapping[str, int | None] | None = None,
    slowness: Mapping[int, float] | None = None,
    normalised: bool = False,
    noise: float = 0.01,
    compilers: tuple[str, ...] = ("identity",),
    environments: Mapping[str, object] = QUIET,
) -> Data:
    """One sample a round of networks that take so long; a machine that drifts by 30 % from round to round slows all.

    `bundles` tells which took turns, by default all; a bundle may be slower by a factor, and `normalised` to the first.
    """
    sweep = Sweep([build_network(name) for name in seconds], compilers, repeats=ROUNDS)
    generator = np.random.default_rng(0)
    drift = np.exp(generator.normal(0, 0.3, ROUNDS))
    records = []

    def sample(name: str, bundle: int | None) -> np.ndarray:
        slow = (slowness or {}).get(bundle or 0, 1.0)
        latency: np.ndarray = seconds[name] * slow * drift * np.exp(generator.normal(0, noise, ROUNDS))
        return latency

    for group in sweep.groups():
        bundle = (bundles or dict.fromkeys(seconds, 7))[group.workload.name]
        gain = {compiler: 1 + 0.5 * number for number, compiler in enumerate(compilers)}
        records += [
            build_record(trial, sample(trial.workload, bundle) / gain[trial.compiler], bundle) for trial in group.trials
        ]
        if normalised and group.tie is not None:
            records.append(build_record(group.tie, sample(group.tie.workload, bundle), bundle))
    return assemble(sweep, records, environments=environments, run_id="1")


def compare(data: Data, **options: object) -> dict[str, object]:
    (row,) = compare_networks(data, **options).to_dict("records")
    return row


def test_networks_that_took_turns_are_compared_round_by_round() -> None:
    """Networks of the same rounds are compared round by round, so their drift cancels."""
    row = compare(measure({"a": 1.0, "b": 1.02}))

    assert ("a", "b") == (row["network_a"], row["network_b"])
    assert pytest.approx(1.02, abs=0.01) == row["ratio"]
    assert "side by side" == row["compared"]
    assert 0 == row["allowance"]
    assert row["conclusive"]
    assert 0 == row["more_waves"]
    assert ROUNDS == row["rounds"]
    assert row["ci_high"] - row["ci_low"] < 0.02


@pytest.mark.parametrize("bundles", [{"a": 1, "b": 2}, {"a": None, "b": None}, {"a": 1, "b": None}])
def test_rounds_of_different_bundles_are_never_paired(bundles: Mapping[str, int | None]) -> None:
    """Equal numbers of rounds are no equal rounds: the interval has all of the drift, and an allowance beside it."""
    row = compare(measure({"a": 1.0, "b": 1.02}, bundles=bundles))

    assert "minutes apart" == row["compared"]
    assert not row["conclusive"]
    assert row["ci_high"] - row["ci_low"] > 0.2
    assert 0 < row["allowance"] < 1
    assert math.isfinite(row["more_waves"])


def test_bundles_are_normalised_by_their_anchor() -> None:
    """A machine that was twice as slow in the second bundle does not bend the ratio."""
    bundles, slowness = {"a": 1, "b": 2}, {1: 1.0, 2: 2.0}
    normalised = compare(measure({"a": 1.0, "b": 1.1}, bundles=bundles, slowness=slowness, normalised=True))
    untied = compare(measure({"a": 1.0, "b": 1.1}, bundles=bundles, slowness=slowness))

    assert "normalised by anchors" == normalised["compared"]
    assert pytest.approx(1.1, abs=0.01) == normalised["ratio"]
    assert normalised["conclusive"]
    assert pytest.approx(2.2, abs=0.2) == untied["ratio"]


def test_two_normalised_bundles_are_compared_through_the_first_network() -> None:
    """Neither of the two has the anchor's own network."""
    data = measure(
        {"a": 1.0, "b": 1.5, "c": 1.4}, bundles={"a": 1, "b": 2, "c": 3}, slowness={2: 3.0, 3: 0.5}, normalised=True
    )
    pairs = compare_networks(data).set_index(["network_a", "network_b"])

    assert {"normalised by anchors"} == {*pairs["compared"]}
    assert pytest.approx(1.5 / 1.4, abs=0.02) == pairs["ratio"].get(("c", "b"), 1 / pairs["ratio"].get(("b", "c"), 1))


def build_candidate(name: str, latency: np.ndarray, bundle: float, drift_sd: float = 0.0) -> RankingCandidate:
    return RankingCandidate(
        device="cpu",
        workload=name,
        factors={},
        compiler="identity",
        throughput=float(1 / np.median(latency)),
        rounds=dict(enumerate(latency.tolist())),
        bundle=bundle,
        ties={},
        process_sd=0.0,
        hours_sd=0.0,
        waves=1.0,
        copies_sd=0.0,
        drift_sd=drift_sd,
        rounds_pool=pool_series([]),
        ratios_pool=pool_series([]),
        conclusive=True,
        stopped=False,
        samples=len(latency),
    )


@pytest.mark.parametrize("drift_sd", [0.0, 0.03])
def test_intervals_cover_the_truth(drift_sd: float) -> None:
    """The intervals of a comparison cover the truth in about 95 % of 400 repetitions."""
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        shared = np.exp(generator.normal(0, 0.2, 30)) if not drift_sd else 1.0
        first, second = (
            seconds * shared * np.exp(generator.normal(0, 0.02, 30) + generator.normal(0, drift_sd))
            for seconds in (1.0, 1.25)
        )
        bundles = (1.0, 2.0) if drift_sd else (1.0, 1.0)
        pair = [
            build_candidate(name, latency, bundle, drift_sd)
            for name, latency, bundle in zip("ab", (first, second), bundles, strict=True)
        ]
        estimate = compare_candidates(pair[0], pair[1], 0.95).estimate
        covered += estimate.low <= 1.25 <= estimate.high

    assert 370 <= covered <= 394


@pytest.mark.parametrize("stray", [1.0, 20.0])
def test_leads_correlate_as_their_rounds_do(stray: float) -> None:
    """Two leads of one column share its noise, which is half of each; a round in which it was slow is no more."""
    generator = np.random.default_rng(4)
    first, *others = (np.exp(generator.normal(0, 0.02, 200)) for _ in range(3))
    first[7] *= stray
    networks = [build_candidate(name, latency, 1.0) for name, latency in zip("abc", (first, *others), strict=True)]
    ((_, one_lead), (_, another)) = draw_leads([[pair(networks[0], other) for other in networks[1:]]], 0.95)[0]

    assert 1 / 3 == pytest.approx(np.corrcoef(one_lead, another)[0, 1], abs=0.1)


def test_the_lead_is_antisymmetric() -> None:
    """A over B is the reciprocal of B over A."""
    generator = np.random.default_rng(3)
    first, second = (
        build_candidate(name, np.exp(generator.normal(mean, 0.01, 20)), 1.0) for name, mean in (("a", 0), ("b", 0.2))
    )

    assert (
        pytest.approx(compute_lead(first, second, 0.95).log_ratio, rel=1e-4)
        == -compute_lead(second, first, 0.95).log_ratio
    )


@pytest.mark.parametrize("bundles", [None, {"a": 1, "b": 2, "c": 3}])
def test_probabilities_of_being_the_fastest_sum_to_one(bundles: Mapping[str, int] | None) -> None:
    """The probabilities of being the fastest sum to one, and a slow network has none."""
    data = measure({"a": 1.0, "b": 1.0, "c": 3.0}, bundles=bundles)
    ranks = network_ranking(data)

    assert pytest.approx(1) == ranks["probability"].sum()
    assert [1, 2, 3] == ranks["rank"].tolist()
    assert "c" == ranks["network"].iloc[-1]
    assert 0 == ranks["probability"].iloc[-1]
    assert 0.001 < ranks["probability"].iloc[1] <= 0.5
    assert ranks["of_best"].iloc[-1] < 0.5


def test_two_networks_have_one_probability() -> None:
    """The probability of a ranking of two networks is that of the pair."""
    data = measure({"a": 1.0, "b": 1.003})
    probability = float(network_ranking(data)["probability"].iloc[0])

    assert pytest.approx(compare(data)["probability"], abs=0.04) == probability


def test_networks_are_ranked_with_their_best_compiler_or_by_compiler() -> None:
    """The best one is of the highest throughput."""
    data = measure({"a": 1.0, "b": 2.0}, compilers=("identity", "openvino"))

    assert ["openvino", "openvino"] == network_ranking(data)["compiler"].tolist()
    by_compiler = network_ranking(data, "compiler")
    assert {"identity": 2, "openvino": 2} == by_compiler["compiler"].value_counts().to_dict()
    assert [1, 2, 1, 2] == by_compiler["rank"].tolist()
    assert {"identity"} == {*compare_networks(data, "identity")[["compiler_a", "compiler_b"]].values.ravel()}


def test_a_network_is_compared_with_the_compiler_of_its_highest_speed_up() -> None:
    """A network is compared with the compiler of its highest speed-up."""
    pace = np.repeat([1.0, 3.0], ROUNDS // 2)
    faster = pace / 1.4
    faster[0] *= 3  # half of its rounds and one more are of the slow spell, and so is their median
    latency = {"identity": pace, "onnxruntime": pace / 1.3, "openvino": faster}
    sweep = Sweep([build_network("a"), build_network("b")], list(latency), repeats=ROUNDS)
    records = [build_record(trial, latency[trial.compiler], 5) for trial in sweep.trials()]
    data = assemble(sweep, records, environments=QUIET)
    rates = data["throughput"].sel(workload="a").squeeze()

    assert rates.sel(compiler="onnxruntime") > rates.sel(compiler="openvino")
    assert {"openvino"} == set(network_ranking(data)["compiler"])


@pytest.mark.parametrize(("depths", "rivals"), [((1, 2), 0), ((1,), 2)])
def test_networks_of_a_tree_are_compared_with_all_values_of_their_factors(depths: tuple[int, ...], rivals: int) -> None:
    """A network without factors and a block of two depths are three networks; a block of one depth is a rival."""
    sweep = Sweep([build_network("a"), build_network("block", depth=depths)], ["identity"], repeats=ROUNDS)
    generator = np.random.default_rng(0)
    records = [
        build_record(trial, (1 + number) * np.exp(generator.normal(0, 0.01, ROUNDS)), 5)
        for number, trial in enumerate(sweep.trials())
    ]
    data = assemble(sweep, records, environments=QUIET)
    pairs = compare_networks(data)
    names = ["a", *(f"block depth={depth}" for depth in depths)]

    assert isinstance(data, xr.DataTree)
    assert [*combinations(names, 2)] == list(zip(pairs["network_a"], pairs["network_b"], strict=True))
    assert {"side by side"} == {*pairs["compared"]}
    assert names == network_ranking(data)["network"].tolist()
    assert rivals == sum(len(contest.columns) for contest in list_contests(data))


def build_comparison(
    log_ratio: float, rounds_sd: float, process_sd: float = 0.0, between_sd: float = 0.0, **fields: float
) -> NetworkComparison:
    """Two networks after 40 rounds; one that is not side by side has a deviation between times."""
    low, high = (math.exp(log_ratio + side * 1.96 * math.hypot(rounds_sd, process_sd, between_sd)) for side in (-1, 1))
    lead = Lead(
        log_ratio=log_ratio,
        interval=(low, high),
        compared="minutes apart" if between_sd else "side by side",
        rounds=40,
        effective_rounds=40.0,
        rounds_sd=rounds_sd,
        process_sd=process_sd,
        between_sd=between_sd,
        **{"hours_sd": 0.0, "waves": 1.0, **fields},
    )
    first, second = (build_candidate(name, np.ones(40), 1.0) for name in "ab")
    return NetworkComparison(
        first=first,
        second=second,
        lead=lead,
        estimate=Estimate(math.exp(log_ratio), *lead.interval),
        probability=0.8,
        level=0.95,
    )


def test_more_waves_settle_what_rounds_and_processes_leave_open() -> None:
    """The half width shrinks with the square root of waves, to the difference; what hours change remains."""
    assert 3 == build_comparison(0.01, 0.01).count_more_waves()
    assert 3 == build_comparison(-0.01, 0.01).count_more_waves()
    assert 0 == build_comparison(0.01, 0.001).count_more_waves()
    assert 1 == build_comparison(0.01, 0.001).count_more_waves(0.99)  # also where it is conclusive at another level
    assert 19 == build_comparison(0.01, 0.01, process_sd=0.02).count_more_waves()
    assert 27 == build_comparison(0.01, 0.01, process_sd=0.01, waves=4.0).count_more_waves()
    assert 5 == build_comparison(0.01, 0.01, process_sd=0.004, hours_sd=0.002).count_more_waves()
    assert math.inf == build_comparison(0.01, 0.01, process_sd=0.0052, hours_sd=0.0052).count_more_waves()


def test_waves_side_by_side_settle_what_different_times_leave_open() -> None:
    """The allowance for them does not count, and waves are counted from 0."""
    assert 4 == build_comparison(0.01, 0.01, between_sd=0.03).count_more_waves()
    assert 1 == build_comparison(0.01, 0.001, between_sd=0.03).count_more_waves()


def test_no_small_number_of_waves_settles_what_processes_leave_open() -> None:
    """Processes differ by 5 %, the networks by 1 %: more waves than anyone measures are not advised."""
    data = measure({"a": 1.0, "b": 1.01}, environments={"cpu": {"selfcheck": {"process_sd": 0.05}}})
    row = compare(data)

    assert 30 < row["more_waves"] < math.inf
    assert not row["conclusive"]
    assert "Choose any of these: 30 waves would not tell them apart." == conclude(data).lines[-1]


def test_drift_is_estimated_from_anchors() -> None:
    """An anchor that differs by 10 % between batch sizes widens the interval of networks that are minutes apart."""

    def build(shift: float) -> float:
        sweep = Sweep([build_network("a"), build_network("b")], ["identity"], [1, 2, 4, 8], repeats=ROUNDS)
        generator = np.random.default_rng(0)
        records = []
        for number, group in enumerate(sweep.groups()):
            for trial in (*group.trials, *([group.anchor] if group.anchor else [])):
                latency = trial.batch_size * np.exp(generator.normal(0, 0.001, ROUNDS))
                records.append(build_record(trial, latency * (shift if trial.beside else 1), number + 1))
        rows = compare_networks(assemble(sweep, records, environments=QUIET))
        return float((rows["ci_high"] - rows["ci_low"]).mean())

    steady, drifting = build(1.0), build(1.1)

    assert steady < 2 * 1.96 * math.sqrt(2) * APART_SD
    assert drifting > 2 * steady


def test_a_verdict_names_the_fastest_network() -> None:
    """A verdict names the fastest of several networks with its lead over the next."""
    (line,) = conclude(measure({"a": 1.0, "b": 1.3})).lines

    assert line.startswith("Fastest network: a at batch 1, 1.29")
    assert line.endswith(" times b.")
    assert [] == conclude(measure({"a": 1.0})).lines


def test_a_verdict_says_what_is_not_conclusive() -> None:
    """A verdict reports an inconclusive comparison, and the waves and the time that would settle it."""
    close = "\n".join(conclude(measure({"a": 1.0, "b": 1.0015})).lines)
    separate = "\n".join(conclude(measure({"a": 1.0, "b": 1.05}, bundles={"a": 1, "b": 2})).lines)

    assert close.startswith("Not conclusive: the fastest in 1 of 1 groups (networks at batch 1: ")
    assert re.search(r"`ngbkit runs --settle 1` measures \d+ more waves? of these, about ", close)
    assert "times as fast, measured minutes apart)" in separate
    assert "--settle" in separate


def test_a_contended_lead_is_not_conclusive() -> None:
    """A lead in contended rounds is not conclusive, and the verdict has the reason and a remedy."""
    data = measure({"a": 1.0, "b": 1.3})
    contended = data.assign(contended=xr.ones_like(data["contended"]))
    doubt, step = conclude(contended).lines

    assert not compare(contended)["conclusive"]
    assert "networks at batch 1: a or b, 1.29" in doubt
    assert "in too few uncontended rounds" in doubt
    assert "when the machine is quiet, `ngbkit runs --resume 1 --retry inconclusive`" in step


def test_ties_survive_a_file_and_a_merge(tmp_path: Path) -> None:
    """Networks of the merged dataset are normalised as before."""
    data = measure({"a": 1.0, "b": 1.1}, bundles={"a": 1, "b": 2}, slowness={2: 2.0}, normalised=True)
    loaded = load(save(data, tmp_path / "normalised.nc"))
    parts = [loaded.sel(workload=[name]) for name in ("a", "b")]

    assert loaded.identical(data)
    assert compare(data) == compare(merge(*parts))


def test_a_dataset_without_rounds_compares_no_network() -> None:
    """The error says what to use."""
    data = measure({"a": 1.0, "b": 2.0}).drop_vars(["round", "latency"])

    with pytest.raises(MetricError, match="no measurement with round numbers"):
        compare_networks(data)
    assert [] == list_contests(data)


def test_invalid_arguments_are_refused() -> None:
    """The error of an invalid argument has its name and the valid ones."""
    data = measure({"a": 1.0, "b": 2.0})

    with pytest.raises(UnknownNameError, match="opnvino"):
        compare_networks(data, "opnvino")
    with pytest.raises(UsageError, match='expected "best" or "compiler"'):
        network_ranking(data, "network")
    with pytest.raises(UsageError, match="expected a probability"):
        compare_networks(data, ci=1.5)


def test_the_bundle_is_part_of_the_dataset() -> None:
    """The dataset has the exact number of each bundle, or NaN."""
    data = measure({"a": 1.0, "b": 2.0}, bundles={"a": (1 << 40) - 1, "b": None})

    assert [(1 << 40) - 1] == data["bundle"].sel(workload="a").values.ravel().tolist()
    assert np.isnan(data["bundle"].sel(workload="b").values).all()
    assert json.loads(data.attrs["sweep"])["repeats"] == ROUNDS
