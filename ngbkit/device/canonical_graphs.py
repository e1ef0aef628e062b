"""Canonical graphs of a preparation: a user's own ONNX file at a batch size, in the form that a compiler imports.

batch-4.canonical-KEY.onnx      the graph, absent if the importer reads the file as it is
batch-4.canonical-KEY.json      the steps and their duration
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Compiler
from ngbkit.files import write_atomically
from ngbkit.workloads import canonical, feeds
from ngbkit.workloads.base import Network
from ngbkit.workloads.canonical import Importer


def list_importers(messages: Sequence[Mapping[str, Any]]) -> list[Importer]:
    """List the importers that a message describes."""
    return [Importer(**message) for message in messages]


def find_missing(folder: Path, batch_sizes: Sequence[int], importers: Sequence[Importer]) -> list[tuple[int, Importer]]:
    """Find the batch sizes with an ONNX file, and the importers whose canonical graph it lacks."""
    return [
        (size, importer)
        for size in batch_sizes
        if (folder / f"batch-{size}.onnx").exists()
        for importer in importers
        if not _locate(folder, size, canonical.build_key(importer)).exists()
    ]


def build(network: Network, folder: Path, missing: Sequence[tuple[int, Importer]], *, seed: int, threads: int) -> None:
    """Build canonical graphs, each with the record of its steps."""
    names = [spec.name for spec in network.inputs]
    for size, importer in missing:
        record = _locate(folder, size, canonical.build_key(importer))
        arrays = feeds.draw(network.inputs, network.examples, size, seed)
        result = canonical.canonicalise(
            folder / f"batch-{size}.onnx",
            record.with_suffix(".onnx"),
            importer,
            dict(zip(names, arrays, strict=True)),
            threads=threads,
        )
        content = {"path": str(result.path), "steps": list(result.steps), "seconds": result.seconds}
        with write_atomically(record) as temporary:
            temporary.write_text(json.dumps(content))


def read(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the records of a folder, by batch size and key."""
    return {file.stem: json.loads(file.read_text()) for file in folder.glob("batch-*.canonical-*.json")}


def list_needs(compilers: Iterable[Compiler]) -> list[dict[str, Any]]:
    """List what the importers of compilers need as plain JSON, each once."""
    importers = dict.fromkeys(compiler.importer for compiler in compilers if compiler.importer is not None)
    return [asdict(importer) for importer in importers]


def choose(importer: Importer | None, prepared: Mapping[str, Any], batch_size: int) -> dict[str, Any]:
    """Choose the ONNX file of a trial: the canonical graph for the compiler's importer, whose steps are facts."""
    record = None
    if importer is not None:
        record = prepared["canonical"].get(_name(batch_size, canonical.build_key(importer)))
    if record is None or not record["steps"]:
        return {"onnx": prepared["onnx"].get(str(batch_size)), "facts": {}}
    return {"onnx": record["path"], "facts": {"canonical": record["steps"], "canonical_time_s": record["seconds"]}}


def _locate(folder: Path, batch_size: int, key: str) -> Path:
    return folder / f"{_name(batch_size, key)}.json"


def _name(batch_size: int, key: str) -> str:
    return f"batch-{batch_size}.canonical-{key}"
