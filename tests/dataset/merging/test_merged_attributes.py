"""One label is one device, one name is one network; runs and sweeps add up."""

from __future__ import annotations

import json

import numpy as np
import pytest
from mergeable import DEVICE, network, run, sweep, told

from ngbkit import merge
from ngbkit.dataset import assembly as datasets
from ngbkit.dataset import synthetic
from ngbkit.errors import UsageError
from ngbkit.sweep.grid import Sweep
from ngbkit.sweep.trials import BASELINE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"chip": "B"}, "chip was A and is B"),
        ({"packages": {"torch": "2.10"}}, "torch was 2.9 and is 2.10"),
        ({"memory_bytes": 2000}, "memory was 1,000 bytes and is 2,000"),
    ],
)
def test_one_label_is_one_device_in_one_state(changes, reason):
    """Another device under the same label is refused; under a label of its own its environment goes along."""
    one = run(sweep(network("a")))
    other = run(sweep(network("b")), "20260102-000000-bb", environments={"cpu": {**DEVICE, **changes}})

    with pytest.raises(UsageError, match=f"'cpu' is not the same device.*{reason}.*label of its own"):
        merge(other, one)
    found = merge(one, other.assign_coords(device=["cpu-2"]))
    assert {"cpu": DEVICE, "cpu-2": {**DEVICE, **changes}} == told(found, "environments")


def test_a_device_that_was_left_out_is_not_compared():
    """What the attributes still say of it does no harm, and is gone."""
    both = run(sweep(devices=["cpu", "orin"]))
    other = run(sweep(network("b"), devices=["orin"]), environments={"orin": {**DEVICE, "chip": "B"}})

    found = merge(both.sel(device=["cpu"]), other)

    assert {"cpu": "A", "orin": "B"} == {label: one["chip"] for label, one in told(found, "environments").items()}


def test_sessions_of_one_device_are_one():
    """What varies is told as the later session found it; what that did not find, as the earlier did."""
    early = {**DEVICE, "load_1min": 0.1, "peaks": {"flops": 1e9}, "governor": "powersave"}
    late = {**DEVICE, "load_1min": 2.0, "peaks": {}, "selfcheck": {"process_sd": 0.01}}
    one = run(sweep(network("a")), "20260101-000000-aa", environments={"cpu": early})
    other = run(sweep(network("b")), "20260102-000000-bb", environments={"cpu": late})

    assert {"cpu": {**early, **late, "peaks": {"flops": 1e9}}} == told(merge(other, one), "environments")


def test_one_name_is_one_network():
    """Facts that contradict each other are refused, in attributes and in coordinates; those that add up are not."""
    key = datasets.facts_key("net", {})
    one = run(sweep(), facts={key: {"macs": 5, "parameters": 7, "reference": "x"}})
    other = run(sweep(devices=["orin"]), "20260102-000000-bb", facts={key: {"macs": 6, "parameters": 7}})

    with pytest.raises(
        UsageError, match=r"two networks are called 'net': their macs differs.*\.drop_sel\(workload='net'"
    ):
        merge(one, other)
    with pytest.raises(UsageError, match="two networks are called 'net': their macs differs"):
        merge(one, other.drop_attrs())
    same = run(sweep(devices=["orin"]), "20260102-000000-bb", facts={key: {"macs": None, "input_bytes": 3}})
    found = merge(one, same)
    assert {key: {"macs": 5, "parameters": 7, "reference": "x", "input_bytes": 3}} == told(found, "facts")
    assert [5.0, 7.0, 3.0] == [found[name].item() for name in ("macs", "parameters", "input_bytes")]
    both = run(sweep(network("net"), network("b")), "20260102-000000-bb", facts={key: {"macs": 6}})
    assert 5 == told(merge(one, both.drop_sel(workload="net")), "facts")[key]["macs"]
    renamed = merge(one, other.assign_coords(workload=["other"]))
    assert [5.0, 6.0] == renamed["macs"].values.tolist()
    assert {"net": 5, "other": 6} == {
        json.loads(name)[0]: each["macs"] for name, each in told(renamed, "facts").items()
    }


def test_facts_of_other_depths_are_along_the_depth():
    """Two runs with a depth each know the parameters of theirs; what nobody counted is missing."""
    one, other = (
        run(
            sweep(network("c", depth=(depth,)), *more),
            facts={datasets.facts_key("c", {"depth": depth}): {"parameters": 10 * depth, "baseline": "torch eager"}},
        )
        for depth, more in ((1, []), (2, [network("d", depth=(2,))]))
    )

    found = merge(one, other)

    assert ("workload", "depth") == found["parameters"].dims
    assert [[10.0, 20.0], [None, None]] == [
        [None if np.isnan(each) else each for each in line] for line in found["parameters"].values
    ]
    assert ["torch eager", ""] == found["baseline"].values.tolist()


def test_the_sweep_asks_for_all_that_is_there():
    """It reads as a sweep with every label, and what each run asked for stands beside it."""
    one = sweep(network("a"), network("c", depth=(1, 2)), compilers=[BASELINE], repeats=10, seed=1)
    other = sweep(network("c", depth=(4,)), compilers=["openvino"], batch_sizes=[2], devices=["orin"], repeats=20)

    found = merge(run(other, "20260102-000000-bb"), run(one, "20260101-000000-aa"))

    whole = Sweep.from_json(told(found, "sweep"))
    assert ((BASELINE, "openvino"), (1, 2, 4)) == (whole.compilers, whole.batch_sizes)
    assert {"cpu", "orin"} == {*whole.devices}
    assert {"a": {}, "c": {"depth": (1, 2, 4)}} == {each.name: dict(each.factors) for each in whole.workloads}
    assert (20, 0) == (whole.repeats, whole.seed)
    assert [one.to_json(), other.to_json()] == told(found, "sweeps")
    assert "20260101-000000-aa, 20260102-000000-bb" == found.attrs["run_id"]
    assert told(found, "sweeps") == told(merge(found, found), "sweeps")


def test_an_attribute_that_none_contradicts_stays():
    """A synthetic part marks the whole; of two notes that differ none is kept."""
    one, other = (synthetic.dataset(sweep(devices=[device])).assign_attrs(note=device) for device in ("cpu", "orin"))
    del other.attrs["synthetic"]

    found = merge(one, other)

    assert 1 == found.attrs["synthetic"]
    assert "note" not in found.attrs
