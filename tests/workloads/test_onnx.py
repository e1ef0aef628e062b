"""ONNX files: their valid and invalid forms, and their layout on a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from ngbkit.errors import WorkloadError
from ngbkit.files import Store
from ngbkit.workloads import counts, onnx_model
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import BATCH, TensorSpec, Workload
from ngbkit.workloads.onnx_binding import specialise


def write(
    path: Path, dims: list[object] | None = None, dtype: int = TensorProto.FLOAT, domain: str = "", op: str = "MatMul"
) -> Path:
    """Write a product with an 8 x 8 matrix."""
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], domain=domain)],
        "product",
        [helper.make_tensor_value_info("x", dtype, ["batch", 8] if dims is None else dims)],
        [helper.make_tensor_value_info("y", dtype, ["batch", 8])],
        [weight],
    )
    opsets = [helper.make_opsetid("", 20), *([helper.make_opsetid(domain, 1)] if domain else [])]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def write_external(path: Path) -> Path:
    model = onnx.load(write(path))
    (path.parent / "weights").mkdir()
    onnx.save(model, path, save_as_external_data=True, location="weights/w.bin", size_threshold=0)
    return path


@pytest.mark.parametrize(("dims", "batch_size"), [(["batch", 8], None), ([None, 8], None), ([1, 8], 1), ([16, 8], 16)])
def test_the_first_dimension_is_the_batch(tmp_path: Path, dims: list[object], batch_size: int | None) -> None:
    """A symbolic first dimension accepts any batch size, and a number only that one."""
    network = onnx_source.build(onnx_source.file(write(tmp_path / "net.onnx", dims)), {})

    assert [TensorSpec(name="x", shape=(BATCH, 8))] == network.inputs
    assert batch_size == network.batch_size
    assert "onnxruntime, graph optimisations off" == network.baseline


def test_the_id_of_a_file_is_that_of_its_content(tmp_path: Path) -> None:
    """The label is the file's name, or another."""
    (tmp_path / "other").mkdir()
    path, same = write(tmp_path / "net.onnx"), write(tmp_path / "other" / "net.onnx")

    assert onnx_source.file(path).id == onnx_source.file(same).id
    assert "net" == onnx_source.file(path).name
    assert "mine" == onnx_source.file(path, name="mine").name


def test_external_data_is_sent_and_read_in_place(tmp_path: Path) -> None:
    """The network loads with its weights from a store where files are named by their hashes, without a copy of them."""
    workload = onnx_source.file(write_external(tmp_path / "net.onnx"))
    store = Store(tmp_path / "store")
    for path in workload.artifacts.values():
        store.add(path)
    received = Workload.from_json(workload.to_json(), store.locate)

    paths = [onnx_source.build(received, {}).onnx for _ in range(2)]

    assert 2 == len(workload.artifacts)
    assert paths[0] == paths[1]
    assert paths[0] is not None
    assert 3 == sum(path.is_file() for path in store.root.rglob("*"))
    assert onnx_model.read(paths[0]).graph.node
    assert "" == onnx_model._load_in_onnxruntime(paths[0])
    loaded = onnx.load(paths[0])
    np.testing.assert_array_equal(np.eye(8), numpy_helper.to_array(loaded.graph.initializer[0]))


def test_a_file_without_external_data_is_read_where_it_is(tmp_path: Path) -> None:
    """A graph in a store has no second name, whose content would outlive it."""
    workload = onnx_source.file(write(tmp_path / "net.onnx"))
    store = Store(tmp_path / "store")
    path = store.locate(store.add(tmp_path / "net.onnx"))

    assert path == onnx_source.build(Workload.from_json(workload.to_json(), store.locate), {}).onnx


def test_a_file_on_the_machine_that_described_it_is_not_copied(tmp_path: Path) -> None:
    """A file on the machine that described it is used at its own path."""
    path = write_external(tmp_path / "net.onnx")

    assert path == onnx_source.build(onnx_source.file(path), {}).onnx


@pytest.mark.parametrize("domain", ["my.company", ""])
def test_operators_are_not_checked(tmp_path: Path, domain: str) -> None:
    """The compilers reject an unknown operator."""
    path = write(tmp_path / "net.onnx", domain=domain, op="Frobnicate")

    assert "net" == onnx_source.file(path).name


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def delete_weights(path: Path) -> None:
    write_external(path)
    (path.parent / "weights" / "w.bin").unlink()


def truncate_weights(path: Path) -> None:
    write_external(path)
    (path.parent / "weights" / "w.bin").write_bytes(b"short")


def point_outside(path: Path) -> None:
    write_external(path)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../w.bin"
    path.write_bytes(model.SerializeToString())


def set_external(key: str, value: str | bytes) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        write_external(path)
        model = onnx.load(path, load_external_data=False)
        (entry,) = (entry for entry in model.graph.initializer[0].external_data if entry.key == key)
        entry.value = "?" * len(value)
        path.write_bytes(model.SerializeToString().replace(b"?" * len(value), os.fsencode(value)))

    return spoil


def link_weights(path: Path) -> None:
    write_external(path)
    outside = path.parent.parent / "secret"
    (path.parent / "weights" / "w.bin").rename(outside)
    (path.parent / "weights" / "w.bin").symlink_to(outside)


def link_folder(path: Path) -> None:
    write_external(path)
    (path.parent / "weights").rename(path.parent.parent / "secrets")
    (path.parent / "weights").symlink_to(path.parent.parent / "secrets")


