"""The command that fits a predictor to labels, says how good it is, and predicts networks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import odd_networks
import pytest
from onnxgraphs import Builder, residual, write

from ngbkit import cli, predict
from ngbkit.api import Sweep
from ngbkit.commands.parser import build_parser, parse
from ngbkit.errors import UsageError
from ngbkit.predict.commands import optimize
from ngbkit.predict.commands.optimize import COMMAND as OPTIMIZE
from ngbkit.predict.commands.predict import COMMAND as PREDICT
from ngbkit.predict.kinds import KINDS
from ngbkit.predict.labels.loading import load_similar

pytestmark = [
    pytest.mark.filterwarnings("ignore:too few networks for intervals"),
    pytest.mark.filterwarnings("ignore:beyond the labels"),
    pytest.mark.filterwarnings("ignore:no prediction of"),
]


@pytest.fixture(autouse=True)
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CSV in the current folder: milliseconds are a price for each block, with a repetition 2 % apart."""
    monkeypatch.chdir(tmp_path)
    rows = ["file,milliseconds"]
    for width in (8, 16, 24):
        for blocks in (1, 2, 3, 4):
            name = residual(tmp_path, width, blocks).name
            rows += [f"{name},{0.1 * blocks}", f"{name},{0.102 * blocks}"]
    Path("labels.csv").write_text("\n".join(rows))
    return Path("labels.csv")


FIT = ("predict", "--fit", "labels.csv", "--kind", "linear", "-c", "onnxruntime")


def test_labels_are_fitted_and_evaluated(capsys: pytest.CaptureFixture[str]) -> None:
    """`predict --fit` evaluates a predictor against FLOPs and noise, and saves it to a file."""
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet"])
    text = capsys.readouterr().out
    assert 0 == cli.main([*FIT, "--quiet", "--json"])
    fitted, flops = json.loads(capsys.readouterr().out)["evaluation"]
    table = predict.load("p.safetensors").predict(["residual-8-2-3-16.onnx"])

    assert "noise" in text
    assert ("linear", "flops") == (fitted["kind"], flops["kind"])
    assert (12, "onnxruntime") == (fitted["graphs"], fitted["compiler"])
    # Of two labels the deviation is 0.80 of the true one, and a mean error 0.80 of the deviation.
    assert pytest.approx(0.0099 / 0.8 * 0.8, abs=2e-4) == fitted["floor"]
    assert fitted["mape"] < flops["mape"]
    assert pytest.approx(0.2e-3, rel=0.1) == table["latency"].item()
    args = parse(build_parser("ngbkit optimize", OPTIMIZE.arguments), ["resnet18", "--cost", "p.safetensors"])
    assert callable(optimize.find_cost(args))


