"""Preparation of a workload for its trials: its facts, a float64 reference, and ONNX files, built once and cached.

It runs in a child process and writes to the preparation's folder, from which the trials of that workload load.

    prepared.json       inputs, facts, baseline; whether there is a reference
    reference.npz       the reference's outputs for the first samples, and the baseline's own error of each
    reference-4.npz     the same at a batch size, if the outputs of a sample depend on the others
    examples.npz        example inputs, if the workload has some
    evaluation.json     the samples that judge lower precisions, if the user gave some, with rows beside it
    batch-any.onnx, batch-4.onnx, and canonical graphs of the latter
    batch-4.exporter    what exported that file, if it was not torch.export
    refused.json        why there is no ONNX file, by batch size
    .unfinished         present while a child writes here: the files of one that was killed may be incomplete
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import options
from ngbkit.device import canonical_graphs, contents, evaluation, file_batches, reference
from ngbkit.errors import UnsupportedError
from ngbkit.files import Store, is_locked, locate_usable, write_atomically
from ngbkit.registry import find_version
from ngbkit.user_text import parse_json
from ngbkit.workloads import building, counts, export, files, reference_file, values
from ngbkit.workloads.base import Network, TensorSpec, Workload, hash_json
from ngbkit.workloads.onnx_binding import describe_mismatch, specialise

# The result depends on these, beside the workload itself.
_PACKAGES = ("torch", "timm", "torchvision", "onnx", "onnxscript", "onnxruntime", "onnxruntime-gpu")
_LAYOUT = 9
_REFERENCE = "reference.npz"
_UNFINISHED = ".unfinished"


def locate_cache(state_dir: Path, device: str) -> Path:
    """Locate the preparations of a device; with a shared folder, two devices would reuse each other's compiles."""
    return state_dir / options.LAYOUT.cache / device


def locate_folder(state_dir: Path, device: str, key: str) -> Path:
    """Locate a preparation; where ``sudo -E`` has left files in its folder, it has another one for this user."""
    return locate_usable(locate_cache(state_dir, device) / key)


def build_key(workload: Workload, content: str, factors: Mapping[str, Any], seed: int, scope: str = "") -> str:
    """Build the name of a preparation's folder: a hash of everything that its result depends on.

    Without a content it is valid in its `scope` only, its run and what was asked for.
    """
    return hash_json(
        {
            "workload": content or workload.id,
            "choices": workload.describe_choices(),
            "factors": dict(factors),
            "seed": seed,
            "packages": {package: find_version(package) for package in _PACKAGES},
            "layout": _LAYOUT,
            "run": "" if content else scope,
        }
    )


Observe = Callable[[Callable[[], Network], Mapping[str, Any]], tuple[Network, str]]


def build_unobserved(build: Callable[[], Network], message: Mapping[str, Any]) -> tuple[Network, str]:
    """Build a network in a process that must not be observed; its content is not known."""
    del message
    return build(), ""


def prepare(message: Mapping[str, Any], build_observed: Observe = build_unobserved) -> dict[str, Any]:
    """Build the missing parts of a preparation: for each of the message's ``batch_sizes`` a reference, and an ONNX file
    if it ``exports``.

    The result has the ``folder`` of the preparation, the ``content`` of the network, the content of ``prepared.json``,
    the path of ``examples`` or None, and by batch size, as text, ``references``, ``onnx`` files and the reasons for a
    missing file, ``refused``. `build_observed` builds the network, and finds its content: `contents.build_observed`.
    """
    workload, seed = read_workload(message), message["seed"]

    def rebuild() -> Network:
        with options.set_options(seed=seed):
            return building.build(workload, message["factors"])

    if contents.has_code(workload):
        network, content = build_observed(rebuild, message)
    else:
        network, content = rebuild(), workload.id
    key = build_key(workload, content, message["factors"], seed, message["scope"])
    folder = locate_usable(Path(message["cache"]) / key)
    folder.mkdir(parents=True, exist_ok=True)
    with _marking(folder):
        return _prepare(message, workload, network, content, rebuild, folder)


