"""ONNX files, with a fixed or a dynamic batch, their weights inside or in external files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ngbkit.errors import WorkloadError
from ngbkit.files import hash_file
from ngbkit.user_text import parse_path
from ngbkit.workloads import feeds, files, onnx_model
from ngbkit.workloads.base import Factors, Network, Source, TensorSpec, Workload
from ngbkit.workloads.export import find_external_files, find_inputs

_SUFFIX = ".onnx"
# Complaints of the checker that concern no runtime: an operator newer than this onnx, an output without a shape (the
# inputs are checked here), external data that is a link inside of the model's folder (it is sent as a copy).
_HARMLESS = ("No Op registered", "Field 'shape' of 'type' is required", "link")
_BASELINE = "onnxruntime, graph optimisations off"


def file(path: str | Path, *, name: str | None = None) -> Workload:
    """A network in an ONNX file.

    The shapes of its inputs must be static except for the first dimension, the batch: a symbol accepts any batch size,
    a number only that one. Operators are not checked: each compiler rejects those that it does not support.

    Parameters
    ----------
    path
        The file, with its external data, if any, beside it.
    name
        The label. Default: the file's name without its suffix.

    Raises
    ------
    WorkloadError
        The file or its external data is missing, truncated or not ONNX, or an input has a dynamic shape.
    MissingDependencyError
        The package ``onnx`` is not installed.
    """
    path = parse_path(path)
    model = onnx_model.read(path)
    inputs, batch_size = _parse_inputs(path, model)
    _check(path)
    names: dict[str, list[str]] = {}
    artifacts: dict[str, Path] = {}
    for member in dict.fromkeys((path.name, *find_external_files(model))):
        digest = hash_file(path.parent / member)
        names.setdefault(digest, []).append(member)
        artifacts[digest] = (path.parent / member).absolute()
    spec = {
        "graph": path.name,
        "files": names,
        "inputs": [tensor.to_json() for tensor in inputs],
        "batch_size": batch_size,
    }
    return Workload(name=name or path.stem, source="onnx", spec=spec, artifacts=artifacts)


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a file varies no factor
    """Lay out the file with its external data beside it, under their original names."""
    return Network(
        inputs=[TensorSpec.from_json(tensor) for tensor in workload.spec["inputs"]],
        onnx=_lay_out(workload),
        batch_size=workload.spec["batch_size"],
        baseline=_BASELINE,
    )


def parse(text: str) -> Workload | None:
    """Parse the path of a file ending in ``.onnx``."""
    return file(text) if text.lower().endswith(_SUFFIX) else None


def complete(prefix: str) -> Iterator[str]:
    """Yield the ONNX files whose path starts with `prefix`."""
    return files.complete(prefix, _SUFFIX)


SOURCE = Source(
    name="onnx",
    summary="ONNX files, with a fixed or a dynamic batch",
    build=build,
    parse=parse,
    complete=complete,
    preload=(),
)


def _check(path: Path) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        message = str(error).strip().partition("\n")[0]
        if not any(harmless in message for harmless in _HARMLESS):
            raise WorkloadError(f"{path} is not valid ONNX: {message}") from None


def _lay_out(workload: Workload) -> Path:
    graph: str = workload.spec["graph"]
    paths = {name: workload.artifacts[digest] for digest, names in workload.spec["files"].items() for name in names}
    outside = [name for name in paths if not onnx_model.is_inside(name)]
    if outside:  # the description may be another machine's
        raise WorkloadError(f"invalid file of {workload.name}: got {outside[0]!r}; expected a name inside its folder.")
    if all(path == paths[graph].parent / name for name, path in paths.items()):
        return paths[graph]  # this machine described them, and they already have this layout
    # Beside the artifact, not in a temporary folder: siblings reuse it, and a killed child could not remove it.
    folder = paths[graph].parent / f"onnx-{workload.id}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            draft = Path(scratch, "draft")
            for name, path in paths.items():
                (files.link if name == graph else files.copy)(path, draft / name)
            try:
                draft.rename(folder)
            except OSError:  # a sibling was faster
                if not folder.is_dir():
                    raise
    return folder / graph


def _parse_inputs(path: Path, model: Any) -> tuple[list[TensorSpec], int | None]:
    values = find_inputs(model.graph)
    if not values:
        raise WorkloadError(f"{path} has no inputs; expected one or more.")
    specs = [_parse_input(path, value) for value in values]
    batches = {value.type.tensor_type.shape.dim[0].dim_value for value in values} - {0}
    if len(batches) > 1:
        raise WorkloadError(
            f"invalid first dimensions of the inputs of {path}: got {sorted(batches)}; expected the batch in all."
        )
    return specs, batches.pop() if batches else None


def _parse_input(path: Path, value: Any) -> TensorSpec:
    import onnx

    if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.HasField("shape"):
        raise WorkloadError(f"input {value.name} of {path} is not a tensor with a shape. Export it with one.")
    tensor = value.type.tensor_type
    if not tensor.shape.dim:
        raise WorkloadError(f"input {value.name} of {path} is a scalar; expected the batch as first dimension.")
    for index, dimension in enumerate(tensor.shape.dim[1:], start=1):
        if not dimension.dim_value:
            _reject_dynamic(path, value.name, index, dimension.dim_param)
    try:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    except KeyError:
        dtype = f"unknown type {tensor.elem_type}"
    if dtype not in feeds.DTYPES:
        raise WorkloadError(
            f"invalid dtype of input {value.name} of {path}: got {dtype}; expected one of {', '.join(feeds.DTYPES)}."
        )
    shape = tuple(dimension.dim_value for dimension in tensor.shape.dim[1:])
    return TensorSpec(name=value.name, shape=shape, dtype=dtype)


def _reject_dynamic(path: Path, name: str, index: int, symbol: str) -> None:
    tool = "python -m onnxruntime.tools.make_dynamic_shape_fixed"
    arguments = f"--dim_param {symbol} --dim_value 128" if symbol else f"--input_name {name} --input_shape 1,128"
    raise WorkloadError(
        f"dimension {index} of input {name} of {path} is dynamic ({symbol or 'unnamed'}); only the batch, dimension 0, "
        f"may be. Fix it with: {tool} {arguments} {path.name} fixed.onnx"
    )
