"""Writes complete ONNX files: weights are inside, or in a file beside where a protobuf message is too small."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnx_ir as ir

from ngbkit.dataset.storage import check_target, write_whole
from ngbkit.errors import UnsupportedError, UsageError
from ngbkit.workloads.onnx_binding import EMBEDDED_BYTES
from ngbkit.workloads.onnx_traversal import find_external_files


def save_model(model: ir.Model, path: Path) -> Path:
    """Write a model beside the files of its external data; new weights that are too large for it get a file as well."""
    weights = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    sizes = (tensor.nbytes for tensor in weights if tensor is not None and not isinstance(tensor, ir.ExternalTensor))
    ir.save(model, path, external_data=f"{path.name}.data" if sum(sizes) > EMBEDDED_BYTES else None)
    return path


def write_network(source: Path, target: Path) -> None:
    """Write a copy of an ONNX file, whole or not at all, with its external data in one file that has its name."""
    check_target(target, overwrite=True)
    if not find_external_files(onnx.load(source, load_external_data=False)):
        write_whole(target, source.read_bytes())
        return
    data = target.with_name(f"{target.name}.data")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as folder:
            draft = Path(folder, target.name)
            ir.save(ir.load(source), draft, external_data=data.name)
            if others := find_external_files(onnx.load(draft, load_external_data=False)).keys() - {data.name}:
                raise UnsupportedError(f"external data of {source.name} is no weight: {', '.join(sorted(others))}")
            # An earlier network of this name must not be read with the weights of this one.
            target.unlink(missing_ok=True)
            Path(folder, data.name).replace(data)
            draft.replace(target)
    except OSError as error:
        raise UsageError(
            f"{data} cannot be written: {error.strerror or error}. Free some space, or save to another folder."
        ) from error
