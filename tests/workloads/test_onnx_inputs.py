"""Open dimensions of ONNX files beside the batch: factors, bound alike in every input, and counted at each value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from ngbkit import cli
from ngbkit.api import Sweep
from ngbkit.dataset import storage
from ngbkit.device import preparation
from ngbkit.errors import UsageError, WorkloadError
from ngbkit.workloads import counts, onnx_inputs
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import BATCH, TensorSpec, Workload
from ngbkit.workloads.onnx_binding import specialise

Dims = Sequence[object]


def write_sum(path: Path, inputs: Mapping[str, Dims], output: Dims | None = None) -> Path:
    """Write the product of the first input with itself, transposed, plus every other input."""
    names = list(inputs)
    nodes = [helper.make_node("Identity", [names[0]], ["v0"])]
    nodes += [helper.make_node("Add", [f"v{i}", name], [f"v{i + 1}"]) for i, name in enumerate(names[1:])]
    nodes += [
        helper.make_node("Transpose", [f"v{len(names) - 1}"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", [f"v{len(names) - 1}", "t"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)]
    graph = helper.make_graph(nodes, "sum", values, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def at(workload: Workload, **factors: float) -> list[tuple[int, ...]]:
    return [spec.shape for spec in onnx_source.build(workload, factors).inputs]


def test_open_dimensions_are_factors(tmp_path: Path) -> None:
    """The symbols of open dimensions are factors, and inputs that share one get the same value."""
    path = write_sum(tmp_path / "net.onnx", {"x": ["batch", "seq", "width"], "mask": ["batch", "seq", 1]})
    workload = onnx_source.file(path)

    assert ("seq", "width") == workload.takes
    assert [(BATCH, 32, 8), (BATCH, 32, 1)] == at(workload, seq=32, width=8)
    network = onnx_source.build(workload, {"seq": 4, "width": 8})
    assert network.batch_size is None
    bound = onnx.load(specialise(path, 2, tmp_path / "bound.onnx", inputs=network.inputs, fold=False))
    assert [[2, 4, 8], [2, 4, 1]] == [
        [side.dim_value for side in value.type.tensor_type.shape.dim] for value in bound.graph.input
    ]


def test_a_fixed_batch_beside_an_open_dimension_is_kept(tmp_path: Path) -> None:
    """The batch size is the file's own; the symbol is bound in the output too."""
    path = write_sum(tmp_path / "net.onnx", {"x": [3, "seq", 8]}, output=[3, "seq", "seq"])
    network = onnx_source.build(onnx_source.file(path), {"seq": 5})

    assert 3 == network.batch_size
    bound = onnx.load(specialise(path, 3, tmp_path / "bound.onnx", inputs=network.inputs, fold=False))
    assert [3, 5, 5] == [side.dim_value for side in bound.graph.output[0].type.tensor_type.shape.dim]


@pytest.mark.parametrize(
    ("dims", "names"),
    [
        (["batch", "seq len", "seq_len"], ("seq_len", "seq_len_")),
        (["batch", None, 8], ("x_dim1",)),
        ([None, -1, -1], ("x_dim1", "x_dim2")),
        (["batch", "größe", 8], ("gr__e",)),
    ],
)
def test_symbols_become_identifiers(tmp_path: Path, dims: Dims, names: tuple[str, ...]) -> None:
    """Each is its own, as a factor of the command line must be; one without a symbol is called after its place."""
    workload = onnx_source.file(write_sum(tmp_path / "net.onnx", {"x": dims}))

    assert names == workload.takes
    assert all(name.isidentifier() for name in workload.takes)
    assert [(BATCH, *range(2, 2 + len(names)), *[8] * (2 - len(names)))] == at(
        workload, **{name: value for value, name in enumerate(names, start=2)}
    )


def test_a_missing_value_is_an_error_that_locates_it(tmp_path: Path) -> None:
    """The error of a missing value has the dimensions and the remedy."""
    path = write_sum(tmp_path / "net.onnx", {"x": ["batch", "seq", 8], "mask": ["batch", "seq", 1]})

    with pytest.raises(
        UsageError,
        match=r"net needs a value of seq \(dimension 1 of x, dimension 1 of mask\). Add --factor seq=… or factors=",
    ):
        Sweep(str(path))


