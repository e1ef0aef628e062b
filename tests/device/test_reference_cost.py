"""A quantised file of the user is checked against itself, and its cost is against its f32 original."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import onnx
import onnxgraphs
import pytest
from plans import carry_out, measure

from ngbkit import Sweep

IMAGES = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)
COMPILERS = ["identity", "onnxruntime"]


def sweep_quantised(network: Path, original: Path | None, **options: object) -> Sweep:
    samples = {"calibrate": {"x": IMAGES}, "repeats": 2, "min_rounds": 2, "threads": 1, "reference": original}
    return Sweep(str(network), COMPILERS, [2], **{**samples, **options})


def run(path: Path) -> np.ndarray:
    """Compute the outputs of a file for all samples by onnx's own operators."""
    from onnx.reference import ReferenceEvaluator

    outputs: np.ndarray = ReferenceEvaluator(onnx.load(path)).run(None, {"x": IMAGES})[0]
    return outputs


def compute_error(outputs: np.ndarray, expected: np.ndarray) -> float:
    return float(np.mean(np.linalg.norm(outputs - expected, axis=1) / np.linalg.norm(expected, axis=1)))


@pytest.fixture
def quantised(mlp_file: Path, tmp_path: Path) -> Path:
    return onnxgraphs.quantise_input(mlp_file, tmp_path / "quantised.onnx", 0.1)


def test_the_cost_is_against_the_original(quantised: Path, mlp_file: Path) -> None:
    """The columns compute the quantised network and differ from its original as both files do, by labels too."""
    outputs, expected = run(quantised), run(mlp_file)
    labels = expected.argmax(1)
    labels[:5] = (labels[:5] + 1) % 4
    labelled = {"x": IMAGES, "labels": labels}
    records = measure(sweep_quantised(quantised, mlp_file, evaluate=labelled, accept="sqnr>=10"))
    plain = measure(sweep_quantised(quantised, None, evaluate=labelled))

    for compiler in COMPILERS:
        record, without = records[compiler, 2], plain[compiler, 2]
        assert ("ok", "mlp.onnx", 40) == (record.status, record.facts["reference"], record.facts["evaluated_samples"])
        assert compute_error(outputs, expected) == pytest.approx(record.facts["relative_error"], rel=0.02)
        assert float(np.mean(outputs.argmax(1) == expected.argmax(1))) == record.facts["agreement"]
        assert float(np.mean(outputs.argmax(1) == labels)) == record.facts["accuracy"] == without.facts["accuracy"]
        assert 35 / 40 == record.facts["reference_accuracy"]
        bits = np.frombuffer(base64.b64decode(record.facts["reference_correct"]), np.uint8)
        assert (expected.argmax(1) == labels).tolist() == np.unpackbits(bits, count=40).astype(bool).tolist()
        assert without.facts["relative_error"] < 1e-3
        assert not [name for name in without.facts if name.startswith("reference")]


def test_a_quantisation_that_costs_too_much_fails(quantised: Path, mlp_file: Path) -> None:
    """Bounds apply to the cost against the original, although the column computes its own network."""
    records, _ = carry_out(sweep_quantised(quantised, mlp_file, accept="sqnr>=90"))
    measure(sweep_quantised(quantised, None, accept="sqnr>=90"))

    for compiler in COMPILERS:
        failure = records[compiler, 2]
        assert ("not-equivalent", "check") == (failure.status, failure.stage)
        assert "over 20 samples, against mlp.onnx; accepted: sqnr>=90" in failure.error


def test_an_original_may_have_its_weights_beside_it(quantised: Path, mlp_file: Path, tmp_path: Path) -> None:
    """Files of external data travel with the original, whatever the network has."""
    folder = tmp_path / "external"
    folder.mkdir()
    original = folder / "mlp.onnx"
    onnx.save(onnx.load(mlp_file), original, save_as_external_data=True, location="weights.bin", size_threshold=0)
    record = measure(sweep_quantised(quantised, original))["onnxruntime", 2]

    assert (folder / "weights.bin").exists()
    assert compute_error(run(quantised), run(mlp_file)) == pytest.approx(record.facts["relative_error"], rel=0.5)


def test_an_original_of_other_shapes_is_refused_where_it_runs(quantised: Path, mlp_file: Path, tmp_path: Path) -> None:
    """The files say nothing of their outputs' shapes, and a run of both does."""
    model = onnx.load(mlp_file)
    model.graph.node[-1].output[0] = "h1"
    model.graph.node.append(onnx.helper.make_node("Concat", ["h1", "h1"], ["y"], axis=1))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    wide = onnxgraphs.write(model, tmp_path / "wide.onnx")
    records, _ = carry_out(sweep_quantised(quantised, wide))
    failure = records["onnxruntime", 2]

    assert "invalid reference: got output 0 of shape (2, 8) from wide.onnx; expected (2, 4)" in failure.error
