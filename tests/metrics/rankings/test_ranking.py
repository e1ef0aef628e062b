"""Rankings: the fastest compiler, its probability, and the excluded columns."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
import xarray as xr
from measured import build_rounds

from ngbkit import metrics
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.rankings.contests import list_contests
from ngbkit.sweep.records import NOT_CHECKED, Contract

COMPILERS = ["identity", "quick", "raw"]


def measured(
    calls: dict[str, tuple[float, ...]], *, noise: float = 0.02, seed: int = 0, notes: str = "", **contract
) -> xr.Dataset:
    """Latencies of each compiler from its seconds per call, in 20 rounds with common drift."""
    generator = np.random.default_rng(seed)
    drift = np.exp(generator.normal(0, 0.2, 20).cumsum())
    quiet = np.array(list(calls.values()))[None, :, :, None, None]
    latency = quiet * drift * np.exp(generator.normal(0, noise, (1, len(calls), len(COMPILERS), 1, 20)))
    coords = {"device": ["cpu"], "workload": list(calls), "compiler": COMPILERS, "batch_size": [1]}
    dataset = build_rounds(coords, latency)
    contracts = [json.dumps(asdict(Contract(runtime=name))) for name in COMPILERS[:2]]
    contracts.append(json.dumps(asdict(Contract(runtime="raw", notes=notes, **contract))))
    texts = np.array(contracts, dtype=object)[:, None]
    dataset["contract"] = (tuple(coords), np.broadcast_to(texts, latency.shape[:-1]))
    return dataset


def test_the_fastest_comes_first_and_surely():
    """Drift of twenty times the noise cancels, since it affects all alike."""
    ranking = measured({"net": (1.0, 0.5, 0.9)}).ngb.ranking()

    names = ["workload", "batch_size", "device", "rank", "compiler", "of_best", "probability", "checked"]
    assert names == list(ranking.columns)
    assert ["quick", "raw", "identity"] == ranking["compiler"].tolist()
    assert [1, 2, 3] == ranking["rank"].tolist()
    np.testing.assert_allclose([1, 0.5 / 0.9, 0.5], ranking["of_best"], rtol=0.05)
    assert [1.0, 0.0, 0.0] == ranking["probability"].tolist()


def test_the_most_probable_comes_first():
    """A steady column of the highest estimate is second to scattered ones, in the verdict and in both tables."""
    data = measured({"net": (0.5, 0.5, 0.5)}, noise=0.0)
    for column, seed in ((0, 1), (2, 2)):
        scattered = np.exp(np.random.default_rng(seed).normal(0, 0.5, 20))
        data["latency"][0, 0, column, 0] = data["latency"].values[0, 0, 1, 0] * 1.005 * scattered / np.median(scattered)
    ranking, winners = data.ngb.ranking().set_index("compiler"), data.ngb.winners()
    (contest,) = list_contests(data)

    assert "quick" == ranking["of_best"].idxmax() != ranking.index[0]
    assert ranking["probability"].is_monotonic_decreasing
    assert winners["compiler"].tolist() == [contest.first.compiler] == [ranking.index[0]]
    assert winners["probability"].tolist() == [contest.probability] == [ranking["probability"].iloc[0]]
    assert winners["conclusive"].tolist() == [contest.conclusive]


def test_some_of_many_win_by_chance():
    """A lead that is sure in a group alone is not sure among many groups of equal columns."""
    equal = {f"equal{index}": (1.0, 1.0, 1.0) for index in range(60)}
    clear, slight = {"clear": (1.0, 0.5, 1.0)}, {"slight": (1.0, 0.95, 1.0)}
    alone = measured(slight, seed=2).ngb.winners().set_index("workload")
    together = measured({**slight, **equal, **clear}, seed=2)
    many = together.ngb.winners().set_index("workload")

    assert alone["conclusive"].all()
    assert many.index[many["conclusive"]].tolist() == ["clear"]
    assert many["probability"]["slight"] == pytest.approx(alone["probability"]["slight"], abs=0.02)
    assert "which chance may show in 62 groups" in conclude(together).to_text()


def test_rounds_that_resemble_each_other_show_only_a_clear_lead():
    """Few rounds, each like the one before, understate their spread: more settle it, unless the lead is large."""
    steps = np.random.default_rng(2).normal(0, 0.03, 20)
    pace = [steps[0] / 0.6]
    for step in steps[1:]:
        pace.append(0.8 * pace[-1] + step)
    slight, large = measured({"net": (1.0, 0.9, 1.0)}), measured({"net": (1.0, 0.5, 1.0)})
    for data in (slight, large):
        data["latency"][0, 0, 1, 0] *= np.exp(pace)
    (contest,) = list_contests(slight)

    assert contest.comparisons[0].estimate.low > 1
    assert [False, True] == [data.ngb.winners()["conclusive"].item() for data in (slight, large)]
    assert "times as fast in 20 rounds, each much like the one before" in conclude(slight).to_text()
    assert 1 + contest.count_more_waves() == math.ceil(8 / contest.rivals[0].lead.effective_rounds)


@pytest.mark.parametrize("reasons", [{}, {"error": ""}])
def test_an_unchecked_column_without_a_reason_wins_nothing(reasons: dict[str, str]):
    """Its status decides, in the table and in the verdict; the text of the reason may be lost."""
    data = measured({"net": (1.0, 0.5, 0.9)})
    blank = xr.full_like(data["contract"], "")
    status = blank.where(data["compiler"] != "quick", NOT_CHECKED).where(data["compiler"] == "quick", "ok")
    data = data.assign(status=status, **dict.fromkeys(reasons, blank))
    (winner,) = data.ngb.winners().to_dict("records")

    assert ("raw", "quick", True) == (winner["compiler"], winner["unchecked"], winner["probability"] > 0.9)
    assert [contest.first.compiler for contest in list_contests(data)] == ["raw"]


def test_an_interval_contains_its_number():
    """The speed over the highest lies in its interval where the highest is not the most probable."""
    data = measured({name: (seconds,) * 3 for name, seconds in (("a", 0.5), ("b", 0.5), ("c", 0.5))}, noise=0.0)
    for network, seed in ((0, 1), (2, 2)):
        scattered = np.exp(np.random.default_rng(seed).normal(0, 0.5, 20))
        data["latency"][0, network] = data["latency"].values[0, 1] * 1.005 * scattered / np.median(scattered)
    table = data.ngb.network_ranking()

    assert 1.0 == table["of_best"].max() > table["of_best"].iloc[0]
    assert (table["ci_low"] <= table["of_best"]).all()
    assert (table["of_best"] <= table["ci_high"]).all()


def test_the_noise_of_a_column_counts_once():
    """Ten equals share the probability; a column that is slowed with its rivals by chance wins no more often."""
    data = measured({"net": (1.0, 0.5, 0.5)}, noise=0.0)
    equals = xr.concat([data.sel(compiler=["quick"]).assign_coords(compiler=[f"c{i}"]) for i in range(10)], "compiler")
    (contest,) = list_contests(equals)

    assert not contest.conclusive
    np.testing.assert_allclose(0.1, list(contest.probabilities.values()), atol=0.04)


def test_two_that_are_alike_share_the_probability():
    """Neither of two equals is surely the first."""
    probability = measured({"net": (1.0, 0.5, 0.5)}, noise=0.1).ngb.ranking().set_index("compiler")["probability"]

    assert 1.0 == pytest.approx(probability.sum())
    assert 0.0 == probability["identity"]
    assert 0.0 < probability["raw"] < 1.0


def test_what_was_not_tuned_has_a_place_only_if_asked_for():
    """An untuned column is excluded from rankings and reversals by default."""
    data = measured({"one": (1.0, 0.9, 0.1), "two": (2.0, 1.9, 0.05)}, notes="channels last; untuned")

    assert {"quick", "identity"} == set(data.ngb.ranking()["compiler"])
    assert "raw" == data.ngb.ranking(untuned=True)["compiler"][0]
    assert data.ngb.ranking().equals(data.ngb.ranking())
    assert data.ngb.reversals().empty
    assert {"raw"} == set(data.ngb.reversals(untuned=True)["compiler_2"])


def test_what_only_sounds_like_it_keeps_its_place():
    """A note that only contains the word does not exclude a column from the ranking."""
    assert "raw" in set(measured({"net": (1.0, 0.5, 0.9)}, notes="not untuned").ngb.ranking()["compiler"])


def test_trials_without_a_measurement_have_no_rank():
    """Trials without a measurement have no rank, and the others keep their probabilities."""
    data = measured({"net": (1.0, 0.5, 0.9)})
    data["latency"][0, 0, 1] = np.nan

    ranking = data.ngb.ranking()
    assert ["raw", "identity"] == ranking["compiler"].tolist()
    assert [1.0, 0.0] == ranking["probability"].tolist()


def test_unlike_contracts_are_asked_for():
    """A column of another precision is ranked only if allowed."""
    data = measured({"net": (1.0, 0.5, 0.1)}, precision="bf16")

    with pytest.raises(metrics.contracts.UnlikeContractsError, match="ranking"):
        data.ngb.ranking()
    assert {"quick", "identity"} == set(data.ngb.ranking(unlike="mask")["compiler"])
    assert "raw" == data.ngb.ranking(unlike="allow")["compiler"][0]


def test_without_a_baseline_throughput_decides():
    """A dataset of one compiler has a ranking of one."""
    data = measured({"net": (1.0, 0.5, 0.9)}, noise=0.0)

    assert ["quick", "raw"] == data.sel(compiler=["quick", "raw"]).ngb.ranking()["compiler"].tolist()
    assert ["quick"] == data.sel(compiler="quick").ngb.ranking()["compiler"].tolist()


def test_winners_have_a_runner_up():
    """Each group has one row with its runner-up, if it has several compilers."""
    data = measured({"net": (1.0, 0.5, 0.9), "alone": (1.0, 0.5, 0.9)})
    alone = (data["workload"] == "alone") & (data["compiler"] != "identity")
    table = data.assign(latency=data["latency"].where(~alone)).ngb.winners().set_index("workload")

    names = ["batch_size", "device", "compiler", "probability", "conclusive", "second"]
    assert [*names, "second_of_best", "unchecked"] == list(table.columns)
    assert ["quick", 1.0, "raw"] == table.loc["net", ["compiler", "probability", "second"]].tolist()
    assert 0.5 / 0.9 == pytest.approx(table.loc["net", "second_of_best"], rel=0.05)
    assert ["identity", ""] == table.loc["alone", ["compiler", "second"]].tolist()
