"""Iterations of one sweep, which a merge puts along a dim `variant`."""

from __future__ import annotations

from pathlib import Path

import pytest
import xarray as xr
from mergeable import DEVICE, load_attribute, network, run, sweep

import ngbkit
from ngbkit import merge
from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.errors import UsageError
from ngbkit.metrics import drift
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.cell import from_source

CELL = "\nimport torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n"


def iterate() -> list[xr.Dataset]:
    """Measure two iterations of a cell."""
    cells, keys = (CELL, CELL.replace("2)", "8)")), facts_key("model", {})
    return [
        run(sweep(*from_source(cell)), f"20260101-00000{number}-aa", number, facts={keys: {"parameters": 10 + number}})
        for number, cell in enumerate(cells)
    ]


def test_iterations_are_side_by_side(tmp_path: Path) -> None:
    """Each variant keeps its trials, its facts and the speed-ups over its own baseline, also in a file."""
    first, second = iterate()
    merged = merge([first, second], variant=["it1", "it2"])

    assert ("device", "workload", "variant", "compiler", "batch_size", "repeat") == merged["latency"].dims
    for label, data in (("it1", first), ("it2", second)):
        part = merged.sel(variant=label, drop=True)
        xr.testing.assert_equal(data, part)
        xr.testing.assert_equal(data.ngb.speedup(), merged.ngb.speedup().sel(variant=label, drop=True))
    requested = [dataset["workloads"][0]["spec"]["source"] for dataset in load_attribute(merged, "sweeps")]
    assert [CELL, CELL.replace("2)", "8)")] == requested
    assert Sweep.from_json(load_attribute(merged, "sweep")).workloads[0].factors == {"variant": ("it1", "it2")}
    xr.testing.assert_identical(merged, ngbkit.load(ngbkit.save(merged, tmp_path / "variants.nc")))


def test_trees_have_variants() -> None:
    """Networks that vary different factors stay nodes, and each node has the variants of its runs."""
    sweeps = sweep(network("a"), network("c", depth=(1, 2)))
    runs = [run(sweeps, f"2026010{number}-000000-aa", number) for number in (1, 2, 3)]
    merged = merge(runs[:2], runs[2], variant=["a", "b", "c"])

    assert {"/a": ["variant"], "/c": ["variant", "depth"]} == {
        path: datasets.factor_dims(node) for path, node in datasets.nodes(merged).items()
    }
    assert ["a", "b", "c"] == merged["c"]["variant"].values.tolist()


def test_variants_are_compared_with_the_drift_between_their_runs() -> None:
    """Anchors that agree within each run reduce nothing of what is assumed of two runs."""
    data = iterate()
    for each in data:
        baseline = each["latency"].sel(compiler="identity", batch_size=1, drop=True)
        each["anchor_latency"] = baseline.broadcast_like(each["anchor_latency"]).transpose(*each["anchor_latency"].dims)
    merged = merge(data, variant=["it1", "it2"])

    assert drift.estimate_drifts(data[0])["cpu"].sd < drift.APART_SD
    assert drift.APART_SD == drift.estimate_drifts(merged)["cpu"].sd
    comparison = merged.ngb.compare_networks()
    assert ["model variant=it1", "model variant=it2"] == [*comparison["network_a"][:1], *comparison["network_b"][:1]]
    assert {"minutes apart"} == set(comparison["compared"])


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["it1"], "invalid variant: got 1 labels for 2 datasets; expected as many"),
        (["it1", "it1"], "invalid factor variant: got it1 twice. Name each once"),
        (["it1", ""], "invalid factor variant: got ''; expected texts of one line"),
    ],
)
def test_invalid_variants_are_refused(labels: list[str], reason: str) -> None:
    """A merge needs one distinct label for each dataset."""
    with pytest.raises(UsageError, match=reason):
        merge(iterate(), variant=labels)


def test_a_second_variant_is_refused() -> None:
    """A dataset with variants cannot become a variant, and is merged with others by its labels."""
    first, second = iterate()
    third = run(sweep(*from_source(CELL)), "20260103-000000-cc", environments={"cpu": DEVICE})
    merged = merge(first, second, variant=["it1", "it2"])

    with pytest.raises(UsageError, match=r"a dataset that has a variant already \(it1, it2\)"):
        merge(merged, third, variant=["a", "b"])
    assert ["it1", "it2", "it3"] == merge(merged, merge(third, variant=["it3"]))["variant"].values.tolist()
