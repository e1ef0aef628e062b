"""Preparation of a workload for its trials: its facts, a float64 reference, and ONNX files, built once and cached.

It runs in a child process and writes to the preparation's folder, from which the trials of that workload load.

    prepared.json       inputs, facts, baseline; whether there is a reference
    reference.npz       the reference's outputs for the first samples, and the baseline's own error of each
    examples.npz        example inputs, if the workload has some
    batch-any.onnx, batch-4.onnx
    refused.json        why there is no ONNX file, by batch size
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import options, registry
from ngbkit.device import reference
from ngbkit.errors import UnsupportedError
from ngbkit.files import Store, write_atomically
from ngbkit.registry import find_version
from ngbkit.workloads import counts, export
from ngbkit.workloads.base import Network, Source, Workload, hash_json

# The result depends on these, beside the workload itself.
_PACKAGES = ("torch", "timm", "torchvision", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu")
_LAYOUT = 5
# Without it, numpy.savez would interpret an input named `file` as its own argument.
_MARK = "="


def locate_cache(state_dir: Path, device: str) -> Path:
    """Locate the preparations of a device; with a shared folder, two devices would reuse each other's compiles."""
    return state_dir / options.LAYOUT.cache / device


def build_key(workload: Workload, factors: Mapping[str, Any], seed: int, run_id: str) -> str:
    """Build the name of a preparation's folder: a hash of everything that its result depends on.

    A cell may read files and modules that its source does not show, and another interpreter's packages are not known
    here: such a preparation is valid for its own run only.
    """
    return hash_json(
        {
            "workload": workload.id,
            "factors": dict(factors),
            "seed": seed,
            "packages": {package: find_version(package) for package in _PACKAGES},
            "layout": _LAYOUT,
            "run": run_id if workload.source == "cell" or workload.python else "",
        }
    )


def prepare(message: Mapping[str, Any]) -> dict[str, Any]:
    """Build the missing parts of a preparation, with an ONNX file for each of the message's ``batch_sizes``.

    The result has the content of ``prepared.json``, the paths of ``reference`` and ``examples`` or None, and by batch
    size, as text, ``onnx`` files or the reasons for a missing file, ``refused``.
    """
    folder = Path(message["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    workload = Workload.from_json(message["workload"], build_locator(message["artifacts"]))
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    with options.set_options(seed=message["seed"]):
        network = source.build(workload, message["factors"])
    if not (folder / "prepared.json").exists():
        labels = {"network": workload.name, "factors": dict(message["factors"])}
        _write_description(labels, network, folder, message["seed"], message["threads"])
    missing = _find_missing(folder, message["batch_sizes"])
    if missing:
        refusals = _read_refusals(folder) | _export(network, folder, missing, message["seed"])
        with write_atomically(folder / "refused.json") as temporary:
            temporary.write_text(json.dumps(refusals))
    return _read(folder)


def load(folder: Path, batch_sizes: Sequence[int]) -> dict[str, Any] | None:
    """Load the result of `prepare` from the cache; None if a part is missing."""
    if not (folder / "prepared.json").exists() or _find_missing(folder, batch_sizes):
        return None
    os.utime(folder)
    return _read(folder)


def evict(cache: Path, keep_bytes: int) -> None:
    """Evict the least recently used preparations until at most `keep_bytes` remain."""
    for leftover in cache.glob(".*"):  # of an eviction that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    folders = [folder for folder in cache.glob("*") if folder.is_dir()]
    sizes = {folder: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) for folder in folders}
    total = sum(sizes.values())
    for folder in sorted(sizes, key=lambda folder: folder.stat().st_mtime):
        if total <= keep_bytes:
            return
        total -= sizes[folder]
        # Renamed first, in one step: readers would mistake half of a preparation for a complete one.
        shutil.rmtree(folder.replace(folder.with_name(f".{folder.name}.out")), ignore_errors=True)


def _read(folder: Path) -> dict[str, Any]:
    prepared: dict[str, Any] = json.loads((folder / "prepared.json").read_text())
    for name in ("reference", "examples"):
        file = folder / f"{name}.npz"
        prepared[name] = str(file) if file.exists() else None
    # JSON has no integer keys: this way the result has the same shape on both sides of a channel.
    files = {file.stem.removeprefix("batch-"): str(file) for file in folder.glob("batch-[0-9]*.onnx")}
    return {**prepared, "onnx": files, "refused": _read_refusals(folder)}


def _read_refusals(folder: Path) -> dict[str, str]:
    """Read the reasons for missing ONNX files, by batch size, which the folder's name makes permanent."""
    file = folder / "refused.json"
    refusals: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return refusals


def _find_missing(folder: Path, batch_sizes: Sequence[int]) -> list[int]:
    refusals = _read_refusals(folder)
    return [size for size in batch_sizes if str(size) not in refusals and not _locate_onnx(folder, size).exists()]


def read_arrays(path: str | None) -> dict[str, np.ndarray]:
    """Read the arrays of an ``.npz`` file in their order; none without a file."""
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as arrays:
        return {name.removeprefix(_MARK): arrays[name] for name in arrays.files}


def build_locator(root: str) -> Callable[[str], Path]:
    """Build the function from a content hash to the path of that artifact on this device."""
    return Store(Path(root)).locate


def _locate_onnx(folder: Path, batch_size: int) -> Path:
    return folder / f"batch-{batch_size}.onnx"


def _write_description(labels: Mapping[str, Any], network: Network, folder: Path, seed: int, threads: int) -> None:
    expected = reference.build_reference(
        network, seed, threads=threads, onnx=lambda rows: _bind_batch(network, folder, rows)
    )
    if network.examples:
        _write_arrays(folder / "examples.npz", dict(network.examples))
    if expected.outputs:
        expected.write(folder / "reference.npz")
    prepared = {
        **labels,
        "inputs": [spec.to_json() for spec in network.inputs],
        "batch_size": network.batch_size,
        "baseline_rmse": expected.baseline_rmse,
        "facts": {
            **asdict(counts.count(network)),
            "baseline": network.baseline,
            "reference": expected.name,
        },
    }
    with write_atomically(folder / "prepared.json") as temporary:
        temporary.write_text(json.dumps(prepared))


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with write_atomically(path) as temporary, open(temporary, "wb") as write:
        np.savez(write, **{_MARK + name: array for name, array in arrays.items()})  # type: ignore[arg-type]


def _bind_batch(network: Network, folder: Path, rows: int) -> Path:
    """Bind the user's own file to its shapes at a batch of `rows`, otherwise unchanged, as a trial may measure it."""
    assert network.onnx is not None
    file = _locate_onnx(folder, rows)
    return file if file.exists() else export.specialise(network.onnx, rows, file, inputs=network.inputs, fold=False)


def _export(network: Network, folder: Path, batch_sizes: Sequence[int], seed: int) -> dict[str, str]:
    """Write an ONNX file for each batch size; return the reasons for those without one."""
    refusals: dict[str, str] = {}
    if network.onnx is None:
        try:
            export.export_for(network, folder, batch_sizes, seed)
        except UnsupportedError as error:
            refusals = {str(size): str(error) for size in batch_sizes if not _locate_onnx(folder, size).exists()}
        return refusals
    for batch_size in batch_sizes:
        if network.batch_size in (None, batch_size):
            # A user's own file is measured unchanged.
            fold = network.module is not None
            file = _locate_onnx(folder, batch_size)
            export.specialise(network.onnx, batch_size, file, inputs=network.inputs, fold=fold)
        else:
            refusals[str(batch_size)] = (
                f"the file accepts batch size {network.batch_size} only: its first dimension is fixed"
            )
    return refusals
