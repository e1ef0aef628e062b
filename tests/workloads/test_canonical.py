"""Canonical graphs: an importer gets the file that it reads, which computes the same as the original."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngbkit.workloads import canonical, canonical_child, exact
from ngbkit.workloads.canonical import Importer, canonicalise, lift

X = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)


def write(
    path: Path,
    nodes: Sequence[Any],
    *,
    opset: int = 17,
    shape: Sequence[int] = (2, 6),
    functions: Sequence[Any] = (),
    external: bool = False,
) -> Path:
    """A static graph of `nodes` from x, of shape (2, 6), with a weight w and an output y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(W, "w")],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(item.domain, 1) for item in functions)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=functions)
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


def write_arithmetic(path: Path, *, external: bool = False) -> Path:
    """A reshape to a size that the graph computes from the shape of a product."""
    columns = numpy_helper.from_array(np.array([4], np.int64))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Shape", ["p"], ["s"]),
        helper.make_node("ReduceProd", ["s"], ["n"], keepdims=1),
        helper.make_node("Constant", [], ["c"], value=columns),
        helper.make_node("Div", ["n", "c"], ["r"]),
        helper.make_node("Concat", ["r", "c"], ["t"], axis=0),
        helper.make_node("Reshape", ["p", "t"], ["y"]),
    ]
    return write(path, nodes, shape=(3, 4), external=external)


def write_old(path: Path) -> Path:
    """A softmax of opset 11, which means another one from opset 13 on, and a squeeze with an attribute."""
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[2]),
        helper.make_node("Softmax", ["u"], ["z"], axis=1),
        helper.make_node("Squeeze", ["z"], ["v"], axes=[2]),
        helper.make_node("MatMul", ["v", "w"], ["y"]),
    ]
    return write(path, nodes, opset=11)


def list_operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node if node.op_type != "Constant"]


def run(path: Path) -> np.ndarray:
    (output,) = canonical_child.run(path, {"x": X}, 1).values()
    assert isinstance(output, np.ndarray)
    return output


def test_a_graph_that_needs_nothing_stays_as_it_is(tmp_path: Path) -> None:
    """No file is written, and there is no step."""
    path = write(tmp_path / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])])

    result = canonicalise(path, tmp_path / "out.onnx", Importer(opset=17, folds=True), {"x": X})

    assert path == result.path
    assert () == result.steps
    assert not (tmp_path / "out.onnx").exists()


def test_arithmetic_on_shapes_is_folded(tmp_path: Path) -> None:
    """The operators that remain are those of the network, and weights in a file beside it are copied to its folder."""
    path = write_arithmetic(tmp_path / "net.onnx", external=True)
    (tmp_path / "other").mkdir()

    result = canonicalise(path, tmp_path / "other" / "out.onnx", Importer(folds=True), {"x": X})

    assert tmp_path / "other" / "out.onnx" == result.path
    assert ["MatMul", "Reshape"] == list_operators(result.path)
    assert 1 == len(result.steps)
    assert result.steps[0].startswith("constants folded (onnxscript ")
    assert result.seconds > 0
    assert ["out.onnx", "weights.bin"] == sorted(file.name for file in (tmp_path / "other").iterdir())
    np.testing.assert_array_equal(run(path), run(result.path))


def test_an_old_graph_is_lifted_and_folded(tmp_path: Path) -> None:
    """Operators whose meaning changed compute what they did; the same file gives the same bytes."""
    path = write_old(tmp_path / "net.onnx")
    importer = Importer(opset=17, folds=True)

    result, again = (canonicalise(path, tmp_path / name, importer, {"x": X}) for name in ("a.onnx", "b.onnx"))

    assert 17 == canonical.find_opset(onnx.load(result.path))
    assert f"opset 11 to 17 (onnx {onnx.__version__})" == result.steps[0]
    assert result.path.read_bytes() == again.path.read_bytes()
    np.testing.assert_allclose(run(result.path), run(path), rtol=1e-6)


def test_weights_that_are_inputs_become_constants(tmp_path: Path) -> None:
    """Weights that an old exporter declared as inputs become constants."""
    path = write_arithmetic(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [6, 6]))
    onnx.save(model, path)

    canonical_child.rewrite(path, tmp_path / "out.onnx", 0, folds=True)

    assert ["x"] == [value.name for value in onnx.load(tmp_path / "out.onnx").graph.input]


def test_outputs_have_shapes(tmp_path: Path) -> None:
    """Inferred, or else of the rank that the output has when it runs: an importer may refuse a file without."""
    path = write_arithmetic(tmp_path / "net.onnx")
    model = onnx.load(path)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    model.graph.node.append(helper.make_node("Gelu", ["x"], ["z"], domain="com.microsoft"))
    model.opset_import.add(domain="com.microsoft", version=1)
    onnx.save(model, path)

    result = canonicalise(path, tmp_path / "out.onnx", Importer(), {"x": X})

    shapes = [output.type.tensor_type.shape.dim for output in onnx.load(result.path).graph.output]
    assert (f"shapes inferred (onnx {onnx.__version__})",) == result.steps
    assert [2, 2] == [len(shape) for shape in shapes]