@pytest.mark.parametrize("value", [-1, 2.5])
def test_a_side_is_an_integer_from_0(tmp_path: Path, value: float) -> None:
    """Any other value is refused when the network is built."""
    workload = onnx_source.file(write_sum(tmp_path / "net.onnx", {"x": ["batch", "seq", 8]}))

    with pytest.raises(WorkloadError, match=f"invalid seq, a dimension of an input: got {value}; expected an integer"):
        at(workload, seq=value)


def test_a_description_without_open_dimensions_is_as_before(tmp_path: Path) -> None:
    """Static inputs keep their description; open dimensions survive JSON."""
    static = onnx_source.file(write_sum(tmp_path / "static.onnx", {"x": ["batch", 4, 8]}))
    workload = onnx_source.file(write_sum(tmp_path / "net.onnx", {"x": ["batch", "seq", 8]}))
    received = Workload.from_json(json.loads(json.dumps(workload.to_json())), lambda digest: workload.artifacts[digest])

    assert [{"name": "x", "shape": [4, 8], "dtype": "float32"}] == static.spec["inputs"]
    assert () == static.takes
    assert [TensorSpec(name="x", shape=(BATCH, 6, 8))] == onnx_source.build(received, {"seq": 6}).inputs


def test_work_and_reference_are_of_each_value(tmp_path: Path) -> None:
    """A product of seq x 8 with 8 x seq: its MACs grow with the square; the float64 run has its shape."""
    workload = onnx_source.file(write_sum(tmp_path / "net.onnx", {"x": ["batch", "seq", 8]}))
    macs = {seq: counts.count(onnx_source.build(workload, {"seq": seq})).macs for seq in (4, 16)}
    (digest,) = workload.artifacts
    store = tmp_path / "store"
    target = preparation.Store(store).locate(digest)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(workload.artifacts[digest].read_bytes())
    message = {
        "workload": workload.to_json(),
        "factors": {"seq": 16},
        "seed": 0,
        "threads": 1,
        "artifacts": str(store),
        "cache": str(tmp_path / "prepared"),
        "recipe": "",
        "scope": "",
        "batch_sizes": [1, 2],
        "exports": True,
        "importers": [],
    }
    prepared = preparation.prepare(message)

    assert {4: 4 * 4 * 8, 16: 16 * 16 * 8} == macs
    assert "onnx, float64" == prepared["facts"]["reference"]
    assert 16 * 16 * 8 == prepared["facts"]["macs"]
    assert (2, 16, 16) == preparation.read_arrays(prepared["reference"])["output_0000"].shape
    assert {"1", "2"} == set(prepared["onnx"])


@pytest.mark.usefixtures("state_dir")
def test_a_sweep_varies_the_dimension(tmp_path: Path) -> None:
    """A sweep measures each value of the dimension, and one that the file refuses fails with its reason."""
    path = write_sum(tmp_path / "net.onnx", {"x": ["batch", "seq", 8], "bias": ["batch", 6, 8]})
    out = tmp_path / "out.nc"
    words = ["run", str(path), "-c", "onnxruntime", "--factor", "seq=1,6,7", "-r", "3", "--quiet", "-o", str(out)]
    code = cli.main(words)
    data = storage.load(out).squeeze()

    assert cli.OK == code
    assert {1: "ok", 6: "ok", 7: "failed"} == dict(zip(data["seq"].values.tolist(), data["status"].values, strict=True))
    assert "ONNXRuntimeError" in str(data["error"].sel(seq=7).item())
    assert [6 * 6 * 8] * 2 == data["macs"].sel(seq=[1, 6]).values.tolist()


