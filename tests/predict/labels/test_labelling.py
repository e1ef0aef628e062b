"""Examples of networks measured elsewhere: every form of networks and seconds, and an error for every other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from onnxgraphs import residual

from ngbkit import blocks, predict
from ngbkit.errors import NgbkitWarning, UnknownNameError, UsageError
from ngbkit.predict import examples

CPU = [("cpu", "onnxruntime")]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Three networks of different depths, by relative paths."""
    monkeypatch.chdir(tmp_path)
    return [residual(tmp_path, 8, blocks_).name for blocks_ in (1, 2, 3)]


def test_files_and_seconds(files: list[str]) -> None:
    """A file is called by its path; its graph is that which a prediction reads."""
    labels = examples(files, [0.001, 0.002, 0.003], runtime="onnxruntime")

    assert [f"{file} batch 1" for file in files] == list(labels.names)
    assert (tuple(CPU), {"residual"}, tuple(files)) == (labels.runtimes, set(labels.families), labels.parents)
    assert [predict.read(Path(file)).digest for file in files] == [graph.digest for graph in labels.graphs]
    np.testing.assert_allclose([[0.001], [0.002], [0.003]], labels.seconds)


@pytest.mark.parametrize(
    ("seconds", "runtime", "expected"),
    [
        ([[1e-3, 2e-3]] * 3, ["onnxruntime", "openvino"], [("cpu", "onnxruntime"), ("cpu", "openvino")]),
        ({"onnxruntime": [1e-3] * 3, ("pi", "tvm"): [2e-3] * 3}, None, [("cpu", "onnxruntime"), ("pi", "tvm")]),
        (pd.DataFrame({"tvm on pi": [1e-3] * 3, "tflite": [2e-3] * 3}), None, [("pi", "tvm"), ("cpu", "tflite")]),
        ([[1e-3], [1e-3], [1e-3]], ("pi", "tvm"), [("pi", "tvm")]),
        (pd.Series([1e-3] * 3), None, [("cpu", "unnamed")]),
    ],
)
def test_runtimes(files: list[str], seconds: Any, runtime: Any, expected: list[tuple[str, str]]) -> None:
    """A runtime is a name, with or without its device; several are a list, or the keys of the seconds."""
    labels = examples(files, seconds, runtime=runtime)

    assert expected == list(labels.runtimes)
    np.testing.assert_allclose([1e-3, 2e-3][: len(expected)], labels.seconds[0])


def test_pairs_and_dicts(files: list[str]) -> None:
    """One argument gives networks and their seconds, as pairs or as a dict."""
    pairs = [(file, 1e-3 * index) for index, file in enumerate(files, start=1)]

    for networks in (pairs, dict(pairs), np.array(pairs, dtype=object).tolist()):
        np.testing.assert_allclose([[1e-3], [2e-3], [3e-3]], examples(networks, runtime="onnxruntime").seconds)


def test_models_graphs_and_workloads(files: list[str]) -> None:
    """Models, graphs and workloads give the same graphs as their files."""
    models = [onnx.load(files[0]), predict.read(Path(files[1])), Path(files[2])]
    labels = examples(models, [1e-3, 2e-3, 3e-3])
    batched = examples(
        [files[0], blocks.conv()], [1e-3, 2e-3], batch_size=[4, 2], factors={"width": 8, "depth": [0, 1]}
    )

    assert [predict.read(Path(file)).digest for file in files] == [graph.digest for graph in labels.graphs]
    assert ("network 1 batch 1", "network 2", f"{files[2]} batch 1") == labels.names
    assert 4 == batched.graphs[0].inputs[0].shape[0]
    assert "width=8 depth=1 batch 2" in batched.names[1]


def test_texts_and_errors(files: list[str]) -> None:
    """Examples have one family for all or one for each, and errors are shares."""
    labels = examples(
        files,
        [1e-3, 2e-3, 3e-3],
        family="mine",
        parent=["a", "a", "b"],
        name=["x", "y", "z"],
        errors=[0.1, 0.2, np.nan],
    )

    assert (("mine",) * 3, ("a", "a", "b")) == (labels.families, labels.parents)
    assert ("x batch 1", "y batch 1", "z batch 1") == labels.names
    np.testing.assert_array_equal([[0.1], [0.2], [np.nan]], labels.errors)


def test_equal_graphs_are_merged(files: list[str]) -> None:
    """No split sees a graph twice; the spread of its labels is their noise."""
    labels = examples([*files, files[0]], [1e-3, 2e-3, 3e-3, 1.1e-3])

    assert 3 == len(labels)
    assert pytest.approx(np.sqrt(np.pi / 2) * np.log(1.1) / 2) == labels.errors[0, 0]
    assert (3, 1) == tuple(labels.noise.loc[0, ["graphs", "known"]])


