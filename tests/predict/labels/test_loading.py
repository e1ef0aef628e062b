"""Fitting takes labels in each form that the shell takes; families and mistakes of labels are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from onnxgraphs import residual

from ngbkit import predict
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.predict import examples, read
from ngbkit.predict.labels import measured_networks
from ngbkit.predict.labels.loading import load_labels

pytestmark = pytest.mark.filterwarnings("ignore:too few networks for intervals")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Five networks of different depths, and a CSV of their milliseconds."""
    monkeypatch.chdir(tmp_path)
    files = [residual(tmp_path, 8, blocks).name for blocks in range(1, 6)]
    rows = [f"{file},{index}" for index, file in enumerate(files, start=1)]
    Path("labels.csv").write_text("\n".join(["file,milliseconds", *rows]))
    return files


FORMS: list[Callable[[list[str]], Any]] = [
    lambda _files: "labels.csv",
    lambda _files: Path("labels.csv"),
    lambda _files: ["labels.csv"],
    lambda files: [(file, 1e-3 * index) for index, file in enumerate(files, start=1)],
    lambda files: {file: 1e-3 * index for index, file in enumerate(files, start=1)},
    lambda files: pd.DataFrame({"file": files, "milliseconds": [1, 2, 3, 4, 5]}),
    lambda _files: examples("labels.csv"),
    lambda _files: str(examples("labels.csv").save("saved.nc")),
    lambda files: [examples(files[:2], [1e-3, 2e-3]), examples(files[2:], [3e-3, 4e-3, 5e-3])],
]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_labels_gives_the_same_examples(form: Callable[[list[str]], Any], files: list[str]) -> None:
    """A CSV, pairs, a dict, a DataFrame, examples, their file, and a list of several are labels."""
    labels = load_labels(form(files))

    np.testing.assert_allclose([[1e-3], [2e-3], [3e-3], [4e-3], [5e-3]], labels.seconds)


def test_a_predictor_is_fitted_to_a_table_and_asked_about_any_network(files: list[str]) -> None:
    """Files, graphs, models, names of files and labels are predicted alike, in the order of the question."""
    import onnx

    fitted = predict.fit("labels.csv", "linear", runtime="onnxruntime", folds=2)
    graph = read(Path(files[1]))
    mixed = fitted.predict([graph, files[2], Path(files[0]), onnx.load(files[1])], ci=0.5)
    expected, _, _ = fitted.seconds(graph, ci=0.5)

    assert ["network 1", "residual-8-3-3-16", "residual-8-1-3-16", "network 4"] == list(mixed["workload"])
    assert pytest.approx(expected.item()) == mixed["latency"][0] == mixed["latency"][3]
    np.testing.assert_allclose(expected, fitted.seconds([files[1]], ci=0.5)[0])
    np.testing.assert_allclose(fitted.seconds(files, ci=0.5)[0], fitted.seconds("labels.csv", ci=0.5)[0])
    assert [1] * 5 == list(fitted.predict(examples("labels.csv"), ci=0.5)["batch_size"])
    with pytest.raises(UsageError, match="invalid network: got a int; expected the path"):
        fitted.seconds([7])


def test_a_text_for_people_is_short(files: list[str]) -> None:
    """A predictor, its examples and its graphs are a line each."""
    labels = examples("labels.csv", runtime="tvm on pi")
    fitted = predict.fit(labels, "flops", folds=2)

    assert "<Predictor: flops for tvm on pi; 5 networks held out>" == repr(fitted)
    assert "<Examples: 5 graphs of 1 family, tvm on pi>" == repr(labels)
    assert repr(read(Path(files[0]))).startswith("<Graph: 3 operators, 147,456 MACs, ")


def test_other_things_are_no_labels(files: list[str]) -> None:
    """The error lists what labels are, and the file that is missing."""
    for data in (5, [], read(Path(files[0]))):
        with pytest.raises(UsageError, match=r"invalid labels: got a \w+; expected the dataset of a run, Examples"):
            load_labels(data)
    with pytest.raises(UsageError, match=r"invalid labels: got none\.csv, which is no file"):
        load_labels("none.csv")


