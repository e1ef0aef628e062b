"""ONNX files in float64: every float is widened, or the file is rejected."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from ngbkit.errors import UnsupportedError
from ngbkit.testing.networks import NETWORKS, run_reference
from ngbkit.workloads import exact, export, feeds
from ngbkit.workloads.base import BATCH, Network, TensorSpec

X = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
WIDE = W.astype(np.float64)


def write(path: Path, nodes: list[Any], *, outputs: tuple[str, ...] = ("y",), kind: int = TensorProto.FLOAT) -> Path:
    """A graph of `nodes` from x, of shape (2, 4), with a weight w, both of type `kind`."""
    weight = numpy_helper.from_array(W.astype(helper.tensor_dtype_to_np_dtype(kind)), "w")
    declared = [helper.make_tensor_value_info(name, kind, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", kind, [2, 4])], declared, [weight])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my.company", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def run(path: Path, x: np.ndarray = X, budget_s: float = 60.0) -> list[np.ndarray]:
    return exact.run(path, {"x": x}, budget_s=budget_s)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_matches_torch_in_float64(tmp_path: Path, name: str) -> None:
    """Every output matches torch in float64, up to the constants that onnx stores in float32."""
    network = NETWORKS[name]()
    arrays = feeds.draw(network.inputs, {}, 2, 0)
    export.export(network, tmp_path / "net.onnx", seed=0, batch_size=2)

    outputs = exact.run(tmp_path / "net.onnx", {network.inputs[0].name: arrays[0]}, budget_s=60.0)

    for expected, output in zip(run_reference(network, arrays), outputs, strict=True):
        assert np.float64 == output.dtype
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2, groups=4),
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1),
        nn.MaxPool2d(3, stride=2, padding=1),
        nn.AvgPool2d(3, stride=2, padding=1),
        nn.GroupNorm(2, 4),
        nn.Upsample(scale_factor=2, mode="nearest"),
    ],
)
def test_a_layer_matches_torch(tmp_path: Path, layer: nn.Module) -> None:
    """onnx's own operators agree to the last digits of double precision."""
    specs = [TensorSpec(name="x", shape=(BATCH, 4, 9, 9))]
    arrays = feeds.draw(specs, {}, 2, 0)
    network = Network(inputs=specs, module=layer.eval())
    export.export(network, tmp_path / "net.onnx", seed=0, batch_size=2)

    (output,) = run(tmp_path / "net.onnx", arrays[0])

    np.testing.assert_allclose(output, run_reference(network, arrays)[0], rtol=1e-10, atol=1e-12)


def constant(name: str, **value: Any) -> Any:
    return helper.make_node("Constant", [], [name], **value)


PRODUCT = helper.make_node("MatMul", ["x", "w"], ["h"])


