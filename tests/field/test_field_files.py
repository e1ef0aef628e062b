"""Files that runtimes accept and checkers refuse, of old and new versions, in the folders of hubs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from field.case import Case, Outcome, expect_failure, expect_unsupported
from field.measuring import WITH_OPENVINO, Results, find_faults, measure
from field.writing import Build, build_model, write_graph

PRODUCT = "product (float[batch, 8] x) => (float[batch, 4] y) <float[8, 4] w> { t = MatMul(x, w) y = Relu(t) }"
UNSORTED = "unsorted (float[batch, 32] x) => (float[batch, 16] y) <float[32, 16] w> { y = Relu(t) t = Gemm(x, w) }"
UNSORTED_BRANCH = """
unsorted (float[batch, 32] x) => (float[batch, 16] y) <float[32, 16] w, float zero = {0}> {
    s = ReduceSum<keepdims = 0>(x)
    high = Greater(s, zero)
    y = If(high) <
        then_branch = then () => (float[N, 16] b) { b = Relu(a) a = MatMul(x, w) },
        else_branch = otherwise () => (float[N, 16] c) { c = MatMul(x, w) }
    >
}"""
FUSED = """
fused (float[batch, 10, 32] x, float[batch, 10, 32] x2) => (float[batch, 10, 32] y)
<float[32] gamma, float[32] beta, float[32, 32] w, float[32] bias> {
    n = com.microsoft.SkipLayerNormalization(x, x2, gamma, beta)
    t = com.microsoft.FusedMatMul<alpha = 0.5>(n, w)
    y = com.microsoft.BiasGelu(t, bias)
}"""
EARLY_NORM = """
norm (float[batch, 10, 32] x) => (float[batch, 10, 32] y) <float[32] gamma, float[32] beta, float[32, 32] w> {
    n = LayerNormalization<epsilon = 0.00001>(x, gamma, beta)
    y = MatMul(n, w)
}"""
EXTRA_ATTRIBUTE = """
extra (float[batch, 8] x) => (float[batch, 4] y) <float[8, 4] w> { t = Relu<origin = "layer1">(x) y = MatMul(t, w) }"""
OLD = """
old (float[1, 3, 16, 16] x) => (float[1, 8, 16, 16] y)
<float[8, 3, 3, 3] k, float[8] g, float[8] b, float[8] m, float[8] v = {1, 1, 2, 1, 1, 1, 2, 1}> {
    a = Conv<pads = [1, 1, 1, 1]>(x, k)
    n = BatchNormalization(a, g, b, m, v)
    y = Relu(n)
}"""
UPSAMPLE = """
upsampled (float[batch, 3, 16, 16] x) => (float[batch, 8, 32, 32] y)
<float[8, 3, 3, 3] k, float[4] scales = {1, 1, 2, 2}> {
    a = Conv<pads = [1, 1, 1, 1]>(x, k)
    y = Upsample<mode = "linear">(a, scales)
}"""
NAMES = """
main (float[unk__12, 32, 32, 3] "serving_default_input_1:0")
    => (float[unk__13, 8, 1, 1] "Call:0", float[unk__14, 8, 32, 32] "Call:1")
<float[8, 3, 3, 3] "k:0"> {
    "Call/model/Conv2D__6:0" = Transpose<perm = [0, 3, 1, 2]>("serving_default_input_1:0")
    "Call:1" = Conv<pads = [1, 1, 1, 1]>("Call/model/Conv2D__6:0", "k:0")
    "Call:0" = GlobalAveragePool("Call:1")
}"""
FUNCTION = """
caller (float[batch, 8] x) => (float[batch, 4] y) <float[8, 4] w> { y = my.lib.Block(x, w) }
<domain: "my.lib", opset_import: ["": 17]>
Block (a, b) => (o) { m = MatMul(a, b) o = Relu(m) }"""
NO_DOMAIN = """
fused (float[batch, 8] x) => (float[batch, 4] y, float[batch, 4] z) <float[8, 4] w> {
    y = MatMul(x, w)
    z = com.microsoft.FusedMatMul(x, w)
}"""


def _list_weights_as_inputs(model: onnx.ModelProto) -> None:
    """List each weight among the inputs, as files before IR version 4 do."""
    for tensor in model.graph.initializer:
        model.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))


def _set_version(model: onnx.ModelProto) -> None:
    model.ir_version = 99


def _clear_name(model: onnx.ModelProto) -> None:
    model.graph.name = ""


def _clear_output_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].ClearField("type")


def _clear_output_shape(model: onnx.ModelProto) -> None:
    model.graph.output[0].type.tensor_type.ClearField("shape")


def _clear_domain(model: onnx.ModelProto) -> None:
    """Import no operators of the domain that a node uses."""
    (product,) = [index for index, version in enumerate(model.opset_import) if version.domain]
    del model.opset_import[product]


def _repeat_names(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        node.name = "same"


def _write_hub(folder: Path) -> Path:
    """Write a snapshot whose files are links into a folder of blobs."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "0f1e"
    for member in (blobs, snapshot):
        member.mkdir(parents=True)
    model = build_model(PRODUCT)
    onnx.save(model, blobs / "graph", save_as_external_data=True, location="model.onnx_data", size_threshold=16)
    (blobs / "model.onnx_data").rename(blobs / "data")
    for name, blob in (("model.onnx", "graph"), ("model.onnx_data", "data")):
        (snapshot / name).symlink_to(Path("..", "..", "blobs", blob))
    return snapshot / "model.onnx"


