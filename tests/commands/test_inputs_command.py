"""The command, and `ngbkit.describe`, that show what networks take before anything is measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from field.writing import write_graph, write_source

import ngbkit
from ngbkit import cli
from ngbkit.errors import UnknownNameError, WorkloadError
from ngbkit.sweep import description

RATE = """
speech (float[batch, 4] input, float[2, batch, 4] state, int64 sr) => (float[batch, 4] output) {
    rate = Cast<to = 1>(sr)
    mean = ReduceMean<axes = [0], keepdims = 0>(state)
    total = Add(input, mean)
    output = Mul(total, rate)
}"""
DECODER = """
decoder (int64[batch, sequence] input_ids, int64[batch, "past + sequence"] mask, float[batch, past, 4] cache)
    => (float[batch, "past + sequence", 4] keys, int64[batch, "past + sequence"] seen) <float[50, 4] table> {
    words = Gather(table, input_ids)
    keys = Concat<axis = 1>(cache, words)
    seen = Identity(mask)
}"""
BEAM = """
beam (float[batch, 4] cache, int64[batch] beam) => (float[batch, 4] y) { y = Gather(cache, beam) }"""
SIZES = """
resize (float[1, 3, 8, 8] x, int64[4] sizes) => (float[a, b, c, d] y) {
    y = Resize<mode = "nearest">(x, , , sizes)
}"""
FIXED = """
fixed (float[2, 4] x, bool[2, 4] mask) => (float[2, 4] y) {
    number = Cast<to = 1>(mask)
    y = Mul(x, number)
}"""
TEXT = "words (string[batch, 3] x) => (string[batch, 3] y) { y = Identity(x) }"
SCALAR = "scalar (float x) => (float y) { y = Sqrt(x) }"
FACTORS = """
def model(width):
    return nn.Linear(width, 2)
input_shape = lambda width: (width,)
"""
TENSORS = """
model = nn.Bilinear(4, 4, 2)
inputs = (torch.ones(3, 4), torch.ones(3, 4))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(text: str, folder: Path) -> str:
    """Write a graph and return its name."""
    return str(write_graph(text)(folder))


