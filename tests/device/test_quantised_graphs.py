"""Quantised graphs are made once, with their recipe, and measured as columns beside f32."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from attrs import evolve
from plans import carry_out, measure

from ngbkit import Sweep
from ngbkit.dataset.assembly import assemble
from ngbkit.device import quantised_graphs
from ngbkit.metrics.conclusions import conclude
from ngbkit.sweep.records import Measurement
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import RANDOM, Workload

STATIC = 'onnxruntime{"precision":"int8"}'
DYNAMIC = 'onnxruntime{"precision":"int8-dynamic"}'


def sweep_precisions(workload: Workload, accept: str, compilers: list[str]) -> Sweep:
    samples = np.random.default_rng(1).standard_normal((40, 16)).astype(np.float32)
    options = {"calibrate": {"x": samples}, "accept": accept, "repeats": 2, "min_rounds": 2, "threads": 1}
    return Sweep(workload, compilers, [2], **options)


def test_int8_is_a_column_with_its_cost(mlp: Workload) -> None:
    """ONNX Runtime runs the quantised file, the record has its recipe, and a second plan finds the file."""
    sweep = sweep_precisions(mlp, "agreement>=0.5", ["onnxruntime", STATIC, DYNAMIC])
    records, events = carry_out(sweep)
    static, plain = records[STATIC, 2], records["onnxruntime", 2]
    assert isinstance(static, Measurement)
    assert isinstance(plain, Measurement)
    graph = onnx.load(find_graph(static))
    texts = [event["text"] for event in events if "quantising" in event.get("text", "")]

    assert "QuantizeLinear" in {node.op_type for node in graph.graph.node}
    assert ("int8", "f32", "ok") == (static.contract.precision, plain.contract.precision, static.status)
    assert "onnxruntime-static" == static.facts["quantised"]["quantiser"]
    assert 20 == static.facts["evaluated_samples"]
    assert 1e-4 < static.facts["relative_error"] < 0.2
    assert plain.facts["relative_error"] < 1e-5
    assert 1.0 == plain.facts["agreement"]
    assert 2 == len(texts)


def find_graph(record: Measurement) -> Path:
    """Find the quantised file of a record in the state folder."""
    from ngbkit import options

    recipe = record.facts["quantised"]["quantiser"]
    files = options.get_state_dir().rglob("batch-2.quantised-*.json")
    return next(file.with_suffix(".onnx") for file in files if recipe in file.read_text())


def test_a_column_that_costs_too_much_fails(mlp: Workload) -> None:
    """A lower precision beyond the accepted cost is not equivalent, and its failure has the cost."""
    records, _ = carry_out(sweep_precisions(mlp, "sqnr>=90", ["onnxruntime", STATIC]))
    failure = records[STATIC, 2]

    assert isinstance(records["onnxruntime", 2], Measurement)
    assert ("not-equivalent", "check") == (failure.status, failure.stage)
    assert "over 20 samples, against the uncompiled network; accepted: sqnr>=90" in failure.error
    assert failure.facts["sqnr"] < 90


def test_drawn_samples_claim_no_accuracy(mlp: Workload) -> None:
    """A network that is calibrated by noise is measured and not checked."""
    sweep = Sweep(mlp, ["onnxruntime", STATIC], [2], calibrate=RANDOM, repeats=2, min_rounds=2, threads=1)
    record = measure(sweep)[STATIC, 2]

    assert "not-checked" == record.status
    assert "int8 is not judged: its samples are drawn" in record.error
    assert "agreement" not in record.facts


def test_a_recipe_names_everything_that_the_graph_depends_on(mlp: Workload) -> None:
    """The recipe has the samples, unless a method needs none, and the versions of its tools."""
    from ngbkit.compilers.quantisers.onnxruntime import DYNAMIC, STATIC

    (workload,) = Sweep(mlp, calibrate=RANDOM).workloads
    recipes = [quantised_graphs.build_recipe(quantiser, workload, 0) for quantiser in (STATIC, DYNAMIC)]

    assert ["random", None] == [recipe.get("calibration") for recipe in recipes]
    assert onnx.__version__ == recipes[0]["versions"]["onnx"]


def test_a_graph_of_other_code_is_made_again(mlp: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe changes with the code that chose the settings of a graph."""
    from ngbkit.compilers.quantisers.onnxruntime import DYNAMIC

    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "choosing_settings.py"
    file.write_text("def quantise(quantisation): return {}\n")
    quantiser = replace(DYNAMIC, quantise=importlib.import_module("choosing_settings").quantise)
    before = quantised_graphs.build_recipe(quantiser, mlp, 0)
    same = quantised_graphs.build_recipe(quantiser, mlp, 0)
    file.write_text("def quantise(quantisation): return {'preset': 'mixed'}\n")

    assert before == same
    assert before != quantised_graphs.build_recipe(quantiser, mlp, 0)


ATTENTION = """
attention (float[1, 8, 16] x) => (float[1, 8, 16] y) <float[16, 16] w, float[16] b> {
    m = MatMul(x, w)
    q = Add(m, b)
    t = Transpose<perm = [0, 2, 1]>(q)
    s = MatMul(q, t)
    p = Softmax(s)
    y = MatMul(p, q)
}"""