def test_what_was_not_measured_is_left_out(files: list[str]) -> None:
    """NaN on one runtime stays; a network without any latency is reported."""
    with pytest.warns(NgbkitWarning, match="1 without a latency are left out: network 2"):
        labels = examples(files, [[1e-3, np.nan], [np.nan, np.nan], [1e-3, 2e-3]], runtime=["onnxruntime", "tvm"])

    assert [[True, False], [True, True]] == np.isfinite(labels.seconds).tolist()


def test_milliseconds_are_suspected(files: list[str]) -> None:
    """A warning reports labels that seem to be milliseconds."""
    with pytest.warns(NgbkitWarning, match=r"median latency is 2 s: if these are milliseconds, divide"):
        examples(files, [1.5, 2.0, 2.5])
    examples(files, [1.5e-3, 2.0e-3, 2.5e-3])


@pytest.mark.parametrize(
    ("seconds", "arguments", "message"),
    [
        ([1e-3, 2e-3], {}, r"got shape \(2,\) for 3 networks and 1 runtime"),
        ([1e-3] * 3, {"runtime": ["a", "b"]}, r"for 3 networks and 2 runtime"),
        ([[1e-3, 2e-3]] * 3, {}, r"Name the runtimes of several columns by a list"),
        ([[1e-3] * 3, [2e-3] * 3], {"runtime": ["a", "b"]}, r"got shape \(2, 3\) for 3 networks"),
        ([1e-3, -2e-3, 1e-3], {}, r"seconds of network 2 \(residual.*got -0.002; expected a number above 0"),
        ([1e-3, 0, 1e-3], {}, "got 0; expected a number above 0"),
        ([1e-3, np.inf, 1e-3], {}, "got inf; expected a number above 0"),
        ([np.nan] * 3, {}, "no latency of 3 networks"),
        (["fast"] * 3, {}, "invalid seconds: .*expected numbers"),
        (None, {}, r"missing seconds; expected .*pairs"),
        ({"a": [1e-3]}, {}, r"invalid seconds of a: got shape \(1,\) for 3 networks"),
        ({"a": [1e-3] * 3}, {"runtime": "b"}, "keys of seconds name the runtimes"),
        ([1e-3] * 3, {"runtime": 3}, "invalid runtime: got 3"),
        ([[1e-3, 1e-3]] * 3, {"runtime": ["a", "a"]}, "each once"),
        ([1e-3] * 3, {"family": ["a"]}, "invalid family: got 1 for 3 networks"),
        ([1e-3] * 3, {"batch_size": 0}, "invalid batch_size: got 0"),
        ([1e-3] * 3, {"errors": [-1, 0, 0]}, "invalid errors"),
        ([1e-3] * 3, {"factors": {"width": [1]}}, "got 1 values of width for 3 networks"),
    ],
)
def test_what_does_not_fit_is_an_error(files: list[str], seconds: Any, arguments: dict[str, Any], message: str) -> None:
    """The error of invalid labels has the value, the valid ones and a remedy."""
    with pytest.raises(UsageError, match=message):
        examples(files, seconds, **arguments)


def test_what_is_no_network_is_an_error(files: list[str], tmp_path: Path) -> None:
    """The error of an invalid network names it before any network is built."""
    (tmp_path / "text.onnx").write_text("no graph")
    opened = onnx.load(files[0])
    opened.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(opened, tmp_path / "open.onnx")
    for network, message in (
        ("nowhere.onnx", "network 2: there is no file nowhere.onnx"),
        ("resnet81", "network 2: unknown workload 'resnet81'"),
        ("text.onnx", "network 2: text.onnx is not an ONNX file"),
        ("open.onnx", r"network 2: open.onnx is open in height.*factors=\{'height'"),
        (torch.nn.Linear(1, 1), "network 2: got a torch module.*ngbkit.from_module"),
        ((files[0], 1e-3), "network 2: invalid network: got a tuple.*leave out seconds"),
        (3, "network 2: invalid network: got a int"),
    ):
        with pytest.raises(UsageError, match=message):
            examples([files[0], network], [1e-3, 1e-3])
    with pytest.raises(UsageError, match="got one str; expected a list"):
        examples(files[0], [1e-3])
    with pytest.raises(UsageError, match="got none"):
        examples([], [])
    assert issubclass(UnknownNameError, UsageError)


def test_they_can_be_learned_from(files: list[str], tmp_path: Path) -> None:
    """A predictor of these labels predicts their files."""
    networks = [residual(tmp_path, width, depth) for width in (8, 16) for depth in (1, 2, 3, 4)]
    labels = examples(networks, [1e-4 * depth for _ in (8, 16) for depth in (1, 2, 3, 4)], runtime="onnxruntime")
    table = predict.fit(labels, "linear").predict([files[1]], ci=0.8)

    assert [("cpu", "onnxruntime")] == list(zip(table["device"], table["compiler"], strict=True))
    assert 1e-4 < table["latency"].item() < 4e-4