def _prepare(
    message: Mapping[str, Any],
    workload: Workload,
    network: Network,
    content: str,
    rebuild: Callable[[], Network],
    folder: Path,
) -> dict[str, Any]:
    """Build what a folder lacks."""
    seed, sizes = message["seed"], message["batch_sizes"]

    def build_reference(batch_size: int | None = None) -> reference.Reference:
        return reference.build_reference(
            network,
            seed,
            threads=message["threads"],
            onnx=partial(_bind_batch, network, folder),
            batch_size=batch_size,
            rebuild=rebuild,
        )

    is_claimed = network.module is None and not workload.batch_axis
    if not _is_described(folder):
        labels = {"network": workload.name, "factors": dict(message["factors"])}
        expected = build_reference()
        if is_claimed:
            claimed, bind = network, partial(_bind_batch, network, folder)
            network = file_batches.settle(network, expected, seed, message["threads"], bind)
            if network is not claimed:
                for file in folder.glob("batch-*.onnx"):  # of sizes that are none
                    file.unlink()
                expected = build_reference()
        if workload.calibration or workload.evaluation:
            _build_evaluation(workload, network, folder, expected, message).write()
        _write_description(labels, network, folder, expected)
    elif is_claimed:
        network = file_batches.restore(network, json.loads((folder / "prepared.json").read_text()))
    for size in _find_unreferenced(folder, sizes):
        build_reference(size).write(_locate_reference(folder, size))
    missing = _find_missing(folder, sizes) if message["exports"] else []
    if missing:
        refusals = _read_refusals(folder) | _export(network, folder, missing, message["seed"])
        with write_atomically(folder / "refused.json") as temporary:
            temporary.write_text(json.dumps(refusals))
    importers = canonical_graphs.list_importers(message["importers"])
    # Graphs that are exported from modules are canonical, but some releases read no operators of their opset.
    importers = [each for each in importers if network.module is None or each.is_limited]
    lacking = canonical_graphs.find_missing(folder, sizes, importers)
    canonical_graphs.build(network, folder, lacking, seed=seed, threads=message["threads"])
    return {**_read(folder), "content": content}


def _build_evaluation(
    workload: Workload, network: Network, folder: Path, expected: reference.Reference, message: Mapping[str, Any]
) -> evaluation.Evaluation:
    """Build the evaluation against the network itself, or against the original that the user gave."""
    build = partial(evaluation.build, workload, network, folder, expected, message["seed"], threads=message["threads"])
    if not workload.reference:
        return build(original=network, onnx=partial(_bind_batch, network, folder))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        original = replace(reference_file.build(workload, message["factors"]), inputs=network.inputs)
        return build(original=original, onnx=partial(_bind_batch, original, Path(scratch)))


def load(
    folder: Path, batch_sizes: Sequence[int], *, exports: bool, importers: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any] | None:
    """Load the result of `prepare` from the cache; None if a part is missing."""
    if (folder / _UNFINISHED).exists() or not _is_described(folder) or _find_unreferenced(folder, batch_sizes):
        return None
    if exports and _find_missing(folder, batch_sizes):
        return None
    listed = canonical_graphs.list_importers(importers)
    prepared = _read(folder)
    if prepared["is_file"] and canonical_graphs.find_missing(folder, batch_sizes, listed):
        return None
    os.utime(folder)
    return prepared


def evict(cache: Path, keep_bytes: int) -> None:
    """Evict what killed preparations left, and the least recently used ones until at most `keep_bytes` remain."""
    for leftover in cache.glob(".*"):  # of an eviction that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    folders = [folder for folder in cache.glob("*") if folder.is_dir()]
    for folder in folders:
        _remove_unfinished(folder)
    sizes = {folder: sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) for folder in folders}
    total = sum(sizes.values())
    for folder in sorted(sizes, key=lambda folder: folder.stat().st_mtime):
        if total <= keep_bytes:
            return
        total -= sizes[folder]
        # Renamed first, in one step: readers would mistake half of a preparation for a complete one.
        with suppress(OSError):  # of another user
            shutil.rmtree(folder.replace(folder.with_name(f".{folder.name}.out")), ignore_errors=True)


@contextmanager
def _marking(folder: Path) -> Iterator[None]:
    """Mark a folder as unfinished for the block; a mark that no process holds is of one that was killed."""
    _remove_unfinished(folder)
    mark = folder / _UNFINISHED
    with open(mark, "w") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another client prepares the same, and the mark is its own
            yield
            return
        yield
        mark.unlink(missing_ok=True)


def _remove_unfinished(folder: Path) -> None:
    """Remove the graphs and drafts of a preparation that was killed; its other files were moved into place."""
    if (folder / _UNFINISHED).exists() and not is_locked(folder / _UNFINISHED):
        for path in (*folder.glob("batch-*"), *folder.glob(".*")):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_described(folder: Path) -> bool:
    """Return whether a preparation has its description, and undamaged."""
    with suppress(OSError, ValueError):
        description = parse_json((folder / "prepared.json").read_text())
        return isinstance(description, dict) and {"is_file", "row_wise"} <= description.keys()
    return False


def _read(folder: Path) -> dict[str, Any]:
    prepared: dict[str, Any] = json.loads((folder / "prepared.json").read_text())
    examples = folder / "examples.npz"
    # JSON has no integer keys: this way the result has the same shape on both sides of a channel.
    files = {file.stem.removeprefix("batch-"): str(file) for file in folder.glob("batch-*.onnx")}
    files = {size: file for size, file in files.items() if size.isdigit()}
    references = {file.stem.removeprefix("reference-"): str(file) for file in folder.glob("reference-*.npz")}
    return {
        **prepared,
        "folder": str(folder),
        "examples": str(examples) if examples.exists() else None,
        "reference": str(folder / _REFERENCE) if (folder / _REFERENCE).exists() else None,
        "evaluation": str(folder) if evaluation.exists(folder) else None,
        "references": references,
        "onnx": files,
        "canonical": canonical_graphs.read(folder),
        "exporters": {size: export.read_exporter(Path(file)) for size, file in files.items()},
        "refused": _read_refusals(folder),
    }


