"""The sweep: validated when it is made, expanded in a fixed order, identified by content."""

from __future__ import annotations

import json
from typing import Any

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from ngbkit.api import Sweep
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.column import Column
from ngbkit.sweep.trials import split_labels
from ngbkit.sweep.variables import RESERVED, VARIABLES
from ngbkit.workloads import blocks
from ngbkit.workloads.base import Workload

NET = Workload(name="net", source="timm", spec={"model": "resnet18"})


def test_a_sweep_is_the_grid_of_what_was_asked() -> None:
    """Every workload at every value of its factors, every batch size, every compiler, the baseline first."""
    sweep = Sweep(
        [NET, blocks.conv(depth=[1, 2])], ["openvino", "identity"], [1, 4], factors={"width": [8]}, devices=["cpu"]
    )
    trials = sweep.trials()

    assert 3 * 2 * 2 == len(trials) == len(sweep) == len({trial.id for trial in trials})
    assert ("identity", "openvino") == sweep.compilers
    assert ("net", (), "identity", 1) == (
        trials[0].workload,
        trials[0].factors,
        trials[0].compiler,
        trials[0].batch_size,
    )
    assert (("width", 8), ("depth", 2)) == trials[-1].factors


def test_a_group_holds_the_compilers_of_one_point() -> None:
    """A group has the compilers of one point, which are measured against each other."""
    groups = list(Sweep(NET, ["identity", "openvino", "tvm"], [1, 2]).groups())

    assert [1, 2] == [group.batch_size for group in groups]
    assert ["identity", "openvino", "tvm"] == [trial.compiler for trial in groups[0].trials]


def test_a_trials_id_tells_its_content() -> None:
    """The same trial of another sweep has the same id; whatever changes what is measured changes it."""
    (trial,) = Sweep(NET, batch_sizes=2).trials()
    (same,) = Sweep(NET, batch_sizes=2, repeats=3).trials()
    other = Workload(name="net", source="timm", spec={"model": "resnet18", "img_size": 96})
    (else_,) = Sweep(other, batch_sizes=2).trials()

    assert trial.id == same.id
    assert trial.id != else_.id


