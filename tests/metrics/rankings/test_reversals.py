"""Reversals: their pairs, columns and probabilities."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr
from measured import build_rounds

from ngbkit.errors import UsageError

NETS, COMPILERS = ["p", "q", "r"], ["identity", "a"]
# Seconds per call: p is the fastest for identity, and slower than q for `a`; r is the slowest everywhere.
CALL_S = {"p": (1.0, 0.9), "q": (2.0, 0.45), "r": (4.0, 3.0)}


def measured(
    calls: dict[str, tuple[float, ...]] = CALL_S, *, noise: float = 0.02, rounds: int = 20, devices=("cpu",), **factors
) -> xr.Dataset:
    """One sample per round, at batch sizes 1 and 4 with equal latencies."""
    generator = np.random.default_rng(0)
    quiet = np.array(list(calls.values()))
    coords = {"device": list(devices), "workload": list(calls), **factors, "compiler": COMPILERS, "batch_size": [1, 4]}
    shape = tuple(map(len, coords.values()))
    middle = [1] * len(factors)
    latency = np.broadcast_to(quiet.reshape(1, len(calls), *middle, 2, 1), shape)[..., None]
    return build_rounds(coords, latency * np.exp(generator.normal(0, noise, (*shape, rounds))))


COLUMNS = ["workload_a", "workload_b", "batch_size", "device_1", "compiler_1", "device_2", "compiler_2"]


def test_pairs_whose_order_differs():
    """p is faster than q with identity and slower with `a`, at each batch size; r is always the slowest."""
    pairs = measured().ngb.reversals()

    assert [*COLUMNS, "ratio_1", "ratio_2", "probability", "conclusive", "checked"] == list(pairs.columns)
    expected = {("p", "q", size, "cpu", "identity", "cpu", "a") for size in (1, 4)}
    assert expected == set(pairs[COLUMNS].itertuples(index=False, name=None))
    np.testing.assert_allclose(2, pairs["ratio_1"], rtol=0.05)
    np.testing.assert_allclose(0.5, pairs["ratio_2"], rtol=0.05)
    assert [1.0, 1.0] == pairs["probability"].tolist()
    assert pairs["conclusive"].all()
    assert 3 * 2 == pairs.attrs["compared"]  # pairs of networks in the only pair of columns, at two batch sizes
    assert ["2 of 6 pairs surely change places (false discovery rate 5 %)"] == pairs.attrs["notes"]


def test_devices_are_columns_too():
    """On two devices that agree, every order of one compiler differs from that of the other."""
    pairs = measured(devices=("cpu", "orin")).sel(batch_size=[4]).ngb.reversals()

    columns = [(row.device_1, row.compiler_1, row.device_2, row.compiler_2) for row in pairs.itertuples()]
    assert {(first, "identity", second, "a") for first in ("cpu", "orin") for second in ("cpu", "orin")} == {
        columns if columns[1] == "identity" else (*columns[2:], *columns[:2]) for columns in columns
    }


def test_a_reversal_within_the_noise_is_improbable():
    """Two similar networks reverse by chance, with a low probability; real reversals are listed first."""
    calls = {"p": (1.0, 0.9), "q": (2.0, 0.45), "s": (1.0001, 0.9), "t": (1.0, 0.9001)}

    pairs = measured(calls, noise=0.1).ngb.reversals()

    real = pairs["workload_a"].isin(["p", "s", "t"]) & (pairs["workload_b"] == "q") | (pairs["workload_a"] == "q")
    assert (pairs.loc[real, "probability"] > 0.99).all()
    assert (pairs.loc[~real, "probability"] < 0.99).all()
    assert pairs["probability"].is_monotonic_decreasing
    assert 6 == real.sum()


def test_some_of_many_are_probable_by_chance():
    """Pairs of networks that are equally fast may seem to change places, some at 70 % and more, and none surely."""
    equal = measured({f"net{index}": (1.0, 1.0) for index in range(60)}, noise=0.05)
    pairs = equal.ngb.reversals()

    assert (pairs["probability"] > 0.7).any()
    assert not pairs["conclusive"].any()
    assert pairs.attrs["notes"] == [f"0 of {2 * 60 * 59 // 2:,} pairs surely change places (false discovery rate 5 %)"]


def test_a_contended_trial_makes_no_reversal_sure():
    """A trial whose rounds were all contended has all its samples, and its reversals, however clear, are not sure."""
    data = measured()
    contended = (data["compiler"] == "a") & (data["workload"] == "q") & (data["batch_size"] == 4)
    data["contended"] = xr.where(contended.broadcast_like(data["latency"]), 1, 0).transpose(*data["latency"].dims)
    pairs = data.ngb.reversals().set_index("batch_size")

    assert [1.0, 1.0] == pairs["probability"].tolist()
    assert {1: True, 4: False} == pairs["conclusive"].to_dict()


def test_improbable_ones_can_be_left_out():
    """A minimum probability selects the reversals that are listed."""
    data = measured({"p": (1.0, 0.9), "q": (1.01, 0.89)}, noise=0.1)
    pairs = data.ngb.reversals()

    probable = data.ngb.reversals(probability=0.5)

    assert (pairs["probability"] >= 0.5).sum() == len(probable)
    with pytest.raises(UsageError, match="from 0 to 1"):
        data.ngb.reversals(probability=95)


def drifting(deviation: float, networks: int) -> xr.Dataset:
    """Pairs of networks 10 % apart, each group measured on a machine that is faster or slower by chance."""
    calls = {f"n{number}": ((1.0, 1.1), (1.1, 1.0))[number % 2] for number in range(networks)}
    data = measured(calls, noise=0.01)
    drift = xr.DataArray(
        np.exp(np.random.default_rng(1).normal(0, deviation, (networks, 2))), dims=("workload", "batch_size")
    )
    latency = data["latency"] * drift
    anchor = data["latency"].sel(compiler="identity", batch_size=1, drop=True) * drift
    first = anchor["repeat"] < 0  # at batch size 1 identity is the anchor
    rounds = data["round"].sel(compiler="identity", drop=True)
    return data.assign(
        latency=latency.transpose(*data["latency"].dims),
        anchor_latency=anchor.where(~first).transpose("device", "workload", "batch_size", "repeat"),
        anchor_round=rounds.transpose("device", "workload", "batch_size", "repeat"),
    )


def test_drift_between_groups_makes_a_reversal_less_probable():
    """A lead of 10 % is significant if rounds vary by 1 %, but not if groups drift by 20 %, or a host may drift."""
    calm, wild = (drifting(deviation, 12).sel(batch_size=[1, 4]) for deviation in (0.001, 0.2))

    assert 0.99 < calm.ngb.reversals()["probability"].median()
    assert wild.ngb.reversals()["probability"].median() < 0.9
    without = calm.drop_vars(["anchor_latency", "anchor_round"])
    assert 0.99 < without.ngb.reversals()["probability"].median()
    hosted = without.assign_attrs(environments=json.dumps({"cpu": {"conditions": {"virtual_machine": True}}}))
    assert hosted.ngb.reversals()["probability"].median() < 0.9


def test_networks_that_took_turns_are_compared_round_by_round():
    """A machine whose pace changes from round to round bends no ratio of networks that shared the rounds."""
    data = measured({"p": (1.0, 1.1), "q": (1.1, 1.0)}, noise=0.01)
    pace = xr.DataArray(np.exp(np.random.default_rng(2).normal(0, 0.3, data.sizes["repeat"])), dims="repeat")
    uneven = data.assign(latency=(data["latency"] * pace).transpose(*data["latency"].dims))

    assert uneven.ngb.reversals()["probability"].max() < 0.9
    assert 0.99 < uneven.assign(bundle=1.0).ngb.reversals()["probability"].min()


def test_processes_that_differ_make_a_reversal_less_probable():
    """The deviation from the self-check is added to the replicates."""
    data = measured({"p": (1.0, 1.1), "q": (1.1, 1.0)})
    aware = data.assign_attrs(environments=json.dumps({"cpu": {"selfcheck": {"process_sd": 0.2}}}))

    assert 0.99 < data.ngb.reversals()["probability"].min()
    assert aware.ngb.reversals()["probability"].max() < 0.8


def test_without_rounds_nothing_is_said_of_probability():
    """The pairs are listed with a NaN probability, also with a threshold."""
    pairs = measured().drop_vars("round").ngb.reversals(probability=0.5)

    assert 2 == len(pairs)
    assert pairs["probability"].isna().all()


def test_factors_are_compared_at_equal_values_across_a_tree():
    """Blocks of two nodes that share a depth are compared at that depth, and at no other."""
    conv = measured({"conv": (1.0, 0.9)}, depth=[1, 2]).sel(batch_size=[1])
    mha = measured({"mha": (2.0, 0.45)}, depth=[2, 3]).sel(batch_size=[1])
    nets = measured().sel(batch_size=[1])
    tree = xr.DataTree.from_dict({"/conv": conv, "/mha": mha, "/nets": nets})

    pairs = tree.ngb.reversals()

    rows = pairs.fillna({"depth": 0})[["workload_a", "workload_b", "depth"]]
    assert {("conv", "mha", 2), ("p", "q", 0)} == set(rows.itertuples(index=False, name=None))


def test_a_factor_of_one_network_at_one_value_is_no_other_network():
    """A file whose image size a factor sets is compared with networks without factors, as in the verdict."""
    file = measured({"file": (1.5, 2.0)}, image=[48]).sel(batch_size=[1])
    tree = xr.DataTree.from_dict({"/file": file, "/nets": measured().sel(batch_size=[1])})

    pairs = tree.ngb.reversals()

    assert {"file", "q"} in [{row.workload_a, row.workload_b} for row in pairs.itertuples()]
    assert 6 == pairs.attrs["compared"]


def test_a_selection_can_be_ranked():
    """A selected batch size and device keep their columns; without pairs the frame is empty."""
    pairs = measured().sel(device="cpu", batch_size=4).ngb.reversals()

    assert [("cpu", 4)] == list(pairs[["device_1", "batch_size"]].itertuples(index=False, name=None))
    assert 0 == len(measured().sel(compiler=["a"]).ngb.reversals())
    for drop in (False, True):
        assert list(pairs.columns) == list(measured().sel(compiler="a", drop=drop).ngb.reversals().columns)


def test_the_same_data_has_the_same_probabilities():
    """The random generator is seeded."""
    data = drifting(0.2, 6)

    assert data.ngb.reversals().equals(data.ngb.reversals())
