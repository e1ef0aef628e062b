"""Fuzzes ONNX files: a damaged or hostile one is read, or refused with an error of ngbkit.

    python tests/fuzz/run.py onnx --cases 10000

Half of the files are damaged in their bytes, and half have other values in their fields.
"""

from __future__ import annotations

import functools
import logging
import warnings
from pathlib import Path

import damage
import numpy as np
import onnx
from cases import run_on_files
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from ngbkit import predict
from ngbkit.errors import NgbkitError
from ngbkit.workloads import onnx as onnx_source

logging.getLogger("onnx_ir").setLevel(logging.CRITICAL)  # it warns of each name that a graph does not define
_TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["", "..", "../x", "/etc/hostname", "x" * 300, "w\0", "w.bin", "9" * 30, "-1", "1e9", "x", "y"]),
)
_INTEGERS = st.one_of(
    st.integers(-(2**31), 2**31 - 1), st.sampled_from([0, 1, -1, 7, 16, 99, 2**31 - 1]), st.integers(0, 30)
)


@functools.cache
def build_models() -> dict[str, bytes]:
    """Small models that use each part of the format that ngbkit looks at."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    product = helper.make_node("MatMul", ["x", "w"], ["h"])
    relu = helper.make_node("Relu", ["h"], ["y"])
    shape = numpy_helper.from_array(np.array([-1, 8]), "shape")
    branch = helper.make_graph(
        [helper.make_node("Relu", ["h"], ["b"])], "branch", [], [helper.make_value_info("b", y.type)]
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    flag = numpy_helper.from_array(np.array(True), "c")
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 20)]
    )
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.ones(1, np.float32), "s"), numpy_helper.from_array(np.zeros(1, np.int64)), [8]
    )
    graphs = {
        "product": helper.make_graph([product, relu], "g", [x], [y], [weight]),
        "branches": helper.make_graph([product, choice], "g", [x], [y], [weight, flag]),
        "reshape": helper.make_graph(
            [product, helper.make_node("Reshape", ["h", "shape"], ["y"])], "g", [x], [y], [weight, shape]
        ),
        "function": helper.make_graph(
            [product, helper.make_node("F", ["h"], ["y"], domain="own")], "g", [x], [y], [weight]
        ),
        "sparse": helper.make_graph(
            [product, helper.make_node("Add", ["h", "s"], ["y"])], "g", [x], [y], [weight], sparse_initializer=[sparse]
        ),
    }
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    models = {
        name: helper.make_model(
            graph, opset_imports=opsets, ir_version=10, functions=[function] if name == "function" else []
        ).SerializeToString()
        for name, graph in graphs.items()
    }
    external = onnx.load_from_string(models["product"])
    (tensor,) = external.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "w.bin"), ("offset", "0"), ("length", "256")):
        tensor.external_data.add(key=key, value=value)
    return {**models, "external": external.SerializeToString()}


def check_onnx(data: st.DataObject, folder: Path) -> str:
    """Damage a model, read it as a workload and as a graph, and return what became of it."""
    content = build_models()[data.draw(st.sampled_from(sorted(build_models())))]
    if data.draw(st.booleans()):
        content = damage.apply(content, data.draw(damage.DAMAGES))
    else:
        content = _edit(data, onnx.load_from_string(content))
    path = folder / "net.onnx"
    path.write_bytes(content)
    (folder / "w.bin").write_bytes(bytes(256))
    outcomes = []
    for read in (onnx_source.file, predict.read):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # onnx warns of keys that it does not know
            try:
                read(path)
                outcomes.append("read")
            except NgbkitError:
                outcomes.append("refused")
    return " and ".join(outcomes)


def run(cases: int, seed: int) -> None:
    """Check that many files; see `cases.run_on_files`."""
    run_on_files("onnx", check_onnx, cases, seed)


def _edit(data: st.DataObject, model: onnx.ModelProto) -> bytes:
    """Set some fields of the model to other values of their type, and repeat or remove some elements."""
    for _ in range(data.draw(st.integers(1, 3))):
        message = model
        while True:
            fields = [(field, getattr(message, field.name)) for field, _ in message.ListFields()]
            if not fields:
                break
            field, value = data.draw(st.sampled_from(fields))
            repeated = not isinstance(value, (str, bytes, int, float)) and hasattr(value, "__len__")
            if field.message_type is not None and data.draw(st.integers(0, 9)):
                message = data.draw(st.sampled_from(list(value))) if repeated else value
                continue
            _set(data, message, field, value, repeated)
            break
    return model.SerializeToString()


def _set(data: st.DataObject, message: object, field: object, value: object, repeated: bool) -> None:
    name, is_message = field.name, field.message_type is not None
    if is_message and repeated:
        place = data.draw(st.integers(0, len(value) - 1))
        if data.draw(st.booleans()):
            del value[place]
        else:
            value.add().CopyFrom(value[place])
    elif is_message or data.draw(st.integers(0, 5)) == 0:
        message.ClearField(name)
    else:
        kind: st.SearchStrategy[object] = {9: _TEXTS, 12: st.binary(max_size=64)}.get(field.type, _INTEGERS)
        if field.enum_type is not None:
            kind = st.sampled_from([value.number for value in field.enum_type.values])
        if repeated:
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(kind)
        else:
            setattr(message, name, data.draw(kind))
