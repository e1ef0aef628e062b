"""The f32 original of a quantised ONNX file is checked before anything is measured, and travels with its network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxgraphs
import pytest

from ngbkit import Sweep
from ngbkit.errors import UsageError
from ngbkit.sweep.grid import Grid
from ngbkit.workloads import blocks
from ngbkit.workloads.base import RANDOM

SAMPLES = {"x": np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)}


@pytest.fixture
def quantised(mlp_file: Path, tmp_path: Path) -> Path:
    return onnxgraphs.quantise_input(mlp_file, tmp_path / "quantised.onnx", 0.05)


def rewrite(source: Path, path: Path, change: Callable[[Any], None]) -> Path:
    """Write another version of a file."""
    model = onnx.load(source)
    change(model.graph)
    return onnxgraphs.write(model, path)


def rename_output(graph: Any) -> None:
    graph.node[-1].output[0] = graph.output[0].name = "logits"


def narrow_output(graph: Any) -> None:
    graph.output[0].type.tensor_type.shape.dim[1].dim_value = 5


def name_input(graph: Any) -> None:
    graph.node[0].input[0] = graph.input[0].name = "image"


def fix_batch(graph: Any) -> None:
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3


def halve(graph: Any) -> None:
    weight = onnx.numpy_helper.to_array(graph.initializer[0])
    graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weight.astype(np.float16), "w"))
    graph.node.insert(0, onnx.helper.make_node("Cast", ["w"], ["w0"], to=onnx.TensorProto.FLOAT))


def test_a_reference_travels_by_content(quantised: Path, mlp_file: Path, tmp_path: Path) -> None:
    """Its folder is no part of the sweep's id, its content and name are, and JSON keeps all of it."""
    copy, other = tmp_path / mlp_file.name, tmp_path / "other.onnx"
    copy.write_bytes(mlp_file.read_bytes())
    other.write_bytes(mlp_file.read_bytes())
    sweeps = [Sweep(str(quantised), calibrate=SAMPLES, reference=path) for path in (mlp_file, copy, other)]
    first, second, third = sweeps
    (workload,) = first.workloads
    copy.unlink()

    assert first.id == second.id == Grid.from_json(second.to_json()).id
    assert 3 == len({first.id, third.id, Sweep(str(quantised), calibrate=SAMPLES).id})
    assert first.trials()[0].id != third.trials()[0].id
    assert workload.reference["files"].keys() < workload.artifacts.keys()


def test_a_reference_is_of_one_network(quantised: Path, mlp_file: Path) -> None:
    """The words of a sweep name the network, whose original is another network of the sweep."""
    networks = [str(quantised), str(mlp_file)]
    sweep = Sweep(networks, calibrate=SAMPLES, reference={"quantised": mlp_file}, together=True)

    assert [True, False] == [bool(workload.reference) for workload in sweep.workloads]
    words = sweep.to_words()
    assert f"quantised={mlp_file}" == words[words.index("--reference") + 1]
    with pytest.raises(UsageError, match=r"unknown network of --reference 'quantized'. Did you mean quantised\?"):
        Sweep(networks, calibrate=SAMPLES, reference={"quantized": mlp_file})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (rename_output, r"with outputs logits float \(batch, 4\); expected y float \(batch, 4\), as quantised has"),
        (narrow_output, r"with outputs y float \(batch, 5\); expected y float \(batch, 4\), as quantised has"),
        (name_input, r"with inputs image float32 \(batch, 16\); expected x float32 \(batch, 16\), as quantised has"),
        (fix_batch, r"with a batch of 3; expected any number, as quantised has"),
        (halve, r"got reference.onnx, which computes in f16; expected an ONNX file in f32"),
    ],
)
def test_another_network_is_no_reference(
    change: Callable[[Any], None], message: str, quantised: Path, mlp_file: Path, tmp_path: Path
) -> None:
    """The sentence has the difference, and names the remedy."""
    path = rewrite(mlp_file, tmp_path / "reference.onnx", change)

    with pytest.raises(UsageError, match=f"^invalid reference: .*{message}.* Give the file that"):
        Sweep(str(quantised), calibrate=SAMPLES, reference=path)


def test_a_quantised_file_is_no_reference(quantised: Path, mlp_file: Path, tmp_path: Path) -> None:
    """Neither a QDQ file nor one whose weights alone are quantised is an original."""

    def quantise_weight(graph: Any) -> None:
        weight = onnx.numpy_helper.to_array(graph.initializer[0])
        graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array((weight * 20).astype(np.int8), "w"))
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.05), "step"))
        graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", ["w", "step"], ["w0"]))

    narrow = rewrite(mlp_file, tmp_path / "narrow.onnx", quantise_weight)
    for path in (quantised, narrow):
        with pytest.raises(UsageError, match=rf"got {path.name}, which is quantised itself; expected an ONNX file"):
            Sweep(str(quantised), calibrate=SAMPLES, reference=path)


def test_what_is_no_file_is_no_reference(quantised: Path, mlp_file: Path, tmp_path: Path) -> None:
    """A missing file, one that is no ONNX, an array and a network without a file each have a sentence."""
    text = tmp_path / "text.onnx"
    text.write_text("text")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"reference": tmp_path / "missing.onnx"}, r"got .*missing.onnx, no such file; expected the f32 original of"),
        ({"reference": text}, r"invalid reference for quantised: .*text.onnx is not an ONNX file"),
        ({"reference": SAMPLES["x"]}, r"expected the path of an ONNX file in f32, or a dict"),
        ({"reference": mlp_file, "calibrate": RANDOM}, r"got a reference of quantised without samples; expected"),
        (
            {"workloads": blocks.conv(8, 1), "calibrate": None, "reference": mlp_file},
            r"got mlp.onnx for conv, which is no ONNX file; expected a network in a file of its own",
        ),
    ]

    for options, message in cases:
        with pytest.raises(UsageError, match=message):
            Sweep(**{"workloads": str(quantised), "calibrate": SAMPLES, **options})