class Mixer(nn.Module):
    """A network of tokens, of any number of them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x)) + x.mean(dim=1, keepdim=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the older exporter
@pytest.mark.parametrize("dynamo", [True, False])
def test_exports_of_torch_have_their_symbols(tmp_path: Path, dynamo: bool) -> None:
    """Both exporters of torch write the symbols of open dimensions."""
    path, inputs = tmp_path / "net.onnx", (torch.ones(2, 6, 8),)
    if dynamo:
        shapes = ({0: torch.export.Dim("rows"), 1: torch.export.Dim("seq", min=2, max=512)},)
        torch.onnx.export(Mixer().eval(), inputs, path, dynamo=True, dynamic_shapes=shapes, verbose=False)
    else:
        torch.onnx.export(
            Mixer().eval(), inputs, path, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "rows", 1: "seq"}}
        )
    workload = onnx_source.file(path)
    network = onnx_source.build(workload, {"seq": 5})

    assert ("seq",) == workload.takes
    bound = onnx.load(specialise(path, 2, tmp_path / "bound.onnx", inputs=network.inputs, fold=False))
    evaluator = onnx.reference.ReferenceEvaluator(bound)
    (output,) = evaluator.run(None, {network.inputs[0].name: np.ones((2, 5, 8), np.float32)})
    assert (2, 5, 8) == output.shape


def describe(**inputs: Sequence[object]) -> dict[str, tuple[int | str, ...]]:
    """Describe a graph that returns its inputs."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None) for name in inputs]
    model = helper.make_model(helper.make_graph(nodes, "g", values, outputs))
    specs, batch_size = onnx_inputs.describe(Path("net.onnx"), model)
    return {**{spec.name: spec.shape for spec in specs}, "batch_size": (batch_size or 0,)}


@pytest.mark.parametrize(
    ("inputs", "shapes"),
    [
        # The batch is called so, in any dimension.
        ({"x": ["time", "batch", 8]}, [("time", BATCH, 8)]),
        ({"x": ["Batch Size", 8], "state": [2, "Batch Size", 4], "rate": []}, [(BATCH, 8), (2, BATCH, 4), ()]),
        ({"image": ["N", 3, 8], "boxes": ["count", 4]}, [(BATCH, 3, 8), ("count", 4)]),
        ({"image": ["batch", 3], "boxes": ["count", 4]}, [(BATCH, 3), ("count", 4)]),
        # A matrix product has none in its second factor.
        ({"a": ["M", "K"], "b": ["K", "N"]}, [(BATCH, "K"), ("K", "N")]),
        # The same open symbol everywhere names nothing.
        ({"x": ["?", "?"], "state": [2, "?", 128], "rate": []}, [(BATCH, "x_dim1"), (2, BATCH, 128), ()]),
        ({"x": [None, 8], "y": ["unk__12", 8]}, [(BATCH, 8), (BATCH, 8)]),
        # A sequence is none.
        ({"x": ["sequence_length", 8]}, [("sequence_length", 8)]),
        # Derived dimensions follow.
        ({"x": ["batch", "past"], "y": ["batch", "past + 1"]}, [(BATCH, "past"), (BATCH, "past + 1")]),
        ({"x": ["batch", "s0"], "y": ["batch", "2*s0"]}, [(BATCH, "s0"), (BATCH, "2*s0")]),
        (
            {"x": ["batch_size", 4], "cache": ["batch_size x num_heads", 8]},
            [(BATCH, 4), ("batch * num_heads", 8)],
        ),
        # A hyphen is no minus, and a slash no division, in a name.
        ({"x": ["batch", "seq-len"], "y": ["batch", "h/w"]}, [(BATCH, "seq_len"), (BATCH, "h_w")]),
    ],
)
def test_every_dimension_has_a_meaning(inputs: dict[str, list[object]], shapes: list[tuple[int | str, ...]]) -> None:
    """Every dimension is the batch, a number, a factor, or an expression of these."""
    described = describe(**inputs)

    assert shapes == [described[name] for name in inputs]


@pytest.mark.parametrize(
    ("inputs", "batch_size", "first"),
    [
        ({"x": [3, 8], "y": [3, 4]}, 3, BATCH),
        ({"x": [1, 8], "rate": []}, 1, BATCH),
        ({"x": [10, 8], "y": [1, 4]}, 1, 10),
        ({"x": []}, 1, None),
        ({"x": ["sequence", 8]}, 1, "sequence"),
        ({"x": [0, 8]}, 1, 0),
        ({"x": ["batch", 0]}, 0, BATCH),
    ],
)
def test_a_file_of_numbers_has_one_batch_size(
    inputs: dict[str, list[object]], batch_size: int, first: int | str | None
) -> None:
    """A file of fixed shapes has the one batch size of all its inputs."""
    described = describe(**inputs)

    assert (batch_size,) == described["batch_size"]
    assert [first] == [*described["x"][:1], None][:1]


