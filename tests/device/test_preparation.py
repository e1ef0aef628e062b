"""Preparation: facts, reference and ONNX files, built once for each workload and cached by content."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from ngbkit.device import preparation, reference
from ngbkit.files import Store
from ngbkit.workloads import blocks, values
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Workload

CONV = blocks.conv(width=4, depth=2, size=(8, 8))
FACTORS = {"width": 4, "depth": 2}


def build_message(folder: Path, batch_sizes: list[int]) -> dict[str, Any]:
    return {
        "workload": CONV.to_json(),
        "factors": FACTORS,
        "seed": 0,
        "threads": 1,
        "cache": str(folder),
        "recipe": "",
        "scope": "",
        "manifests": "",
        "artifacts": str(folder),
        "batch_sizes": batch_sizes,
        "exports": True,
        "importers": [],
    }


def build_file_message(workload: Workload, folder: Path, batch_sizes: list[int]) -> dict[str, Any]:
    """Build the message of a file, whose artifacts are sent."""
    store = Store(folder / "artifacts")
    for path in workload.artifacts.values():
        store.add(path)
    message = build_message(folder / "prepared", batch_sizes)
    return {**message, "workload": workload.to_json(), "factors": {}, "artifacts": str(folder / "artifacts")}


def locate_folder(cache: Path) -> Path:
    return cache / preparation.build_key(CONV, "", FACTORS, 0)


@pytest.mark.guard
def test_a_workload_is_prepared_once(tmp_path: Path) -> None:
    """The cache serves it later, and a new batch size does not change the other files."""
    folder = locate_folder(tmp_path)
    before = preparation.load(folder, [1, 3], exports=True)
    prepared = preparation.prepare(build_message(tmp_path, [1, 3]))
    times = {file.name: file.stat().st_mtime_ns for file in folder.glob("batch-[0-9]*")}
    loaded = preparation.load(folder, [1, 3], exports=True)
    more = preparation.prepare(build_message(tmp_path, [1, 3, 5]))

    assert None is before
    assert prepared == {**(loaded or {}), "content": ""}
    assert {"batch-1.onnx", "batch-3.onnx"} == set(times)
    assert {"1", "3", "5"} == set(more["onnx"])
    assert times == {name: (folder / name).stat().st_mtime_ns for name in times}
    assert None is preparation.load(folder, [7], exports=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_description_is_written_anew(content: str, tmp_path: Path) -> None:
    """A disk that was full may leave any content, and every later run of the network would fail."""
    prepared = preparation.prepare(build_message(tmp_path, [1]))
    (locate_folder(tmp_path) / "prepared.json").write_text(content)

    assert None is preparation.load(locate_folder(tmp_path), [1], exports=True)
    assert prepared == preparation.prepare(build_message(tmp_path, [1]))


def test_the_reference_is_exact_and_has_the_error_of_the_baseline(tmp_path: Path) -> None:
    """The reference has float64 outputs of the first samples and the error of float32."""
    prepared = preparation.prepare(build_message(tmp_path, []))
    read = reference.read_reference(prepared["reference"])

    assert np.float64 is read.outputs[0].dtype.type
    assert (reference.ROWS, 4, 8, 8) == read.outputs[0].shape
    assert 0 < prepared["baseline_rmse"] < 1e-5
    assert (prepared["baseline_rmse"],) == read.errors
    assert ("torch eager", "torch eager, float64") == (prepared["facts"]["baseline"], prepared["facts"]["reference"])
    assert 2 * (4 * 4 * 9 + 4 + 2 * 4) == prepared["facts"]["parameters"]
    assert (4 * 4 * 64, 4 * 4 * 64) == (prepared["facts"]["input_bytes"], prepared["facts"]["output_bytes"])


def test_an_onnx_file_is_prepared_as_a_module_is(mlp: Workload, tmp_path: Path) -> None:
    """The preparation of an ONNX file has a float64 reference, its own error, and its size."""
    prepared = preparation.prepare(build_file_message(mlp, tmp_path, [1, 2]))

    assert "onnx, float64" == prepared["facts"]["reference"]
    assert 0 < prepared["baseline_rmse"] < 1e-6
    assert 16 * 32 + 32 * 4 == prepared["facts"]["macs"]
    assert {"1", "2"} == set(prepared["onnx"])


def test_the_folders_name_depends_on_every_input() -> None:
    """The folder's name differs by seed, factors and choices; by the run for a network without a content."""
    key = preparation.build_key
    calibrated = replace(CONV, calibration="random")

    assert key(CONV, "content", FACTORS, 0, scope="run") == key(CONV, "content", FACTORS, 0, scope="other")
    assert key(CONV, "content", FACTORS, 0) != key(CONV, "content", FACTORS, 1)
    assert key(CONV, "content", FACTORS, 0) != key(CONV, "content", {**FACTORS, "depth": 3}, 0)
    assert key(CONV, "content", FACTORS, 0) != key(calibrated, "content", FACTORS, 0)
    assert key(CONV, "", FACTORS, 0, scope="run") != key(CONV, "", FACTORS, 0, scope="other")


