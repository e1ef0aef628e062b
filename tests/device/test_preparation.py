"""Preparation: facts, reference and ONNX files, built once for each workload and cached by content."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngbkit.device import preparation, reference
from ngbkit.files import Store
from ngbkit.workloads import blocks, cell, values
from ngbkit.workloads.base import Workload

CONV = blocks.conv(width=4, depth=2, size=(8, 8))
FACTORS = {"width": 4, "depth": 2}


def build_message(folder: Path, batch_sizes: list[int]) -> dict[str, Any]:
    return {
        "workload": CONV.to_json(),
        "factors": FACTORS,
        "seed": 0,
        "threads": 1,
        "folder": str(folder),
        "artifacts": str(folder),
        "batch_sizes": batch_sizes,
        "exports": True,
        "importers": [],
    }


def test_a_workload_is_prepared_once(tmp_path: Path) -> None:
    """The cache serves it later, and a new batch size does not change the other files."""
    folder = tmp_path / "prepared"
    before = preparation.load(folder, [1, 3], exports=True)
    prepared = preparation.prepare(build_message(folder, [1, 3]))
    times = {file.name: file.stat().st_mtime_ns for file in folder.glob("batch-[0-9]*")}
    loaded = preparation.load(folder, [1, 3], exports=True)
    more = preparation.prepare(build_message(folder, [1, 3, 5]))

    assert None is before
    assert prepared == loaded
    assert {"batch-1.onnx", "batch-3.onnx"} == set(times)
    assert {"1", "3", "5"} == set(more["onnx"])
    assert times == {name: (folder / name).stat().st_mtime_ns for name in times}
    assert None is preparation.load(folder, [7], exports=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_description_is_written_anew(content: str, tmp_path: Path) -> None:
    """A disk that was full may leave any content, and every later run of the network would fail."""
    prepared = preparation.prepare(build_message(tmp_path, [1]))
    (tmp_path / "prepared.json").write_text(content)

    assert None is preparation.load(tmp_path, [1], exports=True)
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
    store = Store(tmp_path / "artifacts")
    for path in mlp.artifacts.values():
        store.add(path)
    request = {**build_message(tmp_path / "prepared", [1, 2]), "workload": mlp.to_json(), "factors": {}}
    prepared = preparation.prepare({**request, "artifacts": str(tmp_path / "artifacts")})

    assert "onnx, float64" == prepared["facts"]["reference"]
    assert 0 < prepared["baseline_rmse"] < 1e-6
    assert 16 * 32 + 32 * 4 == prepared["facts"]["macs"]
    assert {"1", "2"} == set(prepared["onnx"])


def test_the_folders_name_depends_on_every_input() -> None:
    """The folder's name differs by seed and factors, and by the run for another interpreter."""
    key = preparation.build_key
    elsewhere = replace(CONV, python="/other/python")

    assert key(CONV, FACTORS, 0, scope="run") == key(CONV, FACTORS, 0, scope="other")
    assert key(CONV, FACTORS, 0) != key(CONV, FACTORS, 1)
    assert key(CONV, FACTORS, 0) != key(CONV, {**FACTORS, "depth": 3}, 0)
    assert key(elsewhere, FACTORS, 0, scope="run") != key(elsewhere, FACTORS, 0, scope="other")


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


def test_a_workload_reads_back_with_its_artifacts_located() -> None:
    """The device locates the artifacts of a workload by their hashes."""
    workload = Workload(name="a", source="onnx", spec={}, artifacts={"0" * 32: Path("here")})
    back = Workload.from_json(workload.to_json(), preparation.build_locator("/there"))

    assert {"0" * 32: Path("/there/00") / ("0" * 32)} == dict(back.artifacts)


def build_cell_key(folder: Path, source: str, scope: str) -> str:
    """Build the key of a cell in a folder."""
    (workload,) = cell.from_source(source)
    return preparation.build_key(workload, {}, 0, [str(folder)], scope)


def test_runs_share_the_preparation_of_a_cell(tmp_path: Path) -> None:
    """A cell with other comments has the preparation of an earlier run, until a module that it imports changes."""
    source = "from helper import width\nmodel, input_shape = None, (width,)"
    (tmp_path / "helper.py").write_text("width = 4")
    keys = [build_cell_key(tmp_path, text, scope) for text, scope in ((source, "1"), (f"{source}  # wide", "2"))]
    (tmp_path / "helper.py").write_text("width = 8")
    changed = build_cell_key(tmp_path, source, "1")

    assert keys[0] == keys[1] != changed


@pytest.mark.parametrize(
    "line", ["w = open('w.txt')", "from numpy import load", "w = pandas.read_csv('w.csv')", "w = os.environ['W']"]
)
def test_a_cell_that_reads_is_prepared_by_each_run(tmp_path: Path, line: str) -> None:
    """A run prepares a cell anew if it reads files or variables, which may have changed."""
    source = f"{line}\nmodel, input_shape = None, (4,)"

    assert build_cell_key(tmp_path, source, "1") == build_cell_key(tmp_path, source, "1")
    assert build_cell_key(tmp_path, source, "1") != build_cell_key(tmp_path, source, "2")