def test_the_user_says_where_the_batch_is(tmp_path: Path) -> None:
    """The user sets the batch to a named dimension or to none, and other inputs stay as they were."""
    path = write_sum(tmp_path / "net.onnx", {"x": ["frames", "rows", 8], "mask": [1, 1, 8]})

    sweep = Sweep(str(path), batch_axis={"x": 1}, factors={"frames": [4]})
    without = Sweep(str(path), batch_axis={"x": None}, factors={"frames": [4], "rows": [2]})

    assert ("frames", BATCH, 8) == sweep.workloads[0].inputs[0].shape
    assert (1, 1, 8) == sweep.workloads[0].inputs[1].shape
    assert ("frames", "rows", 8) == without.workloads[0].inputs[0].shape
    assert sweep.workloads == Sweep.from_json(sweep.to_json()).workloads
    with pytest.raises(UsageError, match="unknown input 'y'"):
        Sweep(str(path), batch_axis={"y": 1}, factors={"frames": [4]})
    with pytest.raises(WorkloadError, match=r"invalid batch axis of input mask .*: got 3; expected 0 to 2, or none"):
        Sweep(str(path), batch_axis={"mask": 3}, factors={"frames": [4]})


def write_indices(path: Path, nodes: list[Any], ids: Sequence[object], table: int = 5) -> Path:
    """Write a graph with an input x of shape (batch, 4, 8), integers `ids`, and a table of that many rows."""
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4, 8]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ids),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    weight = onnx.numpy_helper.from_array(np.ones((table, 8), np.float32), "table")
    graph = helper.make_graph(nodes, "g", values, outputs, [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


@pytest.mark.parametrize(
    ("nodes", "ids", "below"),
    [
        ([helper.make_node("Gather", ["table", "ids"], ["y"])], ["batch", 3], 5),
        ([helper.make_node("Cast", ["ids"], ["i"], to=6), helper.make_node("Gather", ["table", "i"], ["y"])], [3], 5),
        ([helper.make_node("Gather", ["x", "ids"], ["y"])], ["batch"], BATCH),
        ([helper.make_node("Gather", ["x", "ids"], ["y"], axis=-2)], [2], 4),
        (
            [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Gather", ["r", "ids"], ["y"], axis=1)],
            [2],
            4,
        ),
        ([helper.make_node("CumSum", ["x", "ids"], ["y"])], [], 3),
        ([helper.make_node("Cast", ["ids"], ["y"], to=1)], ["batch"], None),
    ],
)
def test_integers_are_what_the_graph_takes(
    nodes: list[Any], ids: list[object], below: int | str | None, tmp_path: Path
) -> None:
    """Rows of a table, also of one that is computed or as long as the batch, or an axis."""
    workload = onnx_source.file(write_indices(tmp_path / "net.onnx", nodes, ids))

    assert below == workload.inputs[1].below


@pytest.mark.parametrize(
    ("nodes", "role"),
    [
        ([helper.make_node("Reshape", ["x", "ids"], ["y"])], "the shape of Reshape"),
        (
            [helper.make_node("Concat", ["ids", "ids"], ["s"], axis=0), helper.make_node("Expand", ["x", "s"], ["y"])],
            "the shape of Expand",
        ),
    ],
)
def test_a_shape_must_be_given(nodes: list[Any], role: str, tmp_path: Path) -> None:
    """The error of a missing shape has the remedy, and given values change the network's identity."""
    path = write_indices(tmp_path / "net.onnx", nodes, [2])
    wide, tall = (Sweep(str(path), inputs={"ids": np.array(shape)}) for shape in ([-1, 8], [8, -1]))

    assert role == onnx_source.file(path).inputs[1].role
    with pytest.raises(UsageError, match=rf"input ids is {role}, .*--inputs FILE, an .npz with an array ids"):
        Sweep(str(path))
    assert wide.workloads[0].id != tall.workloads[0].id
    assert wide.id == Sweep.from_json(wide.to_json()).id