@pytest.mark.parametrize(
    "nodes",
    [
        [PRODUCT, constant("c", value_float=2.0), helper.make_node("Mul", ["h", "c"], ["y"])],
        [PRODUCT, constant("c", value_floats=[2.0] * 4), helper.make_node("Mul", ["h", "c"], ["y"])],
        [
            PRODUCT,
            constant("c", value=numpy_helper.from_array(np.array(2, np.float32))),
            helper.make_node("Mul", ["h", "c"], ["y"]),
        ],
        [
            PRODUCT,
            helper.make_node("Cast", ["h"], ["d"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["d", "d"], ["y"]),
        ],
        [
            PRODUCT,
            constant("s", value_ints=[4]),
            helper.make_node("ConstantOfShape", ["s"], ["z"]),
            helper.make_node("Add", ["h", "z"], ["d"]),
            helper.make_node("Add", ["d", "d"], ["y"]),
        ],
        [
            constant("yes", value=numpy_helper.from_array(np.array(True))),
            helper.make_node(
                "If",
                ["yes"],
                ["y"],
                **{
                    branch: helper.make_graph(
                        [
                            PRODUCT,
                            constant("two", value=numpy_helper.from_array(np.array(2, np.float32))),
                            helper.make_node("Mul", ["h", "two"], ["i"]),
                        ],
                        branch,
                        [],
                        [helper.make_tensor_value_info("i", TensorProto.FLOAT, [2, 4])],
                    )
                    for branch in ("then_branch", "else_branch")
                },
            ),
        ],
    ],
    ids=["float", "floats", "tensor", "cast", "of-shape", "branch"],
)
def test_no_float32_remains_inside(tmp_path: Path, nodes: list[Any]) -> None:
    """The float64 network has no float32 in constants, casts or branches, so its result has all digits."""
    (output,) = run(write(tmp_path / "net.onnx", nodes))

    np.testing.assert_allclose(output, 2 * (X.astype(np.float64) @ WIDE), rtol=1e-14)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_weights_keep_their_stored_values(tmp_path: Path, kind: int) -> None:
    """A file in half precision is computed exactly, from its rounded weights."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)

    (output,) = run(write(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], kind=kind))

    np.testing.assert_allclose(output, X.astype(np.float64) @ W.astype(dtype).astype(np.float64), rtol=1e-14)


def test_an_integer_output_keeps_its_type(tmp_path: Path) -> None:
    """An output that another node reads is returned too."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["i"], axis=1, keepdims=0),
    ]

    values, labels = run(write(tmp_path / "net.onnx", nodes, outputs=("y", "i")))

    assert (np.float64, np.int64) == (values.dtype, labels.dtype)
    assert values.argmax(axis=1).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("Frobnicate", ["x"], ["y"], domain="my.company"), "Frobnicate"),
        (helper.make_node("HannWindow", ["size"], ["y"]), "onnx computes HannWindow in float32 only"),
    ],
)
def test_an_operator_without_double_precision_is_unsupported(tmp_path: Path, node: Any, message: str) -> None:
    """An unknown operator, or one that returns float32 for any input."""
    path = write(tmp_path / "net.onnx", [constant("size", value_int=4), node])

    with pytest.raises(UnsupportedError, match=message):
        run(path)


def test_a_run_ends_after_its_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that hangs is abandoned."""
    from onnx.reference.ops.op_matmul import MatMul

    monkeypatch.setattr(MatMul, "_run", lambda self, a, b: (time.sleep(1.0), a)[1:])

    with pytest.raises(UnsupportedError, match=r"it takes longer than 0.01 s"):
        run(write(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])]), budget_s=0.01)


def test_a_function_of_the_file_is_widened(tmp_path: Path) -> None:
    """A function of the file is inlined and widened to float64."""
    body = [
        constant("two", value_float=2.0),
        helper.make_node("Mul", ["a", "two"], ["b"]),
    ]
    function = helper.make_function("my.company", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    nodes = [PRODUCT, helper.make_node("Twice", ["h"], ["y"], domain="my.company")]
    model = onnx.load(write(tmp_path / "net.onnx", nodes))
    model.functions.append(function)
    onnx.save(model, tmp_path / "net.onnx")

    (output,) = run(tmp_path / "net.onnx")

    np.testing.assert_allclose(output, 2 * (X.astype(np.float64) @ WIDE), rtol=1e-14)


def test_a_batchnorm_without_a_training_mode_uses_the_stored_statistics(tmp_path: Path) -> None:
    """Opset 9 has a momentum and no mode: the statistics of the batch do not affect inference."""
    statistics = {"scale": [2.0, 1.0], "bias": [0.5, 0.0], "mean": [3.0, -1.0], "var": [4.0, 0.25]}
    weights = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in statistics.items()]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node("BatchNormalization", ["x", *statistics], ["y"], epsilon=0.0)
    graph = helper.make_graph([node], "g", [image], [out], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=8), tmp_path / "net.onnx")
    x = np.arange(12, dtype=np.float32).reshape(2, 2, 3)

    (output,) = run(tmp_path / "net.onnx", x)

    np.testing.assert_allclose(output[:, 0], (x[:, 0] - 3.0) / 2.0 * 2.0 + 0.5)
    np.testing.assert_allclose(output[:, 1], (x[:, 1] + 1.0) / 0.5)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 2, 4, 5)])
def test_a_global_maximum_reduces_all_but_batch_and_channels(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """A global maximum reduces all dims but batch and channels, whatever the rank."""
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape) if name == "x" else None) for name in "xy"
    ]
    graph = helper.make_graph([helper.make_node("GlobalMaxPool", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "net.onnx"
    )
    x = np.random.default_rng(0).standard_normal(shape)

    (output,) = run(tmp_path / "net.onnx", x)

    assert output.shape == (2, 3, *[1] * (len(shape) - 2))
    np.testing.assert_array_equal(output.reshape(2, 3), x.reshape(2, 3, -1).max(axis=2))
