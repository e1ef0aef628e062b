"""The size of an ONNX file from shapes, compared with torch's counts or counts by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngbkit.workloads import blocks, counts, export, timm
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Network
from ngbkit.workloads.counts import Counts

MICROSOFT = "com.microsoft"
BRANCH = "a branch"


def build(name: str, size: int | None = None) -> Network:
    return timm.build(timm.model(name, img_size=size), {})


@pytest.mark.parametrize(
    "build_network",
    [
        lambda: build("deit_tiny_patch16_224", 64),
        lambda: build("convnext_atto", 64),
        lambda: blocks.build(blocks.mha(), {"width": 32, "depth": 2}),
        lambda: blocks.build(blocks.conv(size=(8, 8)), {"width": 8, "depth": 2}),
    ],
    ids=["deit_tiny", "convnext_atto", "mha", "conv"],
)
def test_the_size_of_a_network_matches_torch(tmp_path: Path, build_network: Callable[[], Network]) -> None:
    """MACs and bytes of its exported file, in which BatchNorms are folded into weights."""
    network = build_network()
    export.export(network, tmp_path / "net.onnx", seed=0)

    module_counts = counts.count(network)
    file_counts = counts.count(onnx_source.build(onnx_source.file(tmp_path / "net.onnx"), {}))

    assert module_counts.macs == pytest.approx(file_counts.macs, rel=0.01)
    assert (module_counts.input_bytes, module_counts.output_bytes) == (
        file_counts.input_bytes,
        file_counts.output_bytes,
    )
    assert module_counts.weight_bytes == pytest.approx(file_counts.weight_bytes, rel=0.1)


def count(
    path: Path,
    node: Any,
    shapes: dict[str, list[int]],
    x: list[object] | None = None,
    *,
    dtype: type = np.float32,
    y: list[int] | None = None,
) -> Counts:
    """Count a graph of one node with the input x and weights of these `shapes`."""
    weights = [
        numpy_helper.from_array(np.zeros(shape, bool if name == "c" else dtype), name) for name, shape in shapes.items()
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x or ["batch", 4, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        weights,
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=11), path)
    return counts.count(onnx_source.build(onnx_source.file(path), {}))


def node(operator: str, *inputs: str, domain: str = "", **attributes: Any) -> Any:
    return helper.make_node(operator, ["x", *inputs], ["y"], domain=domain, **attributes)


@pytest.mark.parametrize(
    ("operator", "shapes", "x", "macs"),
    [
        (node("Conv", "w", strides=[2, 2], group=2), {"w": [6, 2, 3, 3]}, None, 6 * 4 * 4 * 2 * 9),
        (node("ConvTranspose", "w", group=2), {"w": [4, 3, 3, 3]}, None, 4 * 81 * 3 * 9),
        (node("Gemm", "w", transB=1), {"w": [5, 4]}, ["batch", 4], 5 * 4),
        (node("MatMul", "w"), {"w": [4, 5]}, ["batch", 7, 4], 7 * 4 * 5),
        (node("Einsum", "w", equation="bij,jk->bik"), {"w": [4, 5]}, ["batch", 7, 4], 7 * 4 * 5),
        (node("Einsum", equation="bij->bji"), {}, ["batch", 7, 4], None),
        (node("Einsum", "w", "v", equation="bi,ij,jk->bk"), {"w": [4, 5], "v": [5, 6]}, ["batch", 4], None),
        (node("Relu"), {}, ["batch", 4], None),
        (node("Gelu", domain=MICROSOFT), {}, ["batch", 4], None),
        (node("Mystery", domain=MICROSOFT), {}, ["batch", 4], None),
        (node("DFT"), {}, ["batch", 4, 1], None),
    ],
)
def test_a_node_by_hand(
    tmp_path: Path, operator: Any, shapes: dict[str, list[int]], x: list[object] | None, macs: int | None
) -> None:
    """The count is None if the work is undefined, or 0."""
    assert macs == count(tmp_path / "net.onnx", operator, shapes, x).macs


def test_attention_is_two_products(tmp_path: Path) -> None:
    """The MACs of attention are two products of 2 x tokens x tokens x width in all."""
    attention = helper.make_node("Attention", ["x", "x", "x"], ["y"], q_num_heads=2, kv_num_heads=2)

    assert 2 * 10 * 10 * 16 == count(tmp_path / "net.onnx", attention, {}, ["batch", 10, 16]).macs


def test_a_recurrent_layer_is_counted_step_by_step(tmp_path: Path) -> None:
    """Four gates of (in + hidden) x hidden, at each of the steps, which are the first dimension here."""
    lstm = node("LSTM", "w", "r", hidden_size=8)

    assert (
        5 * (4 * 8 * 4 + 4 * 8 * 8)
        == count(tmp_path / "net.onnx", lstm, {"w": [1, 32, 4], "r": [1, 32, 8]}, ["batch", 5, 4], y=[1, 1, 5, 8]).macs
    )


def branching(inner: Any) -> Any:
    """Build a node with `inner` in both of its branches."""
    declared = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branch = helper.make_graph([inner], BRANCH, [], [declared])
    return helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)


def test_work_in_a_branch_is_unknown(tmp_path: Path) -> None:
    """The values decide how often it runs."""
    busy = branching(node("MatMul", "w"))

    assert count(tmp_path / "net.onnx", busy, {"w": [4, 4], "c": []}, ["batch", 4]).macs is None


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 4), (np.float16, 2), (np.int8, 1), (np.int64, 8)])
def test_weights_take_the_bytes_of_their_type(tmp_path: Path, dtype: type, size: int) -> None:
    """Weights in the file and in external data have the bytes of their type."""
    path = tmp_path / "net.onnx"
    inside = count(path, node("Relu"), {"w": [100, 30]}, ["batch", 4], dtype=dtype).weight_bytes
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    beside = counts.count(onnx_source.build(onnx_source.file(path), {})).weight_bytes

    assert (3000 * size, 3000 * size) == (inside, beside)


def test_two_numbers_of_four_bits_share_a_byte(tmp_path: Path) -> None:
    """Packed types are counted in bits."""
    path = tmp_path / "net.onnx"
    count(path, node("Relu"), {}, ["batch", 4])
    model = onnx.load(path)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.INT4, [3], [1, 2, 3]))
    onnx.save(model, path)

    assert 2 == counts.count(onnx_source.build(onnx_source.file(path), {})).weight_bytes