def test_a_transformer_keeps_what_its_layers_write(tmp_path: Path) -> None:
    """ONNX Runtime quantises the inputs of the products of an attention, and not what they write."""
    from ngbkit.compilers.quantiser import Quantisation
    from ngbkit.compilers.quantisers.onnxruntime import STATIC

    generator = np.random.default_rng(0)
    opsets = [onnx.helper.make_opsetid("", 20)]
    model = onnx.helper.make_model(onnx.parser.parse_graph(ATTENTION), opset_imports=opsets, ir_version=10)
    values = {"w": generator.standard_normal((16, 16)) / 4, "b": generator.standard_normal(16)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()
    )
    onnx.save(model, tmp_path / "attention.onnx")
    batches = [{"x": generator.standard_normal((1, 8, 16)).astype(np.float32)}]
    target = tmp_path / "quantised.onnx"
    settings = STATIC.quantise(
        Quantisation(source=tmp_path / "attention.onnx", module=None, target=target, batches=batches, threads=1)
    )
    graph = onnx.load(target).graph
    quantised = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}

    assert "transformer: 1 attentions, 1 linear layers, 0 convolutions" == settings["model_type"]
    assert quantised
    assert not quantised.intersection({"m", "s", "y"})


@pytest.mark.parametrize(("compiler", "precision"), [("iree", "int8"), ("tvm", "f32")])
def test_other_runtimes_read_the_qdq_file(compiler: str, precision: str, mlp: Workload) -> None:
    """IREE computes the file of ONNX Runtime's quantiser in int8, and TVM in f32 between its nodes, as it says."""
    label = f'{compiler}{{"precision":"int8"}}'
    record = measure(sweep_precisions(mlp, "agreement>=0.5", [label]))[label, 2]

    assert (precision, "ok") == (record.contract.precision, record.status)
    assert 1e-4 < record.facts["relative_error"] < 0.2


def test_a_file_for_tensorrt_is_symmetric(mlp_file: Path, tmp_path: Path) -> None:
    """Each zero point is zero, and weights have pairs of nodes: TensorRT reads no others. Not seen on a GPU."""
    from ngbkit.compilers.quantiser import Quantisation
    from ngbkit.compilers.quantisers.onnxruntime import STATIC_TENSORRT
    from ngbkit.workloads.onnx_binding import specialise

    source, target = specialise(mlp_file, 2, tmp_path / "mlp.onnx", fold=False), tmp_path / "quantised.onnx"
    batches = [{"x": np.random.default_rng(0).standard_normal((2, 16)).astype(np.float32)}]
    settings = STATIC_TENSORRT.quantise(
        Quantisation(source=source, module=None, target=target, batches=batches, threads=1)
    )
    graph = onnx.load(target).graph
    zeros = {node.input[2] for node in graph.node if node.op_type == "QuantizeLinear"}
    points = [onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer if tensor.name in zeros]
    quantised = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}

    assert settings["ActivationSymmetric"]
    assert all(point.dtype == np.int8 and not point.any() for point in points)
    assert {"w0", "w1"} <= quantised


def test_nncf_quantises_for_openvino(mlp: Workload) -> None:
    """OpenVINO runs the graph that NNCF wrote, in int8, and is judged by the same samples."""
    label = 'openvino{"precision":"int8"}'
    # With one thread OpenVINO 2026.4 answers this graph with zeros.
    sweep = evolve(sweep_precisions(mlp, "agreement>=0.5", [label]), threads=2)
    record = measure(sweep)[label, 2]

    assert "int8" in record.contract.precision
    assert ("nncf", 20) == (record.facts["quantised"]["quantiser"], record.facts["evaluated_samples"])


@pytest.fixture
def scaled(tmp_path: Path) -> Workload:
    """A network that divides its values by a constant beyond f16, after a product with another one."""
    values = {"large": np.float32(-3e5), "small": np.full((4,), 0.5, np.float32), "w": np.eye(16, 4, dtype=np.float32)}
    nodes = [
        onnx.helper.make_node("Mul", ["x", "large"], ["m"], name="scale"),
        onnx.helper.make_node("Div", ["m", "large"], ["d"], name="unscale"),
        onnx.helper.make_node("MatMul", ["d", "w"], ["p"], name="layer"),
        onnx.helper.make_node("Add", ["p", "small"], ["y"], name="bias"),
    ]
    sizes = {"x": 16, "y": 4}
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["batch", size]) for name, size in sizes.items())
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()]
    graph = onnx.helper.make_graph(nodes, "scaled", [x], [y], constants)
    path = tmp_path / "scaled.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10), path)
    return onnx_source.file(path)


def test_constants_that_f16_clamps_have_names(scaled: Workload) -> None:
    """A trial in f16 names the constant, its largest value and its operator, and says that a CPU computes in f32."""
    label = 'onnxruntime{"precision":"f16"}'
    sweep = Sweep(scaled, ["identity", label], [2], repeats=2, min_rounds=2, threads=1)
    records = measure(sweep)
    record = records[label, 2]
    clause = "constant large of Mul scale has -300000, which is clamped to ±65504, the largest f16"
    data = assemble(sweep, list(records.values()))
    row = data.ngb.why().set_index("compiler").loc[label]

    assert [clause] == record.facts["quantised"]["clamped"]
    assert "f32" == record.contract.precision
    assert "has no f16 kernels for this CPU and computes in f32 between casts" in record.contract.notes
    assert row["notes"] == record.contract.notes
    assert row["notes"].endswith(clause)
    assert f"Changed by {label} on scaled: {clause}." in conclude(data).to_text()
