"""Small ONNX files whose values are no usual tensors: texts, maps, sequences, narrow numbers, no dimension at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, TEXT = TensorProto.FLOAT, TensorProto.STRING


def write(name: str, folder: Path) -> Path:
    """Write the network of that name."""
    nodes, inputs, outputs, constants = NETWORKS[name]()
    graph = helper.make_graph(nodes, name, inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("ai.onnx.ml", 3)]
    path = folder / f"{name}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


Parts = tuple[Sequence[Any], Sequence[Any], Sequence[Any], Sequence[Any]]
_node, _value = helper.make_node, helper.make_tensor_value_info
_X, _Y = _value("x", FLOAT, ["batch", 4]), _value("y", FLOAT, ["batch", 4])
_WEIGHT = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
_TYPES = {
    "sequence": helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None)),
    "optional": helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["batch", 4])),
    "maps": helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(FLOAT, []))
    ),
}


def _build_text_labels() -> Parts:
    names = helper.make_tensor("names", TEXT, [4], [b"ant", b"bee", b"cat", b"dog"])
    nodes = [
        _node("MatMul", ["x", "w"], ["p"]),
        _node("ArgMax", ["p"], ["index"], axis=1, keepdims=0),
        _node("Gather", ["names", "index"], ["y"]),
    ]
    return nodes, [_X], [_value("y", TEXT, ["batch"])], [_WEIGHT, names]


def _build_text_input() -> Parts:
    word = helper.make_tensor("word", TEXT, [1], [b"a"])
    nodes = [_node("Equal", ["x", "word"], ["same"]), _node("Cast", ["same"], ["y"], to=FLOAT)]
    return nodes, [_value("x", TEXT, ["batch", 4])], [_Y], [word]


def _build_map_output() -> Parts:
    nodes = [
        _node("MatMul", ["x", "w"], ["p"]),
        _node("ZipMap", ["p"], ["z"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2, 3]),
    ]
    return nodes, [_X], [helper.make_value_info("z", _TYPES["maps"])], [_WEIGHT]


def _build_sequence_output() -> Parts:
    return [_node("SplitToSequence", ["x"], ["s"])], [_X], [helper.make_value_info("s", _TYPES["sequence"])], []


def _build_optional_output() -> Parts:
    return [_node("Optional", ["x"], ["o"])], [_X], [helper.make_value_info("o", _TYPES["optional"])], []


def _build_scalar() -> Parts:
    return [_node("Mul", ["x", "rate"], ["y"])], [_X, _value("rate", FLOAT, [])], [_Y], []


def _build_empty_cache() -> Parts:
    return [_node("Concat", ["x", "c"], ["y"], axis=1)], [_X, _value("c", FLOAT, ["batch", 0])], [_Y], []


def _build_bfloat16() -> Parts:
    sides = ["batch", 4]
    return [_node("Add", ["x", "x"], ["y"])], [_value("x", 16, sides)], [_value("y", 16, sides)], []


def _build_float8_body() -> Parts:
    narrow = TensorProto.FLOAT8E4M3FN
    return [_node("Cast", ["x"], ["a"], to=narrow), _node("Cast", ["a"], ["y"], to=FLOAT)], [_X], [_Y], []


def _build_int4_weight() -> Parts:
    packed = helper.make_tensor("q", TensorProto.INT4, [4, 4], bytes(8), raw=True)
    scale = numpy_helper.from_array(np.float32(0.5), "scale")
    nodes = [_node("DequantizeLinear", ["q", "scale"], ["w"]), _node("MatMul", ["x", "w"], ["y"])]
    return nodes, [_X], [_Y], [packed, scale]


def _build_sized() -> Parts:
    nodes = [_node("Resize", ["x", "", "", "sizes"], ["a"], mode="nearest"), _node("Relu", ["a"], ["y"])]
    return nodes, [_X, _value("sizes", TensorProto.INT64, [2])], [_value("y", FLOAT, None)], []


def _build_unimported() -> Parts:
    return [_node("FusedMatMul", ["x", "w"], ["y"], domain="com.microsoft")], [_X], [_Y], [_WEIGHT]


def _build_unsorted() -> Parts:
    return [_node("Relu", ["p"], ["y"]), _node("MatMul", ["x", "w"], ["p"])], [_X], [_Y], [_WEIGHT]


def _build_moving() -> Parts:
    nodes = [
        _node("Transpose", ["x"], ["a"], perm=[1, 0]),
        _node("Transpose", ["a"], ["b"], perm=[1, 0]),
        _node("Relu", ["b"], ["y"]),
    ]
    return nodes, [_X], [_Y], []


NETWORKS: Mapping[str, Callable[[], Parts]] = {
    "text-labels": _build_text_labels,
    "text-input": _build_text_input,
    "map-output": _build_map_output,
    "sequence-output": _build_sequence_output,
    "optional-output": _build_optional_output,
    "scalar": _build_scalar,
    "empty-cache": _build_empty_cache,
    "bfloat16": _build_bfloat16,
    "float8-body": _build_float8_body,
    "int4-weight": _build_int4_weight,
    "sized": _build_sized,
    "unimported": _build_unimported,
    "unsorted": _build_unsorted,
    "moving": _build_moving,
}