def link_in_a_circle(path: Path) -> None:
    delete_weights(path)
    (path.parent / "weights" / "w.bin").symlink_to("w.bin")


def rename(old: bytes, new: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(path.read_bytes().replace(old, new)) and None


def set_dtype(path: Path) -> None:
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.elem_type = 99
    path.write_bytes(model.SerializeToString())


def disconnect(path: Path) -> None:
    model = onnx.load(path)
    model.graph.node[0].input[0] = "nowhere"
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (Path.unlink, "there is no file .*net.onnx"),
        (truncate, "truncated or damaged ONNX .*export it again"),
        (lambda path: path.write_text("<html>404</html>"), "is not an ONNX file"),
        (lambda path: path.write_bytes(b""), "contains no ONNX graph"),
        (lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
        (delete_weights, "stores weights in weights/w.bin, which is missing"),
        (truncate_weights, "w.bin is truncated: got 5 bytes; expected 256 or more"),
        (point_outside, r"stores weights in '\.\./w.bin', outside its folder"),
        (set_external("location", "/etc/hostname"), "stores weights in '/etc/hostname', outside its folder"),
        (set_external("location", "weights\0/w.bin"), "stores weights in .*, which is no"),
        (set_external("location", "w" * 300), "stores weights in .*, which is no file"),
        (set_external("location", b"w\xff.bin"), "is damaged ONNX: a name in it is no text"),
        (set_external("offset", "many"), "has invalid external data: .*many"),
        (set_external("length", "-1"), "has invalid external data: .*non-negative"),
        (link_weights, r"stores weights in weights/w.bin, a link to .*/secret, outside its folder\. .* copy it to"),
        (link_folder, "stores weights in weights/w.bin, a link to .*/secrets/w.bin, outside its folder"),
        (link_in_a_circle, "stores weights in .*weights/w.bin.*, which is"),
        (rename(b"product", b"pro\xffuct"), "is damaged ONNX: a name in it is no text"),
        (rename(b"MatMul", b"Mat\xfful"), "is damaged ONNX: a name in it is no text"),
        (set_dtype, "invalid dtype of input x of .*: got unknown type 99; expected one of float64"),
        (disconnect, "is not valid ONNX: .*nowhere"),
        (
            lambda path: write(path, dtype=TensorProto.COMPLEX64),
            "invalid dtype of input x .*: got complex64; expected one of float64",
        ),
    ],
)
def test_an_invalid_file_is_rejected(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    """The error names the file, its fault and the next step."""
    (tmp_path / "folder").mkdir()
    path = write(tmp_path / "folder" / "net.onnx")
    spoil(path)

    with pytest.raises(WorkloadError, match=message):
        onnx_source.file(path)


def test_a_download_of_links_is_read(tmp_path: Path) -> None:
    """Hugging Face's cache has the files of a model in one folder, and links to all of them in another."""
    source, links = tmp_path / "blobs", tmp_path / "snapshot"
    source.mkdir()
    write_external(source / "0a1b")
    links.mkdir()
    (links / "weights").mkdir()
    (links / "net.onnx").symlink_to(source / "0a1b")
    (links / "weights" / "w.bin").symlink_to(source / "weights" / "w.bin")

    assert {(links / "net.onnx"), (links / "weights" / "w.bin")} == set(
        onnx_source.file(links / "net.onnx").artifacts.values()
    )


@pytest.mark.parametrize("name", ["../net.onnx", "/tmp/net.onnx", "a/../../net.onnx", ""])
def test_a_description_lays_out_nothing_elsewhere(tmp_path: Path, name: str) -> None:
    """On a device, the names of a description stay inside of the network's folder."""
    description = onnx_source.file(write(tmp_path / "net.onnx")).to_json()
    (digest,) = description["artifacts"]
    description["spec"] |= {"graph": name, "files": {digest: [name]}}
    workload = Workload.from_json(description, lambda _: tmp_path / "net.onnx")

    with pytest.raises(WorkloadError, match=r"invalid file of net: got .*; expected a name inside its folder"):
        onnx_source.build(workload, {})


def test_a_label_that_ends_in_onnx_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label that ends in .onnx is a path relative to the current folder."""
    write(tmp_path / "net.onnx")
    (tmp_path / "folder").mkdir()
    (tmp_path / "net.txt").touch()
    monkeypatch.chdir(tmp_path)

    assert "net" == onnx_source.parse("net.onnx").name
    assert onnx_source.parse("resnet18") is None
    assert ["net.onnx"] == list(onnx_source.SOURCE.complete(""))
    assert ["folder/"] == list(onnx_source.SOURCE.complete("f"))
    assert [f"{tmp_path}/net.onnx"] == list(onnx_source.SOURCE.complete(f"{tmp_path}/n"))
    assert [] == list(onnx_source.SOURCE.complete("nowhere/"))


def test_a_negative_dimension_is_dynamic(tmp_path: Path) -> None:
    """Paddle's exporter writes -1 for a symbol: the batch accepts any size, and its bytes can be counted."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [-1, 4]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )

    workload = onnx_source.file(tmp_path / "net.onnx")
    bound = specialise(tmp_path / "net.onnx", 3, tmp_path / "bound.onnx", fold=False)

    graph = onnx.load(bound).graph

    assert workload.spec["batch_size"] is None
    assert [[3, 4], [3, 4]] == [
        [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in (*graph.input, *graph.output)
    ]
    assert 16 == counts.count(onnx_source.build(workload, {})).output_bytes