def show(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the description of one network, as JSON."""
    assert cli.OK == cli.main(["inputs", *words, "--json"])
    (network,) = json.loads(capsys.readouterr().out)
    described: dict[str, Any] = network
    return described


@pytest.mark.parametrize(
    ("graph", "rows", "notes"),
    [
        (
            RATE,
            [
                ("input", "float32", "(batch, 4)", "dimension 0", "noise"),
                ("state", "float32", "(2, batch, 4)", "dimension 1", "noise"),
                ("sr", "int64", "()", "none: the same for every sample", "zeros and ones"),
            ],
            ["net: batch: any size."],
        ),
        (
            DECODER,
            [
                ("input_ids", "int64", "(batch, sequence)", "dimension 0", "integers from 0 to 49"),
                ("mask", "int64", "(batch, past + sequence)", "dimension 0", "zeros and ones"),
                ("cache", "float32", "(batch, past, 4)", "dimension 0", "noise"),
            ],
            [
                "net: batch: any size.",
                "net: 2 factors without a value: --factor sequence=… --factor past=….",
                "net: dimension past + sequence follows from past and sequence.",
            ],
        ),
        (
            BEAM,
            [
                ("cache", "float32", "(batch, 4)", "dimension 0", "noise"),
                ("beam", "int64", "(batch)", "dimension 0", "integers from 0 to batch - 1"),
            ],
            ["net: batch: any size."],
        ),
        (
            SIZES,
            [
                ("x", "float32", "(1, 3, 8, 8)", "none", "noise"),
                ("sizes", "int64", "(4)", "none", "MUST BE GIVEN: the sizes of Resize; --inputs FILE"),
            ],
            [
                f"net: {description.NO_BATCH}; use -b 1. If a dimension is the batch, name it: --batch-axis x=0.",
                "net: input sizes is the sizes of Resize, and the file does not tell which values it takes. Give them: "
                "--inputs FILE, an .npz with an array sizes of shape (4), or inputs={…}.",
            ],
        ),
        (
            FIXED,
            [
                ("x", "float32", "(batch, 4)", "dimension 0", "noise"),
                ("mask", "bool", "(batch, 4)", "dimension 0", "zeros and ones"),
            ],
            ["net: batch: 2 only, its dimension is fixed."],
        ),
        (TEXT, [("x", "str", "(batch, 3)", "dimension 0", "texts: a and b")], ["net: batch: any size."]),
        (SCALAR, [("x", "float32", "()", "none", "noise")], [f"net: {description.NO_BATCH}; use -b 1."]),
    ],
    ids=["rate", "decoder", "beam", "sizes", "fixed", "text", "scalar"],
)
def test_a_file_is_described_without_building_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, graph: str, rows: list[tuple[str, ...]], notes: list[str]
) -> None:
    """Each input has its batch and its values; sentences say what is valid and what must be given."""
    monkeypatch.setattr("ngbkit.workloads.building.build", None)
    table = ngbkit.describe(write(graph, folder))

    assert list(description.COLUMNS) == list(table.columns)
    assert [("net", *row) for row in rows] == list(table.itertuples(index=False, name=None))
    assert notes == table.attrs["notes"]


def test_the_command_prints_the_rows_and_the_sentences(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command prints a table with sentences below, or JSON."""
    monkeypatch.setenv("COLUMNS", "200")
    name = write(DECODER, folder)
    assert cli.OK == cli.main(["inputs", name])
    text = capsys.readouterr().out
    network = show(capsys, name, "--factor", "past=8,16")

    assert "(batch, past + sequence)" in text
    assert text.endswith("net: dimension past + sequence follows from past and sequence.\n")
    assert {"past": [8, 16], "sequence": None} == network["factors"]
    assert ["batch", "past + sequence"] == network["inputs"][1]["shape"]
    assert [0, 0, 0] == [spec["batch_axis"] for spec in network["inputs"]]
    assert network["batch_size"] is None


def test_a_dimension_that_follows_has_a_size_once_its_factors_have(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dependent dimension has its size at the first values of its factors."""
    notes = show(capsys, write(DECODER, folder), "--factor", "past=8,16", "--factor", "sequence=1")["notes"]

    assert "net: factors: sequence=1; past=8,16." in notes
    assert "net: dimension past + sequence follows from past and sequence, 9 at past=8, sequence=1." in notes


def test_the_user_names_the_batch(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An input without a batch is the same for every sample."""
    name = write(FIXED, folder)
    network = show(capsys, name, "--batch-axis", "mask=none")

    assert [0, None] == [spec["batch_axis"] for spec in network["inputs"]]
    assert ["dimension 0", "none: the same for every sample"] == list(
        ngbkit.describe(name, batch_axis={"mask": None})["batch"]
    )


def test_values_of_the_user_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The inputs list the user's values by their rows and file, and these decide open dimensions."""
    np.savez(folder / "values.npz", input=np.ones((3, 4), np.float32), sr=np.array(16000))
    np.savez(folder / "cache.npz", cache=np.ones((1, 6, 4), np.float32))
    rate = show(capsys, write(RATE, folder), "--inputs", "values.npz")
    decoder = show(capsys, write(DECODER, folder), "--inputs", "net=cache.npz")
    arrays = ngbkit.describe(write(SIZES, folder), inputs={"sizes": np.array([1, 3, 16, 16])})

    assert ["given: 3 rows of values.npz", "noise", "given: 16000 of values.npz"] == [
        spec["values"] for spec in rate["inputs"]
    ]
    assert "given: 1 row of cache.npz" == decoder["inputs"][2]["values"]
    assert {"past": [6], "sequence": None} == decoder["factors"]
    assert ["noise", "given: 1, 3, 16, 16"] == list(arrays["values"])
    assert [] == [note for note in arrays.attrs["notes"] if "--inputs" in note]


def test_other_networks_are_built(folder: Path) -> None:
    """Networks from source are built at the first value of each factor, and not if one has none."""
    for name, text in (("factors", FACTORS), ("tensors", TENSORS)):
        write_source(text)(folder).rename(folder / f"{name}.py")
    table = ngbkit.describe(["factors.py", "tensors.py", "blocks.conv"], factors={"width": [8, 16]})

    assert ["(batch, 8)", "(batch, 4)", "(batch, 4)", ""] == list(table["shape"])
    assert ["noise", "its own: 3 rows", "its own: 3 rows", "known once its factors have values"] == list(
        table["values"]
    )
    assert "factors: factors: width=8,16; the shapes are those at the first values." in table.attrs["notes"]
    assert "conv: 1 factor without a value: --factor depth=…." in table.attrs["notes"]


def test_a_network_of_a_missing_library_is_known_on_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row names what is not installed."""
    monkeypatch.setattr(description, "find_spec", lambda name: None if name == "timm" else object())
    (values,) = ngbkit.describe("resnet18")["values"]

    assert "known on the device: timm not installed here" == values


def test_wrong_options_are_errors(folder: Path) -> None:
    """A factor or an input that no network has, and values that do not fit, are those of a sweep."""
    name = write(DECODER, folder)
    with pytest.raises(UnknownNameError, match="unknown factor 'pasta'"):
        ngbkit.describe(name, factors={"pasta": 1})
    with pytest.raises(UnknownNameError, match="unknown input 'rate'"):
        ngbkit.describe(name, batch_axis={"rate": 0})
    with pytest.raises(WorkloadError, match="invalid values of input cache of net: got shape"):
        ngbkit.describe(name, inputs={"cache": np.ones((1, 2, 3), np.float32)})