def test_labels_of_several_files_are_merged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table beside saved examples, whose runtime is in the file; what both have is one network."""
    predict.examples("labels.csv", runtime="onnxruntime").save("examples.nc")
    name = residual(tmp_path, 32, 1).name
    Path("more.csv").write_text(f"file,milliseconds\n{name},0.1\nresidual-8-2-3-16.onnx,0.2\n")
    words = ["--fit", "examples.nc", "--fit", "more.csv", "--kind", "linear", "--quiet", "--json"]
    assert 0 == cli.main(["predict", *words, "-c", "onnxruntime"])
    fitted, _ = json.loads(capsys.readouterr().out)["evaluation"]

    assert (13, "onnxruntime") == (fitted["graphs"], fitted["compiler"])
    assert cli.INVALID == cli.main(["predict", "--fit", "examples.nc", "-c", "onnxruntime"])
    assert "says what was measured" in capsys.readouterr().err


def test_the_labels_choose_the_kind(capsys: pytest.CaptureFixture[str]) -> None:
    """The answer has a sentence with the error of each kind, and an object in JSON."""
    words = ["predict", "--fit", "labels.csv", "-c", "onnxruntime", "--quiet"]
    assert 0 == cli.main([*words, "-o", "p.safetensors"])
    text = capsys.readouterr().out
    assert 0 == cli.main([*words, "--json"])
    answer = json.loads(capsys.readouterr().out)
    choice = predict.load("p.safetensors").choice

    assert f"{answer['choice']['kind']} is the cheapest of the best kinds: errors on networks" in text
    assert choice.kind == answer["choice"]["kind"] == answer["evaluation"][0]["kind"]


def test_a_new_device_is_predicted_from_suggested_networks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One command suggests networks, adapts to their labels, and predicts."""
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet"])
    files = sorted(path.name for path in tmp_path.glob("*.onnx"))
    capsys.readouterr()
    assert 0 == cli.main(["predict", *files, "--predictor", "p.safetensors", "--suggest", "6"])
    text = capsys.readouterr().out
    assert 0 == cli.main(["predict", *files, "--predictor", "p.safetensors", "--suggest", "6", "--json"])
    names = [row["workload"] for row in json.loads(capsys.readouterr().out)["suggestions"]]
    table = predict.load("p.safetensors").suggest(files, 6)
    rows = [f"{name}.onnx,{0.3 * int(name.split('-')[2])}" for name in names]
    Path("six.csv").write_text("\n".join(["file,milliseconds", *rows]))
    words = ["predict", files[0], "--predictor", "p.safetensors", "--adapt", "six.csv", "-d", "pi"]
    assert 0 == cli.main([*words, "-o", "pi.safetensors", "--quiet", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert 0 == cli.main([*words, "--quiet"])

    assert names == table["workload"].tolist()
    assert f"`ngbkit run {' '.join(f'{name}.onnx' for name in names)} -c COMPILER -d DEVICE -o measured.nc`" in text
    assert [("pi", "unnamed", 6)] == [(row["device"], row["compiler"], row["networks"]) for row in answer["adaptation"]]
    assert [("pi", pytest.approx(0.3e-3, rel=0.1))] == [
        (row["device"], row["latency"]) for row in answer["predictions"]
    ]
    assert answer["adaptation"][0]["approach"] in capsys.readouterr().out
    assert (("pi", "unnamed"),) == predict.load("pi.safetensors").runtimes


def test_a_family_is_adapted_to(capsys: pytest.CaptureFixture[str]) -> None:
    """Labels of its own runtime correct the predictor."""
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet"])
    capsys.readouterr()
    words = ["predict", "--predictor", "p.safetensors", "--adapt", "labels.csv", "-c", "onnxruntime"]
    assert 0 == cli.main([*words, "-o", "adapted.safetensors", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["adaptation"]

    assert ("cpu", "onnxruntime", 12) == (row["device"], row["compiler"], row["networks"])
    assert "adapted" == predict.load("adapted.safetensors").model.kind


def test_networks_are_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """A saved or newly fitted predictor predicts one row per batch size."""
    words = ["residual-8-2-3-16.onnx", "-b", "1,4"]
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet", *words])
    both = capsys.readouterr().out
    assert 0 == cli.main(["predict", *words, "--predictor", "p.safetensors", "--json"])
    rows = json.loads(capsys.readouterr().out)["predictions"]

    assert [1, 4] == [row["batch_size"] for row in rows]
    assert pytest.approx(0.2e-3, rel=0.1) == rows[0]["latency"]
    assert ("noise" in both, "samples/s" in both) == (True, True)


def test_factors_are_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """A prediction has one row per value of each open dimension, in a column of its own."""
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet"])
    path = write_open_sides()
    words = ["predict", path, "residual-8-2-3-16.onnx", "--predictor", "p.safetensors"]
    assert cli.INVALID == cli.main(words)
    assert "--factor height=…" in capsys.readouterr().err
    assert 0 == cli.main([*words, "--factor", "height=4,8", "--json"])
    first, second, other = json.loads(capsys.readouterr().out)["predictions"]
    assert 0 == cli.main([*words, "--factor", "height=4,8"])
    lines = capsys.readouterr().out.splitlines()

    assert (4, 8, None) == (first["height"], second["height"], other["height"])
    assert ("open", "residual-8-2-3-16") == (second["workload"], other["workload"])
    assert ["workload", "height", "device"] == lines[0].split()[:3]
    assert "nan" not in lines[-1]


def test_factors_of_python_are_those_of_a_sweep() -> None:
    """A sweep has its own, beside which others are an error."""
    fitted = predict.fit(predict.examples("labels.csv", runtime="onnxruntime"), "linear", folds=0)
    path = write_open_sides()
    table = fitted.predict(path, [1, 2], factors={"height": [4, 8]})

    assert ["workload", "height", "device", "compiler", "batch_size"] == list(table.columns[:5])
    assert [(4, 1), (4, 2), (8, 1), (8, 2)] == list(zip(table["height"], table["batch_size"], strict=True))
    assert table.equals(fitted.predict(Sweep(path, batch_sizes=[1, 2], factors={"height": [4, 8]})))
    with pytest.raises(UsageError, match="got height beside a Sweep"):
        fitted.predict(Sweep(path, factors={"height": [4]}), factors={"height": [8]})


def test_files_of_one_name_are_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    """Files of the same name are predicted under distinct names."""
    for number in (1, 2, 3, 4):
        Path(f"net{number}").mkdir()
        residual(Path(), 8, number).rename(f"net{number}/model.onnx")
    rows = [f"net{number}/model.onnx,{0.1 * number}" for number in (1, 2, 3, 4)]
    Path("same.csv").write_text("\n".join(["file,milliseconds", *rows]))
    words = ["predict", "--fit", "same.csv", "--kind", "linear", "--quiet", "--json"]
    assert 0 == cli.main([*words, "net1/model.onnx", "net2/model.onnx"])
    answer = json.loads(capsys.readouterr().out)

    assert 4 == answer["evaluation"][0]["graphs"]
    assert ["net1/model", "net2/model"] == [row["workload"] for row in answer["predictions"]]


def test_inputs_are_described_for_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network that needs values gets them; the batch is where the user says."""
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet"])
    path = odd_networks.write("sized", tmp_path)
    np.savez("values.npz", sizes=np.array([1, 8]))
    words = ["predict", str(path), "--predictor", "p.safetensors"]
    assert cli.INVALID == cli.main(words)
    assert "--inputs FILE" in capsys.readouterr().err

    assert 0 == cli.main([*words, "--inputs", "values.npz"])
    assert 0 == cli.main([*words, "--inputs", "values.npz", "--batch-axis", "x=0"])
    assert cli.INVALID == cli.main([*words, "--batch-axis", "z=0"])


def write_open_sides() -> str:
    """Write a network whose height is open."""
    builder = Builder(8, 16)
    builder.shape[2] = "height"
    return str(write(builder.model(builder.conv("x", 8)), Path("open.onnx")))


def test_what_the_runtime_executes_is_fitted(capsys: pytest.CaptureFixture[str]) -> None:
    """The saved predictor lowers by itself; labels of no runtime that tells its graph are an error."""
    labels = predict.examples("labels.csv", runtime="onnxruntime", lowered=True)
    predict.fit(labels, "linear").save("p.safetensors")
    assert "onnxruntime" == predict.load("p.safetensors").lowering
    assert 0 == cli.main(["predict", "residual-8-2-3-16.onnx", "--predictor", "p.safetensors", "--json"])
    (row,) = json.loads(capsys.readouterr().out)["predictions"]

    assert pytest.approx(0.2e-3, rel=0.1) == row["latency"]
    with pytest.raises(UsageError, match="unnamed tells no graph; expected one of onnxruntime, openvino"):
        predict.examples("labels.csv", lowered=True)


def test_exports_alone_cannot_be_lowered() -> None:
    """Saved examples have graphs, and not the networks."""
    predict.examples("labels.csv", runtime="onnxruntime").save("examples.nc")

    with pytest.raises(UsageError, match="examples with graphs as they were exported"):
        load_similar("examples.nc", "onnxruntime")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet18"], "got neither of --predictor and --fit; expected one"),
        (["--fit", "labels.csv", "--predictor", "p"], "got both of --predictor and --fit"),
        (["--predictor", "p"], "no network to predict"),
        (["--predictor", "p", "--suggest", "3"], "no network to choose from"),
        (["resnet18", "--predictor", "p"], "invalid --predictor: got p, which is no file"),
        (["resnet18", "--predictor", "p", "-o", "q"], "unexpected argument --out"),
        (["resnet18", "--predictor", "p", "-c", "tvm,openvino"], "invalid compilers: got 'tvm,openvino'; expected one"),
        (["--fit", "nowhere.csv"], "invalid --fit: got nowhere.csv, which is no file"),
        (["--fit", "labels.csv", "--kind", "gmm"], "unknown"),
        (["--fit", "labels.csv", "-b", "x"], "batch size"),
        (["resnet18", "--predictor", "labels.csv"], "is not a predictor"),
    ],
)
def test_words_that_do_not_fit_are_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Conflicting arguments are errors before anything is fitted."""
    assert cli.INVALID == cli.main(["predict", *words])
    assert message in capsys.readouterr().err


def test_a_runtime_is_selected(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown one is an error."""
    assert 0 == cli.main([*FIT, "-o", "p.safetensors", "--quiet"])
    words = ["predict", "residual-8-2-3-16.onnx", "--predictor", "p.safetensors"]
    assert 0 == cli.main([*words, "-c", "onnxruntime", "-d", "cpu"])
    capsys.readouterr()

    assert cli.INVALID == cli.main([*words, "-c", "openvino"])
    assert "unknown compiler of this predictor 'openvino'" in capsys.readouterr().err


def test_the_words_say_what_the_code_does() -> None:
    """The kinds and the labels are in the help."""
    helps = {argument.flags[-1]: argument.help for command in (OPTIMIZE, PREDICT) for argument in command.arguments}

    assert all(name in helps["--kind"] for name in KINDS)
    assert "a CSV" in helps["--fit"]