def run_here(module: str, arguments: Sequence[str], limit_s: float) -> str:
    """Make an attempt in this process."""
    assert canonical_child.__name__ == module
    try:
        canonical_child.main(arguments)
    except Exception as error:  # noqa: BLE001  the faults are of any kind
        return str(error)
    return ""


def break_weights(file: Path) -> None:
    model = onnx.load(file)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(W * np.float32(1.001), "w"))
    onnx.save(model, file)


def fail(file: Path) -> None:
    raise ValueError("no such operator")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(break_weights, "wrong result: output y has an error of 0.001"), (fail, "no such operator")],
)
def test_a_graph_that_is_not_proved_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Callable[[Path], None], reason: str
) -> None:
    """A graph that is only lifted gets its turn, and the steps state the reason."""
    path = write_arithmetic(tmp_path / "net.onnx")
    monkeypatch.setattr(canonical_child, "fold", fault)
    monkeypatch.setattr(canonical, "run_module", run_here)

    result = canonicalise(path, tmp_path / "out.onnx", Importer(folds=True, opset=18), {"x": X})

    assert tmp_path / "out.onnx" == result.path
    assert re.match(r"not used: onnx \S+ and onnxscript ", result.steps[0])
    assert reason in result.steps[0]
    assert result.steps[1].startswith("opset 17 to 18 ")


def test_a_network_that_is_random_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs of it differ, so that nothing can be proved."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("RandomNormalLike", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
    ]
    path = write(tmp_path / "net.onnx", nodes)
    monkeypatch.setattr(canonical, "run_module", run_here)

    result = canonicalise(path, tmp_path / "out.onnx", Importer(folds=True), {"x": X})

    assert path == result.path
    assert all(step.startswith("not used: ") for step in result.steps)
    assert not (tmp_path / "out.onnx").exists()


def test_without_a_tool_the_step_is_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result lists the step that a missing tool omitted, with the command that installs the tool."""
    path = write_arithmetic(tmp_path / "net.onnx")
    monkeypatch.setattr(canonical, "find_version", lambda package: None)

    result = canonicalise(path, tmp_path / "out.onnx", Importer(folds=True), {"x": X})

    assert path == result.path
    assert ("constants not folded: onnxscript is not installed; install with: pip install onnxscript",) == result.steps


def test_attempts_end_in_time(tmp_path: Path) -> None:
    """The original file is used, and the steps state the limit."""
    path = write_arithmetic(tmp_path / "net.onnx")

    result = canonicalise(path, tmp_path / "out.onnx", Importer(folds=True), {"x": X}, limit_s=1e-3)

    assert path == result.path
    assert "took longer than" in " ".join(result.steps)


def test_keys_differ_by_importer() -> None:
    """Two compilers that ask for the same graph share one file."""
    keys = [
        canonical.build_key(importer) for importer in (Importer(folds=True), Importer(folds=True), Importer(opset=17))
    ]

    assert keys[0] == keys[1]
    assert keys[0] != keys[2]


def test_shapes_are_folded(tmp_path: Path) -> None:
    """No shape is computed any more, and the result is the same."""
    path = write_arithmetic(tmp_path / "net.onnx")
    output = run(path)

    canonical_child.fold(path)

    assert not {"Shape", "ReduceProd", "Div"} & set(list_operators(path))
    np.testing.assert_allclose(run(path), output, rtol=1e-6)


@pytest.mark.parametrize(
    ("expected", "actual", "error"),
    [
        (np.ones(3), np.full(3, 1.5), 0.5),
        (np.ones(3), np.ones(4), np.inf),
        (np.ones(3, np.float32), np.ones(3), np.inf),
        (np.array([1, 2]), np.array([1, 3]), np.inf),
        (np.array([1.0, np.nan, np.inf]), np.array([1.0, np.nan, np.inf]), 0.0),
        (np.array([1.0, np.nan]), np.array([np.nan, 1.0]), np.inf),
        (np.zeros(2), np.full(2, 1e-9), np.inf),
        (np.array(["a"], object), np.array(["b"], object), np.inf),
        ([np.ones(1)], [np.ones(1)], 0.0),
    ],
)
def test_errors_of_outputs(expected: Any, actual: Any, error: float) -> None:
    """The error of float outputs is relative, and another shape, type or other value is no match."""
    assert error == canonical_child.measure_error(expected, actual)


def build_quantised(opset: int = 17) -> Any:
    """A product whose input is quantised and dequantised."""
    scale, zero = (
        numpy_helper.from_array(np.array(0.05, np.float32), "scale"),
        numpy_helper.from_array(np.array(128, np.uint8), "zero"),
    )
    graph = helper.make_graph(
        [
            helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
            helper.make_node("MatMul", ["d", "w"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6])],
        [scale, zero, numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def test_a_lifted_quantised_graph_has_a_float64_reference(tmp_path: Path) -> None:
    """onnx has no DequantizeLinear in double precision before opset 19."""
    onnx.save(lift(build_quantised(), 19), tmp_path / "lifted.onnx")

    (output,) = exact.run(tmp_path / "lifted.onnx", {"x": X}, budget_s=60.0)

    quantised = (np.clip(np.rint(X / np.float32(0.05)) + 128, 0, 255) - 128) * np.float64(np.float32(0.05))
    assert np.float64 == output.dtype
    np.testing.assert_allclose(output, quantised @ W.astype(np.float64), rtol=1e-6)


def test_a_graph_is_lowered_for_a_release_that_reads_earlier_versions(tmp_path: Path) -> None:
    """The graph has the opset and the format of the limits, and the same function; its own versions change nothing."""
    path = tmp_path / "net.onnx"
    onnx.save(build_quantised(19), path)

    result = canonicalise(path, tmp_path / "out.onnx", Importer(most_opset=13, most_ir=7), {"x": X})
    same = canonicalise(path, tmp_path / "same.onnx", Importer(most_opset=19, most_ir=8), {"x": X})
    model = onnx.load(result.path)

    assert (13, 7) == (model.opset_import[0].version, model.ir_version)
    assert ["opset 19 to 13", "format 8 to 7"] == [step.partition(" (")[0] for step in result.steps]
    np.testing.assert_array_equal(run(path), run(result.path))
    assert (path, ()) == (same.path, same.steps)


def test_a_newer_graph_is_not_lifted() -> None:
    """A graph of a newer opset is returned unchanged."""
    model = build_quantised(19)

    assert lift(model, 17) is model


def test_lifting_inlines_functions_and_keeps_other_domains(tmp_path: Path) -> None:
    """A node of a runtime's own domain stays, stated or not, and the model itself is unchanged."""
    function = helper.make_function(
        "my.lib", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 15)]
    )
    nodes = [
        helper.make_node("Twice", ["x"], ["t"], domain="my.lib"),
        helper.make_node("FusedMatMul", ["t", "w"], ["y"], domain="com.microsoft"),
    ]
    model = onnx.load(write(tmp_path / "net.onnx", nodes, opset=15, functions=[function]))
    before = model.SerializeToString()

    lifted = lift(model, 17)

    assert ["Add", "FusedMatMul"] == [node.op_type for node in lifted.graph.node]
    assert 17 == canonical.find_opset(lifted)
    assert before == model.SerializeToString()


