"""Merged attributes: one label is one device, one name is one network; runs and sweeps are united."""

from __future__ import annotations

import json

import numpy as np
import pytest
import synthetic
from mergeable import DEVICE, load_attribute, network, run, sweep

from ngbkit import merge
from ngbkit.api import Sweep
from ngbkit.dataset import assembly as datasets
from ngbkit.errors import UsageError
from ngbkit.sweep.column import BASELINE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"chip": "B"}, "chip was A and is B"),
        ({"packages": {"torch": "2.10"}}, "torch was 2.9 and is 2.10"),
        ({"memory_bytes": 2000}, "memory was 1,000 bytes and is 2,000"),
    ],
)
def test_one_label_is_one_device_in_one_state(changes, reason):
    """A merge refuses another device with the same label, and accepts it once renamed."""
    first = run(sweep(network("a")))
    second = run(sweep(network("b")), "20260102-000000-bb", environments={"cpu": {**DEVICE, **changes}})

    with pytest.raises(UsageError, match=f"'cpu' is not the same device.*{reason}.*Rename one of the two"):
        merge(second, first)
    merged = merge(first, second.assign_coords(device=["cpu-2"]))
    assert {"cpu": DEVICE, "cpu-2": {**DEVICE, **changes}} == load_attribute(merged, "environments")


def test_a_device_that_was_left_out_is_not_compared():
    """The attributes of an omitted device cause no conflict and are dropped."""
    both = run(sweep(devices=["cpu", "orin"]))
    other = run(sweep(network("b"), devices=["orin"]), environments={"orin": {**DEVICE, "chip": "B"}})

    merged = merge(both.sel(device=["cpu"]), other)

    assert {"cpu": "A", "orin": "B"} == {
        label: environment["chip"] for label, environment in load_attribute(merged, "environments").items()
    }


def test_sessions_of_one_device_are_one():
    """Values of the later session are kept; those it lacks are from the earlier one."""
    early = {**DEVICE, "load_1min": 0.1, "peaks": {"flops": 1e9}, "governor": "powersave"}
    late = {**DEVICE, "load_1min": 2.0, "peaks": {}, "selfcheck": {"process_sd": 0.01}}
    first = run(sweep(network("a")), "20260101-000000-aa", environments={"cpu": early})
    second = run(sweep(network("b")), "20260102-000000-bb", environments={"cpu": late})

    assert {"cpu": {**early, **late, "peaks": {"flops": 1e9}}} == load_attribute(merge(second, first), "environments")


def test_one_name_is_one_network():
    """Conflicting facts are rejected, in attributes and in coordinates; complementary ones are united."""
    key = datasets.facts_key("net", {})
    first = run(sweep(), facts={key: {"macs": 5, "parameters": 7, "reference": "x"}})
    second = run(sweep(devices=["orin"]), "20260102-000000-bb", facts={key: {"macs": 6, "parameters": 7}})

    with pytest.raises(
        UsageError, match=r"two networks are called 'net': their macs differs.*\.drop_sel\(workload='net'"
    ):
        merge(first, second)
    with pytest.raises(UsageError, match="two networks are called 'net': their macs differs"):
        merge(first, second.drop_attrs())
    same = run(sweep(devices=["orin"]), "20260102-000000-bb", facts={key: {"macs": None, "input_bytes": 3}})
    merged = merge(first, same)
    assert {key: {"macs": 5, "parameters": 7, "reference": "x", "input_bytes": 3}} == load_attribute(merged, "facts")
    assert [5.0, 7.0, 3.0] == [merged[name].item() for name in ("macs", "parameters", "input_bytes")]
    both = run(sweep(network("net"), network("b")), "20260102-000000-bb", facts={key: {"macs": 6}})
    assert 5 == load_attribute(merge(first, both.drop_sel(workload="net")), "facts")[key]["macs"]
    renamed = merge(first, second.assign_coords(workload=["other"]))
    assert [5.0, 6.0] == renamed["macs"].values.tolist()
    assert {"net": 5, "other": 6} == {
        json.loads(name)[0]: each["macs"] for name, each in load_attribute(renamed, "facts").items()
    }


def test_facts_of_other_depths_are_along_the_depth():
    """Two runs with one depth each have the parameters of their own; an uncounted value is missing."""
    first, second = (
        run(
            sweep(network("c", depth=(depth,)), *more),
            facts={datasets.facts_key("c", {"depth": depth}): {"parameters": 10 * depth, "baseline": "torch eager"}},
        )
        for depth, more in ((1, []), (2, [network("d", depth=(2,))]))
    )

    merged = merge(first, second)

    assert ("workload", "depth") == merged["parameters"].dims
    assert [[10.0, 20.0], [None, None]] == [
        [None if np.isnan(each) else each for each in line] for line in merged["parameters"].values
    ]
    assert ["torch eager", ""] == merged["baseline"].values.tolist()


def test_the_sweep_asks_for_all_that_is_there():
    """The merged sweep has every label, and `sweeps` lists the sweep of each run."""
    first = sweep(network("a"), network("c", depth=(1, 2)), compilers=[BASELINE], repeats=10, seed=1)
    second = sweep(network("c", depth=(4,)), compilers=["openvino"], batch_sizes=[2], devices=["orin"], repeats=20)

    merged = merge(run(second, "20260102-000000-bb"), run(first, "20260101-000000-aa"))

    requested = Sweep.from_json(load_attribute(merged, "sweep"))
    assert ((BASELINE, "openvino"), (1, 2, 4)) == (requested.compilers, requested.batch_sizes)
    assert {"cpu", "orin"} == {*requested.devices}
    assert {"a": {}, "c": {"depth": (1, 2, 4)}} == {each.name: dict(each.factors) for each in requested.workloads}
    assert (20, 0) == (requested.repeats, requested.seed)
    assert [first.to_json(), second.to_json()] == load_attribute(merged, "sweeps")
    assert "20260101-000000-aa, 20260102-000000-bb" == merged.attrs["run_id"]
    assert load_attribute(merged, "sweeps") == load_attribute(merge(merged, merged), "sweeps")


def test_an_attribute_that_none_contradicts_stays():
    """A synthetic part marks the merged dataset; two notes that differ are dropped."""
    first, second = (
        synthetic.make_dataset(sweep(devices=[device])).assign_attrs(note=device) for device in ("cpu", "orin")
    )
    del second.attrs["synthetic"]

    merged = merge(first, second)

    assert 1 == merged.attrs["synthetic"]
    assert "note" not in merged.attrs