def test_a_sweep_survives_json() -> None:
    """A sweep keeps its id, its trials and its description through JSON."""
    sweep = Sweep([NET, blocks.mha(64, [1, 3])], ["identity", 'openvino{"hint":"throughput"}'], [1], repeats=3, seed=4)
    back = Sweep.from_json(json.loads(json.dumps(sweep.to_json())))

    assert sweep.to_json() == back.to_json()
    assert sweep.id == back.id
    assert [trial.id for trial in sweep.trials()] == [trial.id for trial in back.trials()]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_sizes": [0]}, r"invalid batch size: got 0; expected an integer >= 1"),
        ({"batch_sizes": [-2]}, r"invalid batch size: got -2"),
        ({"batch_sizes": [1.5]}, r"invalid batch size: got 1.5"),
        ({"batch_sizes": []}, r"invalid batch size: got none"),
        ({"batch_sizes": [2, 2]}, r"invalid batch size: got 2 twice"),
        ({"compilers": []}, r"invalid compilers: got none"),
        ({"compilers": ["tvm", "tvm"]}, r"invalid compiler: got tvm twice"),
        ({"compilers": ['openvino{"hint":"fast"}']}, r"hint of openvino: got 'fast'; expected .latency. or"),
        ({"compilers": ["openvino{hint}"]}, r"are not JSON.*Write them as openvino\{\"option\":\"value\"\}"),
        ({"compilers": ['openvino{"hnt":"latency"}']}, r"unknown option of openvino 'hnt'. Did you mean hint\?"),
        ({"compilers": ["opnvino"]}, r"unknown compiler 'opnvino'. Did you mean openvino\?"),
        ({"devices": ["../up"]}, r"invalid devices: got"),
        ({"repeats": 0}, r"invalid repeats: got 0"),
        ({"threads": 0}, r"invalid threads: got 0"),
        ({"timeout_s": 0}, r"invalid timeout_s: got 0"),
        ({"seed": -1}, r"invalid seed: got -1"),
        ({"factors": {"width": [1]}}, r"unknown factor 'width'. No factor is available"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_does(arguments: dict[str, Any], text: str) -> None:
    """Invalid arguments of a sweep are refused with the valid ones before it starts."""
    with pytest.raises(UsageError, match=text):
        Sweep(NET, **arguments)


def test_a_factor_without_a_value_says_how_to_give_one() -> None:
    """The error of a factor without a value has the remedy in both ways of asking."""
    with pytest.raises(UsageError, match=r"conv needs a value of width and depth. Add --factor width=…"):
        Sweep(blocks.conv())


def test_a_factor_that_no_workload_takes_offers_the_nearest() -> None:
    """A misspelt factor would otherwise sweep nothing, or be reported as the lack of the right one."""
    for block in (blocks.conv(8, 1), blocks.conv()):
        with pytest.raises(UnknownNameError, match=r"unknown factor 'widht'. Did you mean width\?"):
            Sweep(block, factors={"widht": [1, 2]})


def test_two_workloads_of_one_name_are_refused() -> None:
    """Two workloads of the same name are refused."""
    with pytest.raises(UsageError, match="got 2 named 'net'"):
        Sweep([NET, NET])


def test_an_unknown_model_offers_the_nearest() -> None:
    """The error of an unknown model suggests the nearest of all sources."""
    with pytest.raises(UnknownNameError, match="Did you mean resnet18"):
        Sweep("resnet81")


def test_a_comma_within_options_separates_nothing() -> None:
    """Labels may carry any JSON object of plain values."""
    text = 'identity, openvino{"hint":"throughput","precision":"f32"} ,tvm'

    assert ["identity", 'openvino{"hint":"throughput","precision":"f32"}', "tvm"] == split_labels(text)


@pytest.mark.parametrize(
    "label", ['c{"a":1,"b":{"c":2,"d":3}}', 'c{"a":"},{","b":"\\",{"}', "c{a:1,b:2}", 'c{"a":","', "c}"]
)
def test_a_label_is_never_torn(label: str) -> None:
    """Braces may be nested, and braces inside a JSON string are none; quotes may be missing."""
    assert ["identity", label] == split_labels(f"identity,{label}")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["a,", ",", "{,", '{"\\"', ",{}"])
def test_a_line_of_a_megabyte_is_split(unit: str) -> None:
    """A line of a megabyte is split in one pass."""
    assert 1_000_000 // len(unit) >= len(split_labels(unit * (1_000_000 // len(unit))))


@given(hint=st.sampled_from(["latency", "throughput"]), precision=st.sampled_from(["f32", "bf16", "f16"]))
def test_a_label_reads_back_as_the_choice_that_it_names(hint: str, precision: str) -> None:
    """A label is parsed to its column, whatever the order of its options."""
    column = Column.parse(json.dumps({"precision": precision, "hint": hint}).join(["openvino", ""]))

    assert {"hint": hint, "precision": precision} == column.settings
    assert column == Column.parse(column.label)
    assert f'openvino{{"hint":"{hint}","precision":"{precision}"}}' == column.label


def test_a_factor_may_not_be_called_like_what_the_dataset_holds() -> None:
    """A factor with the name of a variable is refused, with another name."""
    with pytest.raises(UsageError, match=r"invalid factor 'latency': .*latency_factor"):
        Sweep(Workload(name="net", source="timm", spec={}, takes=("latency",), factors={"latency": (1,)}))


def test_every_name_of_the_dataset_is_reserved() -> None:
    """The sweep, which is read where there is no xarray, knows them all the same."""
    data = synthetic.make_dataset(Sweep(NET, ["identity"], [1]))

    assert {str(name) for name in (*data.dims, *data.variables)} <= RESERVED
    assert set(VARIABLES) <= RESERVED