def test_old_weights_that_are_no_inputs_are_lifted(tmp_path: Path) -> None:
    """Runtimes read such a file, though its version of the format wants every weight among the inputs."""
    model = onnx.load(write_old(tmp_path / "net.onnx"))
    model.ir_version = 3
    onnx.save(model, tmp_path / "net.onnx")

    onnx.save(lift(model, 17), tmp_path / "lifted.onnx")

    np.testing.assert_allclose(run(tmp_path / "lifted.onnx"), run(tmp_path / "net.onnx"), rtol=1e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_an_old_upsample_computes_what_it_did(tmp_path: Path, mode: str) -> None:
    """A lifted Upsample computes the same values as before opset 11."""
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0, 1]),
        helper.make_node("Upsample", ["u", "scales"], ["y"], mode=mode),
    ]
    path = write(tmp_path / "net.onnx", nodes, opset=9, shape=(1, 1, 4, 12))
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"))
    onnx.save(model, path)

    onnx.save(lift(model, 17), tmp_path / "lifted.onnx")

    np.testing.assert_allclose(run(tmp_path / "lifted.onnx"), run(path), rtol=1e-6)


def test_quantised_weights_stay_quantised(tmp_path: Path) -> None:
    """Quantised weights are not folded to floats, as runtimes have integer kernels."""
    model = build_quantised()
    model.graph.initializer[2].CopyFrom(numpy_helper.from_array((W * 50).astype(np.int8), "stored"))
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["stored", "scale"], ["w"]))
    onnx.save(model, tmp_path / "net.onnx")

    canonical_child.fold(tmp_path / "net.onnx")

    assert not canonical.is_foldable(model)
    assert 2 == list_operators(tmp_path / "net.onnx").count("DequantizeLinear")


def test_an_operator_that_cannot_be_lifted_is_named() -> None:
    """LayerNormalization is no operator of opset 11, though runtimes accept it there."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("LayerNormalization", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 6])],
            [numpy_helper.from_array(W[0], "w")],
        ),
        opset_imports=[helper.make_opsetid("", 11)],
        ir_version=8,
    )

    with pytest.raises(ValueError, match=r"cannot lift opset 11 to 17: .*LayerNormalization"):
        lift(model, 17)
