"""The other commands on the networks that people bring: optimize, predict, gate, names of files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from field.test_field_files import write_external
from field.test_field_outputs import DETECTIONS, LABELS, LOOP, MAPS, TIME_FIRST, clear_branch_shapes
from field.test_field_values import CATEGORIES
from field.writing import Build, write_graph
from onnxgraphs import residual

from ngbkit import cli
from ngbkit.api import Sweep
from ngbkit.predict.optimizer import optimise

pytestmark = pytest.mark.filterwarnings("ignore:too few networks for intervals")

OPTIMIZE = ("--cost", "flops", "-r", "3", "--quiet")
LEARNING = {"opset": 15, "domains": {"ai.onnx.ml": 3}}


def run(file: Path, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Run a file in ONNX Runtime."""
    outputs: list[np.ndarray] = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, feed)
    return outputs


def keep_first(outcomes: Sequence[object]) -> int | None:
    """Keep the first candidate, whether or not it is faster, so that a rewritten network is written."""
    return 0 if outcomes else None


@pytest.mark.parametrize(
    ("build", "shape"),
    [(write_external, (1, 8)), (write_graph(TIME_FIRST), (1, 6, 8))],
    ids=["24-external-weights", "11b-time-first-output"],
)
def test_an_optimised_file_is_complete(
    build: Build, shape: Sequence[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An optimised file loads from another folder and returns the original's outputs."""
    monkeypatch.setattr(optimise, "choose", keep_first)
    path, out = build(tmp_path), tmp_path / "elsewhere" / "out.onnx"
    out.parent.mkdir()
    feed = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    code = cli.main(["optimize", str(path), "-o", str(out), *OPTIMIZE])

    assert cli.OK == code
    for expected, actual in zip(run(path, feed), run(out, feed), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("text", [MAPS, LABELS, CATEGORIES], ids=["12-zipmap", "12b-text-labels", "13-text-input"])
def test_texts_end_in_no_traceback(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A network with texts is optimised, or refused in one sentence."""
    path = write_graph(text, **LEARNING)(tmp_path)
    code = cli.main(["optimize", str(path), "-o", str(tmp_path / "out.onnx"), *OPTIMIZE])
    error = capsys.readouterr().err

    assert code in (cli.OK, cli.INVALID, cli.FAILED), error
    assert "Traceback" not in error


@pytest.mark.filterwarnings("default::ngbkit.errors.NgbkitWarning")
def test_a_prediction_takes_factors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """15-loop-scan: the number of steps is a factor of its prediction, which labels without a loop cannot make."""
    monkeypatch.chdir(tmp_path)
    sizes = [(width, blocks) for width in (8, 16, 24) for blocks in (1, 2, 3, 4)]
    rows = [f"{residual(tmp_path, width, blocks).name},{0.1 * blocks}" for width, blocks in sizes]
    Path("labels.csv").write_text("\n".join(["file,milliseconds", *rows]))
    network = write_graph(LOOP, change=clear_branch_shapes)(tmp_path)
    fit = ["predict", "--fit", "labels.csv", "--kind", "linear", "-c", "onnxruntime", "--quiet"]
    codes = [cli.main([*fit, "-o", "p.safetensors"])]
    capsys.readouterr()
    codes.append(cli.main(["predict", str(network), "--predictor", "p.safetensors", "--factor", "time=5", "--json"]))
    printed = capsys.readouterr()

    assert [cli.OK, cli.OK] == codes
    assert "time" in printed.out
    assert "no prediction of net: no label has Loop" in printed.err


def test_a_gate_names_what_ran_on_neither_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10b: a compiler that supports neither side is in the report, which says more than that it passed."""
    path = write_graph(LOOP, change=clear_branch_shapes)(tmp_path)
    words = ["gate", str(path), str(path), "-c", "onnxruntime,tvm", "--factor", "time=5", "-r", "10", "--quiet"]
    cli.main([*words, "--fail-on", "slower", "--margin", "99%"])
    report = capsys.readouterr().out

    assert "tvm" in report
    assert "Loop" in report


def test_a_gate_judges_what_data_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """10b-some-detections against itself: both sides are measured."""
    path = write_graph(DETECTIONS.replace("LEAST", "0.3"))(tmp_path)
    code = cli.main(["gate", str(path), str(path), "-c", "onnxruntime", "-r", "10", "--quiet", "--json"])
    report = json.loads(capsys.readouterr().out)

    assert cli.OK == code
    assert ["onnxruntime"] == [row["compiler"] for row in report["trials"]]


def test_files_of_one_name_have_two_labels(tmp_path: Path) -> None:
    """25: each hub calls its file model.onnx; the folders tell them apart."""
    paths = []
    for folder in ("25-a", "25-b"):
        (tmp_path / folder).mkdir()
        paths.append(str(write_graph(TIME_FIRST, name="model.onnx")(tmp_path / folder)))

    assert ["25-a/model", "25-b/model"] == [workload.name for workload in Sweep(paths).workloads]