def _write_shared_store(folder: Path) -> Path:
    """Write a network whose data is a link into another folder."""
    nets, store = folder / "nets", folder / "store"
    for member in (nets, store):
        member.mkdir()
    path = nets / "net.onnx"
    onnx.save(build_model(PRODUCT), path, save_as_external_data=True, location="net.data", size_threshold=16)
    (nets / "net.data").rename(store / "net.data")
    (nets / "net.data").symlink_to(store / "net.data")
    return path


def write_external(folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(build_model(PRODUCT), path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    return path


def _edit(change: Callable[[onnx.ModelProto], None], text: str = PRODUCT, **domains: int) -> Build:
    return write_graph(
        text, change=change, domains={name.replace("_", "."): number for name, number in domains.items()}
    )


ONNX_RUNTIME = ("identity", "onnxruntime")
CASES = (
    Case(name="01-unsorted", compilers=WITH_OPENVINO, build=write_graph(UNSORTED)),
    Case(
        name="01b-unsorted-subgraph",
        compilers=WITH_OPENVINO,
        build=write_graph(UNSORTED_BRANCH),
        outcome=expect_failure("sort|topolog|order|outer scope|exist"),
    ),
    Case(name="06-hub", build=_write_hub),
    Case(name="06b-shared", build=_write_shared_store, outcome=expect_failure("link")),
    Case(name="06c-external", build=write_external),
    Case(
        name="17-contrib",
        build=write_graph(FUSED, domains={"com.microsoft": 1}),
        compilers=("identity", "onnxruntime", "openvino", "tvm"),
        outcomes={"tvm": expect_unsupported("not supported"), "openvino": Outcome(status="ok|unsupported")},
    ),
    Case(name="17b-layernorm-in-opset-11", build=write_graph(EARLY_NORM, opset=11, ir_version=6)),
    Case(
        name="17c-extra-attribute",
        build=write_graph(EXTRA_ATTRIBUTE),
        outcomes=dict.fromkeys(ONNX_RUNTIME, expect_failure("origin")),
    ),
    Case(
        name="18-ir3-weights-as-inputs",
        build=write_graph(OLD, opset=8, ir_version=3, change=_list_weights_as_inputs),
        batch_sizes=(1,),
    ),
    Case(
        name="18b-ir3-weights-no-inputs",
        compilers=WITH_OPENVINO,
        build=write_graph(OLD, opset=8, ir_version=3),
        batch_sizes=(1,),
    ),
    Case(name="18c-upsample-9", build=write_graph(UPSAMPLE, opset=9, ir_version=4)),
    Case(name="19-tensorflow-names", build=write_graph(NAMES)),
    Case(
        name="26-newer-ir",
        build=_edit(_set_version),
        outcomes=dict.fromkeys(ONNX_RUNTIME, expect_failure("(?i)ir.version")),
    ),
    Case(
        name="26b-newer-opset",
        build=write_graph(PRODUCT, opset=99),
        outcomes=dict.fromkeys(ONNX_RUNTIME, expect_failure("(?i)opset")),
    ),
    Case(
        name="39-function",
        compilers=WITH_OPENVINO,
        build=write_graph(FUNCTION, domains={"my.lib": 1}),
        outcomes={"openvino": Outcome(status="ok|unsupported")},
    ),
    Case(name="43-noname", build=_edit(_clear_name)),
    Case(name="43-outnotype", build=_edit(_clear_output_type)),
    Case(name="43-outnoshape", build=_edit(_clear_output_shape)),
    Case(name="43-nodomain", build=_edit(_clear_domain, NO_DOMAIN, com_microsoft=1)),
    Case(
        name="43-same-names", build=_edit(_repeat_names), outcomes=dict.fromkeys(ONNX_RUNTIME, expect_failure("same"))
    ),
)


@pytest.fixture(scope="module")
def results(state_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    return measure(CASES, tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_opinion_of_the_runtime_decides(case: Case, results: dict[str, Results]) -> None:
    """Each compiler is measured and checked, or refuses the file with its own reason."""
    assert [] == find_faults(case, results[case.name])