@pytest.mark.parametrize("name", ["file", "x"])
def test_an_input_may_have_any_name(tmp_path: Path, name: str) -> None:
    """An input has any name, even that of an argument of numpy.savez."""
    values.write(tmp_path / "a.npz", {name: np.ones(2)})

    assert [name] == list(preparation.read_arrays(str(tmp_path / "a.npz")))


def test_the_least_recently_used_are_evicted(tmp_path: Path) -> None:
    """The least recently used preparations are evicted, and sizes include subfolders."""
    cache = tmp_path / "cache"
    for age, name in enumerate(["new", "old", "oldest"]):
        (cache / name / "inductor").mkdir(parents=True)
        (cache / name / "inductor" / "kernel").write_bytes(b"x" * 1000)
        os.utime(cache / name, (10_000 - age, 10_000 - age))
    preparation.evict(cache, 1500)

    assert ["new"] == [folder.name for folder in cache.iterdir()]


def test_a_preparation_that_was_killed_leaves_no_files(tmp_path: Path) -> None:
    """Its graphs may be cut: the next run builds them again, and eviction removes them."""
    folder = locate_folder(tmp_path)
    preparation.prepare(build_message(tmp_path, [1]))
    names = {file.name for file in folder.iterdir()}
    for name in ("batch-1.onnx", ".batch-1.onnx.x1", "batch-any.onnx.data", ".unfinished"):
        (folder / name).write_bytes(b"cut")
    before = preparation.load(folder, [1], exports=True)
    preparation.prepare(build_message(tmp_path, [1]))

    assert before is None
    assert names == {file.name for file in folder.iterdir()}
    onnx.checker.check_model(folder / "batch-1.onnx")
    with open(folder / ".unfinished", "w") as mark:
        fcntl.flock(mark.fileno(), fcntl.LOCK_EX)
        preparation.evict(tmp_path, 1 << 40)
        assert names | {".unfinished"} == {file.name for file in folder.iterdir()}  # another client prepares it
    preparation.evict(tmp_path, 1 << 40)
    assert {name for name in names if not name.startswith("batch-")} == {file.name for file in folder.iterdir()}


def test_a_workload_reads_back_with_its_artifacts_located() -> None:
    """The device locates the artifacts of a workload by their hashes."""
    workload = Workload(name="a", source="onnx", spec={}, artifacts={"0" * 32: Path("here")})
    back = Workload.from_json(workload.to_json(), preparation.build_locator("/there"))

    assert {"0" * 32: Path("/there/00") / ("0" * 32)} == dict(back.artifacts)


