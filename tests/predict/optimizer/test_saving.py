"""Written networks are complete: ONNX Runtime loads them from another folder, whatever the size of their weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxgraphs import residual

from ngbkit.errors import UsageError
from ngbkit.predict import optimizer
from ngbkit.predict.optimizer import operations, saving
from ngbkit.workloads import onnx_binding

FEED = {"x": np.arange(16, dtype=np.float32).reshape(1, 16)}


@pytest.fixture
def external(tmp_path: Path) -> Path:
    """A network whose two weights are in two files, the second one behind other data."""
    generator = np.random.default_rng(0)
    weights = [generator.standard_normal((16, 16)).astype(np.float32) for _ in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "a"], ["t"]), helper.make_node("MatMul", ["t", "b"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "graph", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    folder = tmp_path / "source"
    folder.mkdir()
    for name, weight, start in zip("ab", weights, (0, 4096), strict=True):
        tensor = numpy_helper.from_array(weight, name)
        onnx.external_data_helper.set_external_data(tensor, f"{name}.bin", start, weight.nbytes)
        tensor.ClearField("raw_data")
        model.graph.initializer.append(tensor)
        Path(folder, f"{name}.bin").write_bytes(bytes(start) + weight.tobytes())
    onnx.save(model, folder / "net.onnx")
    return folder / "net.onnx"


def run(path: Path) -> Any:
    return onnxruntime.InferenceSession(path).run(None, FEED)[0]


def test_external_data_is_written_beside_the_file(external: Path, tmp_path: Path) -> None:
    """External data is written to one file with the name of the graph's file."""
    expected = run(external)
    target = tmp_path / "made" / "out.onnx"
    saving.write_network(external, target)
    for file in external.parent.iterdir():
        file.unlink()

    assert ["out.onnx", "out.onnx.data"] == sorted(file.name for file in target.parent.iterdir())
    np.testing.assert_array_equal(run(target), expected)


def test_a_file_without_external_data_is_copied(tmp_path: Path) -> None:
    """A file without external data is copied byte by byte."""
    source = residual(tmp_path)
    saving.write_network(source, tmp_path / "out.onnx")

    assert source.read_bytes() == (tmp_path / "out.onnx").read_bytes()


def test_a_write_that_fails_leaves_what_was_there(
    external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk is a usage error, and no draft stays behind."""
    target = tmp_path / "out.onnx"
    target.write_text("earlier")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saving.ir, "save", fail)
    with pytest.raises(UsageError, match=r"out\.onnx\.data cannot be written: No space left on device"):
        saving.write_network(external, target)

    assert "earlier" == target.read_text()
    assert ["out.onnx", "source"] == sorted(file.name for file in tmp_path.iterdir())


def test_weights_of_a_candidate_that_are_too_large_are_saved_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large weights are saved in a file of their own; small ones stay in the graph's file."""
    model = ir.load(residual(tmp_path))
    assert not list(tmp_path.glob(saving.save_model(model, tmp_path / "small.onnx").name + ".data"))
    monkeypatch.setattr(saving, "EMBEDDED_BYTES", 100)
    path = saving.save_model(model, tmp_path / "large.onnx")

    assert (tmp_path / "large.onnx.data").stat().st_size > 100
    assert onnxruntime.InferenceSession(path).get_inputs()


def test_an_optimised_network_has_its_weights(external: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An optimised network has the weights of the original, in a file of their own if they are large."""
    monkeypatch.setattr(onnx_binding, "EMBEDDED_BYTES", 100)
    target = tmp_path / "out.onnx"
    optimizer.optimize(str(external), cost=operations, rules=[], out=target)

    assert (tmp_path / "out.onnx.data").is_file()
    np.testing.assert_array_equal(run(target), run(external))


def test_small_external_data_is_embedded(external: Path, tmp_path: Path) -> None:
    """One file is easier to move than two."""
    target = tmp_path / "out.onnx"
    optimizer.optimize(str(external), cost=operations, rules=[], out=target)

    assert ["out.onnx", "source"] == sorted(file.name for file in tmp_path.iterdir())
    np.testing.assert_array_equal(run(target), run(external))