def find_reference(prepared: Mapping[str, Any], batch_size: int) -> str | None:
    """Find the file of the reference at a batch size in the result of `prepare`; None if nothing could run it."""
    path: str | None = prepared["references"].get(str(batch_size), prepared["reference"])
    return path


def _locate_reference(folder: Path, batch_size: int) -> Path:
    return folder / f"reference-{batch_size}.npz"


def _find_unreferenced(folder: Path, batch_sizes: Sequence[int]) -> list[int]:
    """Find the batch sizes without a reference of their own, for a network that needs one at each."""
    if json.loads((folder / "prepared.json").read_text())["row_wise"]:
        return []
    return [size for size in batch_sizes if not _locate_reference(folder, size).exists()]


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
    return {} if path is None else values.read(Path(path))


def read_workload(message: Mapping[str, Any]) -> Workload:
    """Read the workload of a message; modules beside the file on this machine that defines it can be imported."""
    workload = Workload.from_json(message["workload"], build_locator(message["artifacts"]))
    path = message.get("file", "")
    files.extend_path(path)  # for good: a network may import in its first call
    return replace(workload, path=path)


def build_locator(root: str) -> Callable[[str], Path]:
    """Build the function from a content hash to the path of that artifact on this device."""
    return Store(Path(root)).locate


def _locate_onnx(folder: Path, batch_size: int) -> Path:
    return folder / f"batch-{batch_size}.onnx"


def _write_description(
    labels: Mapping[str, Any], network: Network, folder: Path, expected: reference.Reference
) -> None:
    if network.examples:
        with write_atomically(folder / "examples.npz") as temporary:
            values.write(temporary, network.examples)
    if expected.outputs:
        expected.write(folder / _REFERENCE)
    prepared = {
        **labels,
        "inputs": [spec.to_json() for spec in network.inputs],
        "batch_size": network.batch_size,
        "baseline_rmse": expected.baseline_rmse,
        "row_wise": expected.row_wise,
        "precision": expected.precision,
        "is_file": network.module is None,
        "facts": {
            **asdict(counts.count(network)),
            "baseline": network.baseline,
            **({"fixed_batch": network.batch_reason} if network.batch_reason else {}),
            "reference": expected.name,
            "inputs": {spec.name: f"{spec.dtype} {spec.format_shape()}" for spec in network.inputs},
        },
    }
    with write_atomically(folder / "prepared.json") as temporary:
        temporary.write_text(json.dumps(prepared))


def _bind_batch(network: Network, folder: Path, rows: int) -> Path:
    """Bind the user's own file to its shapes at a batch of `rows`, otherwise unchanged, as a trial may measure it."""
    assert network.onnx is not None
    file = _locate_onnx(folder, rows)
    return file if file.exists() else specialise(network.onnx, rows, file, inputs=network.inputs, fold=False)


def _export(network: Network, folder: Path, batch_sizes: Sequence[int], seed: int) -> dict[str, str]:
    """Write an ONNX file for each batch size; return the reasons for those without one."""
    fixed = network.batch_size
    refusals = {str(size): describe_mismatch(fixed, size) for size in batch_sizes if fixed not in (None, size)}
    batch_sizes = [size for size in batch_sizes if fixed in (None, size)]
    if network.onnx is None:
        try:
            export.export_for(network, folder, batch_sizes, seed)
        except UnsupportedError as error:
            refusals |= {str(size): str(error) for size in batch_sizes if not _locate_onnx(folder, size).exists()}
        return refusals
    for batch_size in batch_sizes:
        try:
            # A user's own file is measured unchanged.
            fold = network.module is not None
            specialise(network.onnx, batch_size, _locate_onnx(folder, batch_size), inputs=network.inputs, fold=fold)
        except UnsupportedError as error:
            refusals[str(batch_size)] = str(error)
    return refusals


def describe_batch(name: str, prepared: Mapping[str, Any]) -> str:
    """Describe the only batch size that a prepared network accepts."""
    size = prepared["batch_size"]
    if reason := prepared["facts"].get("fixed_batch"):
        return f"{name} accepts batch size {size} only: {reason}"
    if any(TensorSpec.from_json(data).batch_axis is not None for data in prepared["inputs"]):
        return f"{name} accepts batch size {size} only: its batch is fixed. Use -b {size}."
    return f"{name} accepts batch size 1 only: none of its inputs has a batch, and a sample is a call. Use -b 1."