# Networks of an input x (rows, 16), and a weight w.
LINEAR = "y = MatMul(x, w)"
ATTENTION = """
    q = MatMul(x, w) t = Transpose<perm=[1, 0]>(x) s = MatMul(q, t) p = Softmax<axis=-1>(s) y = MatMul(p, x)
"""
# Of independent rows each sees itself alone.
SHARP = "t = Transpose<perm=[1, 0]>(x) s = MatMul(x, t) p = Softmax<axis=-1>(s) y = MatMul(p, x)"
CUMULATIVE = "zero = Constant<value_int=0>() y = CumSum(x, zero)"
REVERSED = """
    last = Constant<value_ints=[-1]>() first = Constant<value_ints=[-99]>() axis = Constant<value_ints=[0]>()
    y = Slice(x, last, first, axis, last)
"""
FIRST = "q = MatMul(x, w) zero = Constant<value_int=0>() y = Gather<axis=0>(q, zero)"
AVERAGED = "y = ReduceMean<axes=[0], keepdims=1>(x)"
PLACES = "zero = Constant<value_float=0.0>() high = Greater(x, zero) y = NonZero(high)"
CENTRED = "mean = ReduceMean<axes=[0], keepdims=1>(x) y = Sub(x, mean)"
QUANTISED = """
    q, a, b = DynamicQuantizeLinear(x) v, c, d = DynamicQuantizeLinear(w)
    i = MatMulInteger(q, v, b, d) f = Cast<to=1>(i) e = Mul(a, c) y = Mul(f, e)
"""
RESHAPED = "shape = Constant<value_ints=[1, 16]>() r = Reshape(x, shape) y = MatMul(r, w)"


def write_rows(folder: Path, dimension: str, body: str) -> Path:
    """Write the file of a network whose first dimension has this symbol, or number."""
    kind = "int64" if body.rstrip().endswith("NonZero(high)") else "float"
    text = f'<ir_version: 8, opset_import: ["": 17]> graph (float[{dimension}, 16] x) => ({kind} y) {{ {body} }}'
    model = parser.parse_model(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save(model, folder / "network.onnx")
    return folder / "network.onnx"


@pytest.mark.parametrize(
    ("dimension", "body", "batch_size", "reason"),
    [
        ("rows", LINEAR, None, ""),
        ("batch", ATTENTION, None, ""),
        ("rows", QUANTISED, None, ""),
        ("batch", AVERAGED, None, ""),
        ("batch", PLACES, None, ""),
        ("8", LINEAR, 8, ""),
        ("rows", ATTENTION, 1, "a row has other outputs alone than among others"),
        ("8", ATTENTION, 1, "its rows depend on each other"),
        ("rows", SHARP, 1, "a row has other outputs alone than among others"),
        ("rows", CENTRED, 1, "a row has other outputs alone than among others"),
        ("batch", CUMULATIVE, 1, "its rows cannot change places"),
        ("8", CUMULATIVE, 1, "its rows cannot change places"),
        ("batch", REVERSED, 1, "its rows cannot change places"),
        ("rows", AVERAGED, 1, "no output follows its size"),
        ("n", FIRST, 1, "no output follows its size"),
        ("8", FIRST, 1, "no output has its size"),
        ("batch", RESHAPED, 1, "it fails at another number of rows than 1"),
    ],
)
def test_a_file_has_the_batch_that_its_rows_show(
    dimension: str, body: str, batch_size: int | None, reason: str, tmp_path: Path
) -> None:
    """A row is a sample if it has the same outputs alone; if it has others, only where the file calls it a batch.

    A preparation that is read again refuses the same sizes.
    """
    workload = onnx_source.file(write_rows(tmp_path, dimension, body))
    prepared = preparation.prepare(build_file_message(workload, tmp_path, [1, 2]))
    again = preparation.prepare(build_file_message(workload, tmp_path, [1, 2, 8]))

    assert batch_size == prepared["batch_size"] == again["batch_size"]
    assert reason in prepared["facts"].get("fixed_batch", "")
    assert {1: {"2", "8"}, 8: {"1", "2"}, None: set()}[batch_size] == set(again["refused"])


@pytest.mark.parametrize("dimension", ["rows", "8"])
def test_a_batch_of_a_file_that_the_user_names_is_one(dimension: str, tmp_path: Path) -> None:
    """The reason for a batch that is none says how to name it, or the length that it is."""
    path = write_rows(tmp_path, dimension, ATTENTION)
    prepared = preparation.prepare(build_file_message(onnx_source.file(path), tmp_path, [1]))
    workload = onnx_source.file(path, batch_axis={"x": 0})
    expected = preparation.prepare(build_file_message(workload, tmp_path, [1]))

    assert "--batch-axis x=0" in prepared["facts"]["fixed_batch"]
    assert ("--factor rows=1,64" in prepared["facts"]["fixed_batch"]) == (dimension == "rows")
    assert {"rows": None, "8": 8}[dimension] == expected["batch_size"]
