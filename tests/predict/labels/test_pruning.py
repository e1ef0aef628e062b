"""Operators of no effect are part of the graphs where the labels say that the runtime executes them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import Builder, write

from ngbkit import cli, predict
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.predict.graphs import UNPRUNED

pytestmark = [
    pytest.mark.filterwarnings("ignore:too few networks for intervals"),
    pytest.mark.filterwarnings("ignore:beyond the labels"),
]
SHAPES = tuple(product((1, 2, 3, 4, 5, 6), (0, 1, 2)))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write chains of convolutions, each chain with others beside it that feed no output."""
    monkeypatch.chdir(tmp_path)
    for alive, dead in SHAPES:
        build = Builder(16)
        value = "x"
        for _ in range(alive):
            value = build.conv(value, 16)
        for _ in range(dead):
            build.conv("x", 16)
        write(build.model(value), tmp_path / f"net{alive}{dead}.onnx")
    return [f"net{alive}{dead}.onnx" for alive, dead in SHAPES]


def write_table(files: list[str], milliseconds: list[float]) -> None:
    rows = [f"{file},{value:.6f}" for file, value in zip(files, milliseconds, strict=True)]
    Path("labels.csv").write_text("\n".join(["file,milliseconds", *rows]))


def test_executed_operators_are_kept(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Prices with them predict better; predictions of files then have them too, from Python and a shell alike."""
    write_table(files, [0.1 + alive + dead for alive, dead in SHAPES])
    with pytest.warns(NgbkitWarning, match=r"18 pairs .* They are part of the graphs; keep_dead=False") as caught:
        labels = predict.examples("labels.csv", runtime="tflite")
    with pytest.warns(NgbkitWarning, match="part of the graphs"):
        fitted = predict.fit("labels.csv", "linear", runtime="tflite")
    loaded = predict.load(fitted.save("p.safetensors"))
    predicted = loaded.predict(files)["latency"]
    words = ["--fit", "labels.csv", "--kind", "linear", "--runtime", "tflite", "--keep-dead", "yes", "--quiet"]

    assert 1 == len(caught)
    assert (UNPRUNED, len(SHAPES)) == (labels.lowering, len(labels)) == (loaded.lowering, len(SHAPES))
    np.testing.assert_allclose(predicted, [1e-3 * (0.1 + alive + dead) for alive, dead in SHAPES], rtol=0.1)
    assert predicted.tolist() == loaded.predict("labels.csv")["latency"].tolist()
    assert cli.OK == cli.main(["predict", *words, "-o", "q.safetensors"])
    assert Path("p.safetensors").read_bytes() == Path("q.safetensors").read_bytes()
    assert cli.INVALID == cli.main(["predict", files[0], "--predictor", "q.safetensors", "--keep-dead", "no"])
    assert "unexpected argument --keep-dead" in capsys.readouterr().err


def test_dropped_operators_stay_out(files: list[str]) -> None:
    """Differences that follow from something else are the noise of equal graphs."""
    generator = np.random.default_rng(0)
    write_table(files, [(0.1 + alive) * float(np.exp(0.2 * generator.standard_normal())) for alive, _ in SHAPES])
    with pytest.warns(NgbkitWarning) as caught:
        labels = predict.examples("labels.csv", runtime="onnxruntime")

    assert ("", 6) == (labels.lowering, len(labels))
    assert any("They are left out; keep_dead=True (--keep-dead yes)" in str(each.message) for each in caught)
    with pytest.raises(UsageError, match="invalid keep_dead=True with lowered=True"):
        predict.examples("labels.csv", runtime="onnxruntime", lowered=True, keep_dead=True)


def test_equal_latencies_decide_nothing(files: list[str], recwarn: pytest.WarningsRecorder) -> None:
    """Graphs have no operators of no effect where no networks differ, and nothing is said."""
    write_table(files, [0.1 + alive for alive, _ in SHAPES])

    assert "" == predict.examples("labels.csv", runtime="onnxruntime").lowering
    assert "unpruned" == predict.examples("labels.csv", runtime="onnxruntime", keep_dead=True).lowering
    assert not list(recwarn)
