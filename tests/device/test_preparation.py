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
from ngbkit.workloads import blocks, values
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


def locate_folder(cache: Path) -> Path:
    return cache / preparation.build_key(CONV, "", FACTORS, 0)


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


def test_a_workload_reads_back_with_its_artifacts_located() -> None:
    """The device locates the artifacts of a workload by their hashes."""
    workload = Workload(name="a", source="onnx", spec={}, artifacts={"0" * 32: Path("here")})
    back = Workload.from_json(workload.to_json(), preparation.build_locator("/there"))

    assert {"0" * 32: Path("/there/00") / ("0" * 32)} == dict(back.artifacts)
