"""Factors whose values are texts: as users write them, as a sweep stores them, and as datasets label them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
import xarray as xr

import ngbkit
from ngbkit.api import Sweep
from ngbkit.dataset import assembly
from ngbkit.dataset.selection import select
from ngbkit.errors import UsageError
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.rendering import to_texts
from ngbkit.metrics.tables import compact
from ngbkit.sweep import notes, parsing
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads import blocks
from ngbkit.workloads.base import Workload

VARIANTS = ("residual", "plain")


def build_sweep(**factors: Any) -> Sweep:
    """A sweep over the variants of a cell's model, and over its depths."""
    network = Workload(name="net", source="cell", spec={}, takes=("variant", "depth"), optional=("depth",))
    return Sweep(network, ["identity", "openvino"], [1, 4], factors={"variant": VARIANTS, **factors}, repeats=30)


def measure(**factors: Any) -> xr.Dataset:
    """The synthetic dataset of that sweep, in which each variant has a size of its own."""
    sweep = build_sweep(**factors)
    facts = {facts_key(trial.workload, dict(trial.factors)): {"parameters": 7} for trial in sweep.trials()}
    data = assembly.assemble(sweep, synthetic.make_records(sweep), facts=facts)
    assert isinstance(data, xr.Dataset)
    return data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain,residual", ["plain", "residual"]),
        ("relu6, 3x3 ,pre-norm", ["relu6", "3x3", "pre-norm"]),
        ('"3","5"', ["3", "5"]),
        ('"a, b",c', ["a, b", "c"]),
        ('"true","false"', ["true", "false"]),
        ("64,96", [64, 96]),
        ("1:3", [1, 2, 3]),
    ],
)
def test_the_values_of_a_factor_are_texts_or_numbers(text: str, expected: list[Any]) -> None:
    """Quotes make a text of a number, and texts are formatted so that they are parsed to the same values."""
    values = parsing.parse_factors([f"variant={text}"])["variant"]

    assert expected == values
    assert values == parsing.parse_factor_values("factor", parsing.format_factor_values(values))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain,3", 'numbers and texts; expected only numbers or only texts. .* quote the numbers: "plain","3"'),
        ("true,false", r"got 'true', which would be a text; expected numbers, such as 0,1"),
        ("1:x", r"got '1:x'; expected numbers such as 64,96, a range"),
        ("a b", "or texts such as plain,residual"),
        ("nan", "or texts such as plain,residual"),
        ("", "or texts such as plain,residual"),
    ],
)
def test_an_ambiguous_text_is_an_error(text: str, message: str) -> None:
    """A text that Python would take for a true switch, or a slip in a range, is no value."""
    with pytest.raises(UsageError, match=f"invalid factor variant: .*{message}"):
        parsing.parse_factors([f"variant={text}"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["plain", 3], r"numbers and texts; .* write \['plain', '3'\]"),
        ([""], "expected texts of one line"),
        (['a"b'], "without double quotes"),
        (["a\n"], "expected texts of one line"),
        (["a", "a"], "got a twice"),
        ([None], "one or more numbers, or one or more texts"),
    ],
)
def test_a_sweep_takes_numbers_or_texts(values: list[Any], message: str) -> None:
    """Texts label results, so that each is a line of its own."""
    with pytest.raises(UsageError, match=f"invalid factor variant: .*{message}"):
        build_sweep(variant=values)


def test_a_text_of_numpy_is_a_text() -> None:
    """A trial has the same id, whichever type its text was given as."""
    first, second = build_sweep(), build_sweep(variant=np.array(VARIANTS))

    assert first.id == second.id
    assert [trial.id for trial in first.trials()] == [trial.id for trial in second.trials()]


def test_one_text_is_one_value() -> None:
    """A text is one value of a factor, not a sequence of letters."""
    assert ("plain",) == build_sweep(variant="plain").factors["variant"]


def test_a_sweep_with_texts_is_plain_json() -> None:
    """Devices, journals and command lines get the same trials."""
    sweep = build_sweep(depth=[1, 2])
    words = sweep.to_words()

    assert sweep.id == Sweep.from_json(sweep.to_json()).id
    assert "net variant=residual depth=1 batch 1 identity on cpu" == str(sweep.trials()[0])
    assert "variant=residual,plain" in words


def test_a_dimension_is_a_number(tmp_path: Path) -> None:
    """A text for a size of a block or a file is an error before anything is measured."""
    with pytest.raises(UsageError, match="invalid factor width: got 'wide'; expected numbers, since width is a size"):
        Sweep(blocks.conv(depth=1), factors={"width": "wide"})
    network = Workload(name="tokens", source="onnx", spec={"inputs": []}, takes=("sequence",))
    with pytest.raises(UsageError, match="invalid factor sequence: got 'long'; expected numbers"):
        Sweep(network, factors={"sequence": ["long"]})


def test_the_facts_of_a_network_have_its_texts() -> None:
    """A journal accepts them under the key of the network."""
    key = facts_key("net", {"variant": "plain", "depth": 2})

    assert {"parameters": 7} == notes.parse("facts", key, {"parameters": 7})


def test_a_dataset_has_the_texts_as_labels(tmp_path: Path) -> None:
    """The texts of a factor are labels in order, and survive netCDF and zarr."""
    ds = measure(depth=[1, 2])
    ngbkit.save(ds, tmp_path / "ds.nc")
    ds.to_zarr(tmp_path / "ds.zarr", consolidated=False)

    assert [*VARIANTS] == ds["variant"].values.tolist()
    assert ds.identical(ngbkit.load(tmp_path / "ds.nc"))
    assert [*VARIANTS] == xr.open_zarr(tmp_path / "ds.zarr", consolidated=False)["variant"].values.tolist()
    assert ds.sel(variant="plain").identical(select(ds, variant="plain"))


def test_selected_texts_are_merged_again() -> None:
    """A selected text is a label of its dataset, as a selected number is."""
    ds = measure(depth=[1, 2])

    merged = ngbkit.merge(ds.sel(variant="residual"), ds.sel(variant="plain"))

    assert [*VARIANTS] == merged["variant"].values.tolist()
    np.testing.assert_array_equal(ds["latency"], merged["latency"].transpose(*ds["latency"].dims))


def test_texts_and_numbers_are_not_merged() -> None:
    """A merge refuses a factor with texts in one dataset and numbers in another."""
    with pytest.raises(UsageError, match="cannot merge variant: its values are numbers in one dataset and texts in"):
        ngbkit.merge(measure(depth=1), measure(depth=1, variant=[1, 2]))


def test_tables_and_conclusions_name_the_texts() -> None:
    """A table has a column for the factor, and a sentence names the network with its text."""
    ds = measure()

    assert list(VARIANTS) == compact(ds, "speedup").index.unique("variant").tolist()
    assert "residual" in to_texts(compact(ds, "speedup", select={"variant": "residual"})).to_text()
    assert "net variant=plain batch 1" in conclude(ds).to_text()