def test_each_file_of_a_long_table_is_read_once(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeated measurements of a network cost no further reading."""
    rows = [f"{file},{index + 0.001 * number}" for number in range(50) for index, file in enumerate(files, start=1)]
    Path("long.csv").write_text("\n".join(["file,milliseconds", *rows]))
    parse, parsed = measured_networks.parse_workload, []
    monkeypatch.setattr(measured_networks, "parse_workload", lambda text: parsed.append(text) or parse(text))
    labels = load_labels("long.csv")

    assert (5, 5) == (len(parsed), len(labels))


def test_families_of_numbered_files_are_their_folders(files: list[str]) -> None:
    """Letters tell families apart where there are several; numbers are no families."""
    find = measured_networks.find_families

    assert {"a/01.onnx": "a", "a/02.onnx": "a", "b/01.onnx": "b"} == find(["a/01.onnx", "a/02.onnx", "b/01.onnx"])
    assert {"00.onnx": "network", "01.onnx": "network"} == find(["00.onnx", "01.onnx"])
    assert ["vgg", "vgg", "resnet"] == list(find(["x/vgg1.onnx", "y/vgg2.onnx", "x/resnet18.onnx"]).values())
    assert ["x", "x", "y"] == list(find(["x/net1.onnx", "x/net2.onnx", "y/net3.onnx"]).values())


def test_a_split_by_families_of_one_network_each_is_reported(files: list[str]) -> None:
    """It would be a random split; a single family is an error with a hint."""
    labels = examples(files, [1e-3, 2e-3, 3e-3, 4e-3, 5e-3], family=list("abcde"))
    with pytest.warns(NgbkitWarning, match="each of the 5 networks is a family of its own"):
        predict.evaluate(labels, ["flops"], split="family", seeds=(0,))
    with pytest.raises(UsageError, match=r"only 'residual' of its families.*a column 'family'"):
        predict.evaluate("labels.csv", ["flops"], split="family", seeds=(0,))


@pytest.mark.parametrize(
    ("header", "row", "message"),
    [
        ("file,milliseconds", "{file},1e-320", "expected a number above 0, from 1e-12 to"),
        ("file,milliseconds", "{file},1e300", "expected a number above 0, from 1e-12 to"),
        ("file,milliseconds,batch", "{file},1,12345678901234567890", "invalid batch size of .*: got 1.23457e.19"),
    ],
)
def test_impossible_numbers_are_errors(files: list[str], header: str, row: str, message: str) -> None:
    """The error names the line, the number and the limits."""
    Path("wrong.csv").write_text(f"{header}\n{row.format(file=files[0])}\n")

    with pytest.raises(UsageError, match=message):
        load_labels("wrong.csv")


def test_escape_sequences_of_names_are_removed(files: list[str]) -> None:
    """A foreign table writes nothing but text to a terminal."""
    Path("foreign.csv").write_text(f"file,milliseconds,device,runtime\n{files[0]},1,pi\x1b[31m5,t\x1b]0;x\x07vm\n")

    assert (("pi5", "tvm"),) == load_labels("foreign.csv").runtimes
    assert (("pi5", "tvm"),) == examples(files[:1], [1e-3], runtime=("pi\x1b[2J5", "tvm")).runtimes


def test_repetitions_that_no_noise_explains_are_reported(files: list[str]) -> None:
    """Latencies of 1, 50 and 900 ms of one network are a mistake; a difference of 20 % is noise."""
    with pytest.warns(NgbkitWarning, match=r"has latencies from 1 to 900 ms on unnamed of cpu: no noise expl"):
        examples([files[0]] * 3, [0.001, 0.05, 0.9])
    examples([files[0]] * 3, [0.001, 0.0011, 0.0012])
