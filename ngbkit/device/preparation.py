"""What a workload needs before its trials: its facts, a float64 reference, and ONNX files, made once and kept.

Runs in a child process; what it writes into the preparation's folder is what trials of that workload load.

    prepared.json       inputs, facts, baseline; whether there is a reference
    reference.npz       the reference's outputs for the first samples, and the baseline's own error of each
    examples.npz        rows to feed, where the workload came with some
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
from ngbkit.files import Store, replacing
from ngbkit.registry import version
from ngbkit.workloads import counts, export
from ngbkit.workloads.base import Network, Source, Workload, content_hash

# What the outcome depends on, besides the workload itself.
_PACKAGES = ("torch", "timm", "torchvision", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu")
_LAYOUT = 4
# Keeps an input that is called `file` from being taken for an argument of numpy.savez.
_MARK = "="


def cache(state_dir: Path, device: str) -> Path:
    """Where a device keeps its preparations. Two of one machine would else find each other's compiles, and be warm."""
    return state_dir / "cache" / device


def key(workload: Workload, factors: Mapping[str, Any], seed: int, run_id: str) -> str:
    """The name of a preparation's folder: a hash of all that its outcome depends on.

    A cell may read files and modules that its source does not show, so what it made is not trusted beyond its own run.
    """
    return content_hash(
        {
            "workload": workload.id,
            "factors": dict(factors),
            "seed": seed,
            "packages": {package: version(package) for package in _PACKAGES},
            "layout": _LAYOUT,
            "run": run_id if workload.source == "cell" else "",
        }
    )


def prepare(message: Mapping[str, Any]) -> dict[str, Any]:
    """Make what is missing of a preparation.

    Parameters
    ----------
    message
        ``workload``, ``factors``, ``seed``, ``threads``, ``folder``, ``artifacts``, and ``batch_sizes``: those that
        an ONNX file is wanted for.

    Returns
    -------
    dict
        The content of ``prepared.json``, the paths of ``reference`` and ``examples`` or None; ``onnx``: file by batch
        size, as text; ``refused``: why there is none, by batch size.
    """
    folder = Path(message["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    workload = Workload.from_json(message["workload"], locator(message["artifacts"]))
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    with options.set_options(seed=message["seed"]):
        network = source.build(workload, message["factors"])
    if not (folder / "prepared.json").exists():
        about = {"network": workload.name, "factors": dict(message["factors"])}
        _describe(about, network, folder, message["seed"], message["threads"])
    wanted = _missing(folder, message["batch_sizes"])
    if wanted:
        refused = _refused(folder) | _export(network, folder, wanted, message["seed"])
        with replacing(folder / "refused.json") as temporary:
            temporary.write_text(json.dumps(refused))
    return _read(folder)


def ready(folder: Path, batch_sizes: Sequence[int]) -> dict[str, Any] | None:
    """What `prepare` would return, where all of it was made before; else None."""
    if not (folder / "prepared.json").exists() or _missing(folder, batch_sizes):
        return None
    os.utime(folder)
    return _read(folder)


def evict(cache: Path, keep_bytes: int) -> None:
    """Delete the preparations that were used longest ago until at most `keep_bytes` are left."""
    for left in cache.glob(".*"):  # of an eviction that was killed
        shutil.rmtree(left, ignore_errors=True)
    folders = [folder for folder in cache.glob("*") if folder.is_dir()]
    sizes = {folder: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) for folder in folders}
    total = sum(sizes.values())
    for folder in sorted(sizes, key=lambda folder: folder.stat().st_mtime):
        if total <= keep_bytes:
            return
        total -= sizes[folder]
        # In one step as far as anybody sees: half of a preparation would be taken for a whole one.
        shutil.rmtree(folder.replace(folder.with_name(f".{folder.name}.out")), ignore_errors=True)


def _read(folder: Path) -> dict[str, Any]:
    prepared: dict[str, Any] = json.loads((folder / "prepared.json").read_text())
    for name in ("reference", "examples"):
        file = folder / f"{name}.npz"
        prepared[name] = str(file) if file.exists() else None
    # JSON has no integer keys: the same shape whether it crosses a channel or not.
    files = {file.stem.removeprefix("batch-"): str(file) for file in folder.glob("batch-[0-9]*.onnx")}
    return {**prepared, "onnx": files, "refused": _refused(folder)}


def _refused(folder: Path) -> dict[str, str]:
    """Why there is no ONNX file, by batch size. All it depends on is in the folder's name, so it stays true."""
    file = folder / "refused.json"
    refused: dict[str, str] = json.loads(file.read_text()) if file.exists() else {}
    return refused


def _missing(folder: Path, batch_sizes: Sequence[int]) -> list[int]:
    refused = _refused(folder)
    return [size for size in batch_sizes if str(size) not in refused and not _batch_file(folder, size).exists()]


def read_arrays(path: str | None) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file in their order; none where there is no file."""
    if path is None:
        return {}
    with np.load(path, allow_pickle=False) as arrays:
        return {name.removeprefix(_MARK): arrays[name] for name in arrays.files}


def locator(root: str) -> Callable[[str], Path]:
    """Turns a content hash into the path of that artifact on this device."""
    return Store(Path(root)).path


def _batch_file(folder: Path, batch_size: int) -> Path:
    return folder / f"batch-{batch_size}.onnx"


def _describe(about: Mapping[str, Any], network: Network, folder: Path, seed: int, threads: int) -> None:
    made = reference.of(network, seed, threads=threads, onnx=lambda rows: _bound(network, folder, rows))
    if network.examples:
        _write_arrays(folder / "examples.npz", dict(network.examples))
    if made.outputs:
        made.write(folder / "reference.npz")
    prepared = {
        **about,
        "inputs": [spec.to_json() for spec in network.inputs],
        "batch_size": network.batch_size,
        "baseline_rmse": made.baseline_rmse,
        "facts": {
            **asdict(counts.count(network)),
            "baseline": network.baseline,
            "reference": made.name,
        },
    }
    with replacing(folder / "prepared.json") as temporary:
        temporary.write_text(json.dumps(prepared))


def _write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as write:
        np.savez(write, **{_MARK + name: array for name, array in arrays.items()})  # type: ignore[arg-type]


def _bound(network: Network, folder: Path, rows: int) -> Path:
    """A file of the user's own at a batch of `rows`, which a trial may find there and measure: as it came."""
    assert network.onnx is not None
    file = _batch_file(folder, rows)
    return file if file.exists() else export.specialise(network.onnx, rows, file, fold=False)


def _export(network: Network, folder: Path, batch_sizes: Sequence[int], seed: int) -> dict[str, str]:
    """Write an ONNX file for each batch size; the reasons for those that there is none for."""
    refused: dict[str, str] = {}
    if network.onnx is None:
        try:
            export.export_for(network, folder, batch_sizes, seed)
        except UnsupportedError as error:
            refused = {str(size): str(error) for size in batch_sizes if not _batch_file(folder, size).exists()}
        return refused
    for batch_size in batch_sizes:
        if network.batch_size in (None, batch_size):
            # A file of the user's own is measured as it came.
            fold = network.module is not None
            export.specialise(network.onnx, batch_size, _batch_file(folder, batch_size), fold=fold)
        else:
            refused[str(batch_size)] = (
                f"the file takes batch size {network.batch_size} only: its first dimension is fixed"
            )
    return refused
