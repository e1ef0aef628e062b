"""Preparation: facts, reference and ONNX files are made once a workload, and found again by content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ngbkit.device import preparation, reference
from ngbkit.files import Store
from ngbkit.workloads import blocks, cell
from ngbkit.workloads.base import Workload

CONV = blocks.conv(width=4, depth=2, size=(8, 8))
FACTORS = {"width": 4, "depth": 2}


def message(folder: Path, batch_sizes: list[int]) -> dict[str, Any]:
    return {
        "workload": CONV.to_json(),
        "factors": FACTORS,
        "seed": 0,
        "threads": 1,
        "folder": str(folder),
        "artifacts": str(folder),
        "batch_sizes": batch_sizes,
    }


def test_a_workload_is_prepared_once_and_found_ready(tmp_path: Path) -> None:
    """A second time nothing is exported, and a new batch size leaves the others alone."""
    folder = tmp_path / "prepared"
    before = preparation.ready(folder, [1, 3])
    made = preparation.prepare(message(folder, [1, 3]))
    written = {file.name: file.stat().st_mtime_ns for file in folder.glob("batch-[0-9]*")}
    found = preparation.ready(folder, [1, 3])
    more = preparation.prepare(message(folder, [1, 3, 5]))

    assert None is before
    assert made == found
    assert {"batch-1.onnx", "batch-3.onnx"} == set(written)
    assert {"1", "3", "5"} == set(more["onnx"])
    assert written == {name: (folder / name).stat().st_mtime_ns for name in written}
    assert None is preparation.ready(folder, [7])


def test_the_reference_is_exact_and_tells_the_baselines_own_error(tmp_path: Path) -> None:
    """float64 outputs of the first samples, and what float32 makes of them."""
    made = preparation.prepare(message(tmp_path, []))
    read = reference.read(made["reference"])

    assert np.float64 is read.outputs[0].dtype.type
    assert (reference.ROWS, 4, 8, 8) == read.outputs[0].shape
    assert 0 < made["baseline_rmse"] < 1e-5
    assert (made["baseline_rmse"],) == read.errors
    assert ("torch eager", "torch eager, float64") == (made["facts"]["baseline"], made["facts"]["reference"])
    assert 2 * (4 * 4 * 9 + 4 + 2 * 4) == made["facts"]["parameters"]
    assert (4 * 4 * 64, 4 * 4 * 64) == (made["facts"]["input_bytes"], made["facts"]["output_bytes"])


def test_an_onnx_file_is_prepared_as_a_module_is(mlp: Workload, tmp_path: Path) -> None:
    """With a reference in float64, its own error, and its size."""
    store = Store(tmp_path / "artifacts")
    for path in mlp.artifacts.values():
        store.push(path)
    asked = {**message(tmp_path / "prepared", [1, 2]), "workload": mlp.to_json(), "factors": {}}
    made = preparation.prepare({**asked, "artifacts": str(tmp_path / "artifacts")})

    assert "onnx, float64" == made["facts"]["reference"]
    assert 0 < made["baseline_rmse"] < 1e-6
    assert 16 * 32 + 32 * 4 == made["facts"]["macs"]
    assert {"1", "2"} == set(made["onnx"])


def test_the_folder_is_named_by_all_that_its_content_depends_on() -> None:
    """Another seed or factor is another preparation; another run is one for a cell only, which may read files."""
    (source,) = cell.from_source("import torch\nmodel = torch.nn.Linear(4, 2)\ninput_shape = (4,)\n")
    key = preparation.key

    assert key(CONV, FACTORS, 0, "run") == key(CONV, FACTORS, 0, "other")
    assert key(CONV, FACTORS, 0, "run") != key(CONV, FACTORS, 1, "run")
    assert key(CONV, FACTORS, 0, "run") != key(CONV, {**FACTORS, "depth": 3}, 0, "run")
    assert key(source, {}, 0, "run") != key(source, {}, 0, "other")


@pytest.mark.parametrize("name", ["file", "x"])
def test_an_input_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Also one that numpy.savez has a use for itself."""
    preparation._write_arrays(tmp_path / "a.npz", {name: np.ones(2)})

    assert [name] == list(preparation.read_arrays(str(tmp_path / "a.npz")))


def test_what_was_used_longest_ago_is_evicted(tmp_path: Path) -> None:
    """Subfolders, where compilers keep their own caches, count."""
    cache = tmp_path / "cache"
    for age, name in enumerate(["new", "old", "oldest"]):
        (cache / name / "inductor").mkdir(parents=True)
        (cache / name / "inductor" / "kernel").write_bytes(b"x" * 1000)
        os.utime(cache / name, (10_000 - age, 10_000 - age))
    preparation.evict(cache, 1500)

    assert ["new"] == [folder.name for folder in cache.iterdir()]


def test_a_workload_reads_back_with_its_artifacts_located() -> None:
    """Only hashes travel; the device says where they lie."""
    workload = Workload(name="a", source="onnx", spec={}, artifacts={"0" * 32: Path("here")})
    back = Workload.from_json(workload.to_json(), preparation.locator("/there"))

    assert {"0" * 32: Path("/there/00") / ("0" * 32)} == dict(back.artifacts)
