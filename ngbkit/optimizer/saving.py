"""Writes complete ONNX files: weights are inside, or in a file beside where a protobuf message is too small."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import onnx_ir as ir
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from ngbkit.dataset.storage import write_whole
from ngbkit.errors import UsageError
from ngbkit.workloads.onnx_binding import EMBEDDED_BYTES
from ngbkit.workloads.onnx_traversal import find_external_files, find_tensors

# Runtimes map weights into memory by whole pages, of up to this size.
_PAGE_BYTES = 65_536
_CHUNK_BYTES = 1 << 24


def save_model(model: ir.Model, path: Path) -> Path:
    """Write a model beside the files of its external data; new weights that are too large for it get a file as well."""
    weights = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    sizes = (tensor.nbytes for tensor in weights if tensor is not None and not isinstance(tensor, ir.ExternalTensor))
    ir.save(model, path, external_data=f"{path.name}.data" if sum(sizes) > EMBEDDED_BYTES else None)
    return path


def write_network(source: Path, target: Path) -> None:
    """Write a copy of an ONNX file that appears whole or not at all, its external data in one file named after it.

    UsageError: it cannot be written.
    """
    model = onnx.load(source, load_external_data=False)
    files = list(find_external_files(model))
    if not files:
        write_whole(target, source.read_bytes())
        return
    data = target.with_name(f"{target.name}.data")
    part = data.with_name(f".{data.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _move_tensors(model, data.name, _join_files(source.parent, files, part))
            # An earlier network of this name must not be read with the weights of this one.
            target.unlink(missing_ok=True)
            part.replace(data)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(
            f"{data} cannot be written: {error.strerror or error}. Free some space, or save to another folder."
        ) from error
    write_whole(target, model.SerializeToString())


def _join_files(folder: Path, names: Iterable[str], target: Path) -> dict[str, range]:
    """Write the content of files one after the other, and return the place of each."""
    places = {}
    with target.open("wb") as stream:
        for name in names:
            start = stream.seek(-(-stream.tell() // _PAGE_BYTES) * _PAGE_BYTES)
            with (folder / name).open("rb") as content:
                shutil.copyfileobj(content, stream, _CHUNK_BYTES)
            places[name] = range(start, stream.tell())
        stream.flush()
        os.fsync(stream.fileno())
    return places


def _move_tensors(model: Any, name: str, places: Mapping[str, range]) -> None:
    """Move the external data of an `onnx.ModelProto` to the file `name`, which has each earlier file at a place."""
    for tensor in _iterate_tensors(model):
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            place = places[info.location][info.offset or 0 :]
            entries = {"location": name, "offset": place.start, "length": info.length or len(place)}
            del tensor.external_data[:]
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=str(value))


def _iterate_tensors(model: Any) -> Iterator[Any]:
    bodies = (SimpleNamespace(initializer=(), sparse_initializer=(), node=body.node) for body in model.functions)
    return chain.from_iterable(map(find_tensors, (model.graph, *bodies)))
