"""One answer: whichever function is asked for the fastest, it names the same column with the same probability."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from measured import build_rounds

import ngbkit
from ngbkit.dataset.storage import Data
from ngbkit.metrics.rankings.contests import list_contests
from ngbkit.metrics.reproduction import list_findings

NOTEBOOK_DATA = Path(ngbkit.__file__).parents[1] / "notebooks" / "data"
SIMULATED = ("independent rounds", "correlated rounds", "took turns")
MEASURED = ("paper.nc", "gpu.nc")
# Two shares of a thousand replicates each, of other variates.
TOLERANCE = 0.08

Answers = dict[tuple[Any, ...], tuple[str, float]]


def simulate(kind: str) -> xr.Dataset:
    """Four networks and four compilers at two batch sizes, 3 % apart from each other."""
    generator = np.random.default_rng(0)
    labels = {"workload": list("abcd"), "compiler": ["identity", "p", "q", "r"], "batch_size": [1, 4]}
    coords = {"device": ["cpu"], **labels}
    shape = tuple(map(len, coords.values()))
    pace = np.exp(generator.normal(0, 0.1, 20).cumsum() * (kind != "independent rounds"))
    seconds = np.exp(generator.normal(0, 0.03, shape))[..., None] * pace
    dataset = build_rounds(coords, seconds * np.exp(generator.normal(0, 0.05, (*shape, 20))))
    return dataset.assign(bundle=1.0) if kind == "took turns" else dataset


def load(name: str) -> Data:
    return simulate(name) if name in SIMULATED else ngbkit.load(NOTEBOOK_DATA / name)


def index(frame: pd.DataFrame, name: str, *labels: str) -> Answers:
    """The name and the probability of each row, by the labels that it has."""
    places = frame[[label for label in labels if label in frame]].itertuples(index=False, name=None)
    answers = zip(frame[name], frame["probability"], strict=True)
    return dict(zip([tuple(label for label in place if label == label) for place in places], answers, strict=True))


def list_compilers(data: Data) -> Iterator[Answers]:
    """The fastest compiler of each network: that of the verdict, of the winners, and of the ranking."""
    labels = ("workload", "width", "depth", "batch_size", "device")
    contests = [contest for contest in list_contests(data) if contest.subject == "compiler"]
    rows = [
        {
            "workload": each.first.workload,
            **each.first.factors,
            "batch_size": each.batch_size,
            "device": each.device,
            "compiler": each.first.compiler,
            "probability": each.probability,
        }
        for each in contests
    ]
    verdict = index(pd.DataFrame(rows), "compiler", *labels)
    yield verdict
    for frame in (data.ngb.winners(unlike="mask"), data.ngb.ranking(unlike="mask").query("rank == 1")):
        answers = index(frame, "compiler", *labels)
        yield {place: answers[place] for place in verdict}


def list_networks(data: xr.Dataset) -> Iterator[Answers]:
    """The fastest network of each column: that of the ranking, and the front of networks that are equally large."""
    labels = ("device", "compiler", "batch_size")
    yield index(data.ngb.network_ranking(by="compiler").query("rank == 1"), "network", *labels)
    equal = data.assign_coords(parameters=("workload", np.ones(data.sizes["workload"])))
    front = equal.ngb.front().sort_values("probability").drop_duplicates([*labels], keep="last")
    yield index(front, "workload", *labels)


@pytest.mark.parametrize("name", [*MEASURED, *SIMULATED])
def test_every_function_names_the_same_compiler(name: str) -> None:
    """Each group has one winner and one probability, in the verdict and in both tables."""
    verdict, *tables = (
        {place: (compiler, "unknown" if math.isnan(chance) else chance) for place, (compiler, chance) in each.items()}
        for each in list_compilers(load(name))
    )

    assert verdict
    assert [verdict] * len(tables) == tables


@pytest.mark.parametrize("name", [*MEASURED, *SIMULATED])
def test_the_ranking_of_networks_is_that_of_the_verdict(name: str) -> None:
    """Each device and batch size has one fastest network and one probability, beside blocks, too."""
    data = load(name)
    verdict = {
        (each.device, each.batch_size): (each.first.network, each.probability)
        for each in list_contests(data)
        if each.subject == "network"
    }
    ranking = data.ngb.network_ranking(unlike="mask")
    blocks = ["Not ranked beside networks, since their factors have several values: conv, mha."]
    assert ranking.attrs["notes"] == (blocks if name == "paper.nc" else [])
    ranking = ranking.query("rank == 1")

    assert verdict
    assert verdict == index(ranking, "network", "device", "batch_size")


@pytest.mark.parametrize("name", SIMULATED)
def test_every_function_names_the_same_network(name: str) -> None:
    """The front of networks that are equally large is the fastest one, as probably as in the ranking."""
    ranking, front = list_networks(simulate(name))

    assert len(ranking) == 8
    for place, (network, probability) in ranking.items():
        assert probability == pytest.approx(front[place][1], abs=TOLERANCE)
        assert network == front[place][0] or probability < 0.5 + TOLERANCE


@pytest.mark.parametrize("name", SIMULATED)
def test_a_reversal_is_of_the_orders_of_its_pairs(name: str) -> None:
    """Each reversal has the ratios of the table of pairs, and is at most as probable as the less probable order."""
    data = simulate(name)
    pairs = pd.concat([data.ngb.compare_networks(compiler) for compiler in data["compiler"].values])
    keys = ["compiler_a", "batch_size", "network_a", "network_b"]
    orders = pairs.set_index(keys)[["ratio", "probability"]].to_dict("index")
    orders |= {
        (column, batch_size, b, a): {"ratio": 1 / order["ratio"], "probability": 1 - order["probability"]}
        for (column, batch_size, a, b), order in orders.items()
    }
    reversals = data.ngb.reversals()

    assert len(reversals) > 10
    for row in reversals.to_dict("records"):
        chances = []
        for column in ("1", "2"):
            names, ratio = (row["workload_a"], row["workload_b"]), row[f"ratio_{column}"]
            order = orders[(row[f"compiler_{column}"], row["batch_size"], *names)]
            assert ratio == pytest.approx(order["ratio"], rel=1e-3)  # the median of reciprocals differs a little
            chances.append(order["probability"] if ratio > 1 else 1 - order["probability"])
        assert row["probability"] <= min(chances) + TOLERANCE


@pytest.mark.parametrize("name", [*MEASURED, *SIMULATED])
def test_a_run_repeats_its_own_findings(name: str) -> None:
    """A run has its own conclusive findings, also without statuses and errors."""
    data = load(name)
    findings = list_findings(data, data)

    assert {finding.verdict for finding in findings} <= {"holds", "not conclusive as published"}
