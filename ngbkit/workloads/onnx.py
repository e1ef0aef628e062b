"""ONNX files, with a fixed or a dynamic batch, whole or with their weights in files beside them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ngbkit.errors import MissingDependencyError, WorkloadError
from ngbkit.workloads import feeds, files
from ngbkit.workloads.base import Factors, Network, Source, TensorSpec, Workload
from ngbkit.workloads.export import external_files, open_negative

_SUFFIX = ".onnx"
# What the checker minds and a runtime need not: an operator newer than this onnx, an output without a shape (those of
# the inputs are looked at here), external data that is a link (it travels by copy).
_HARMLESS = ("No Op registered", "Field 'shape' of 'type' is required", "link")
_BASELINE = "onnxruntime, graph optimisations off"


def file(path: str | Path, *, name: str | None = None) -> Workload:
    """A network in an ONNX file.

    Its inputs must have known shapes apart from their first dimension, the batch: a symbolic one takes any batch size,
    a number takes that one only. Operators are not looked at: each compiler refuses what it does not know.

    Parameters
    ----------
    path
        The file; its external data, if any, lies beside it.
    name
        Its label. Default: the file's name without the ending.

    Raises
    ------
    WorkloadError
        The file or its external data is missing, cut short or not ONNX, or an input has an open shape.
    MissingDependencyError
        The package ``onnx`` is not installed.
    """
    path = Path(path).expanduser()
    graph = _read(path)
    _check_beside(path, graph)
    inputs, batch_size = _inputs(path, graph)
    _check(path)
    names: dict[str, list[str]] = {}
    artifacts: dict[str, Path] = {}
    for member in (path.name, *_beside(path, graph)):
        digest = files.digest(path.parent / member)
        names.setdefault(digest, []).append(member)
        artifacts[digest] = (path.parent / member).absolute()
    spec = {
        "graph": path.name,
        "files": names,
        "inputs": [one.to_json() for one in inputs],
        "batch_size": batch_size,
    }
    return Workload(name=name or path.stem, source="onnx", spec=spec, artifacts=artifacts)


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a file varies no factor
    """The file with its external data beside it, under their own names."""
    return Network(
        inputs=[TensorSpec.from_json(one) for one in workload.spec["inputs"]],
        onnx=_lay_out(workload),
        batch_size=workload.spec["batch_size"],
        baseline=_BASELINE,
    )


def parse(text: str) -> Workload | None:
    """The file that a word ending in ``.onnx`` names."""
    return file(text) if text.lower().endswith(_SUFFIX) else None


def complete(prefix: str) -> Iterator[str]:
    """The ONNX files whose path starts with `prefix`."""
    return files.complete(prefix, _SUFFIX)


SOURCE = Source(
    name="onnx",
    summary="ONNX files, with a fixed or a dynamic batch",
    build=build,
    parse=parse,
    complete=complete,
    preload=(),
)


def _read(path: Path) -> Any:
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        raise MissingDependencyError("onnx", "onnxruntime") from None
    if not path.is_file():
        raise WorkloadError(f"there is no file {path}; an ONNX workload is the path of an .onnx file.")
    with path.open("rb") as stream:
        head = stream.read(64)
    if head.startswith(b"version https://git-lfs"):
        raise WorkloadError(f"{path} is a Git LFS pointer, not the file itself. Get the file with: git lfs pull")
    try:
        graph = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        # A model's first field is its ir_version: what starts with it was an ONNX file once.
        if head.startswith(b"\x08"):
            raise WorkloadError(f"{path} is truncated or damaged ONNX ({error}). Copy or export it again.") from None
        raise WorkloadError(f"{path} is not an ONNX file ({error}). Export one, with torch.onnx.export say.") from None
    if not graph.graph.node or not graph.opset_import:
        raise WorkloadError(f"{path} holds no ONNX graph: it is truncated, or another format. Export it again.")
    open_negative(graph.graph)
    return graph


def _check_beside(path: Path, graph: Any) -> None:
    for name, size in external_files(graph).items():
        location = PurePosixPath(name)
        if location.is_absolute() or ".." in location.parts:
            raise WorkloadError(f"{path} keeps weights in {name}, outside its own folder. Save it with them beside it.")
        data = path.parent / name
        if not data.is_file():
            raise WorkloadError(f"{path} keeps weights in {name}, which is not beside it. Copy that file to {data}.")
        if data.stat().st_size < size:
            raise WorkloadError(
                f"{data} is truncated: {size} bytes are needed, it has {data.stat().st_size}. Copy it again."
            )


def _check(path: Path) -> None:
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        message = str(error).strip().partition("\n")[0]
        if not any(harmless in message for harmless in _HARMLESS):
            raise WorkloadError(f"{path} is not valid ONNX: {message}") from None


def _beside(path: Path, graph: Any) -> list[str]:
    return [name for name in external_files(graph) if name != path.name]


def _lay_out(workload: Workload) -> Path:
    graph: str = workload.spec["graph"]
    places = {name: workload.artifacts[digest] for digest, names in workload.spec["files"].items() for name in names}
    if all(place == places[graph].parent / name for name, place in places.items()):
        return places[graph]  # where they lie is how they are meant to lie: the machine that described them
    # Beside the artifact, not in a temporary folder: a child that is killed removes nothing, and its siblings reuse it.
    folder = places[graph].parent / f"onnx-{workload.id}"
    if not folder.is_dir():
        with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
            for name, place in places.items():
                (files.link if name == graph else files.copy)(place, Path(draft, "whole", name))
            try:
                Path(draft, "whole").rename(folder)
            except OSError:  # a sibling was faster
                if not folder.is_dir():
                    raise
    return folder / graph


def _inputs(path: Path, graph: Any) -> tuple[list[TensorSpec], int | None]:
    held = {tensor.name for tensor in graph.graph.initializer}
    values = [value for value in graph.graph.input if value.name not in held]
    if not values:
        raise WorkloadError(f"{path} has no inputs; a network to measure takes one or more.")
    specs = [_spec(path, value) for value in values]
    batches = {value.type.tensor_type.shape.dim[0].dim_value for value in values} - {0}
    if len(batches) > 1:
        raise WorkloadError(
            f"{path} has inputs of different first dimensions, {sorted(batches)}; it must be the batch in all of them."
        )
    return specs, batches.pop() if batches else None


def _spec(path: Path, value: Any) -> TensorSpec:
    import onnx

    if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.HasField("shape"):
        raise WorkloadError(f"input {value.name} of {path} is not a tensor of a known shape. Export it with one.")
    tensor = value.type.tensor_type
    if not tensor.shape.dim:
        raise WorkloadError(f"input {value.name} of {path} is a scalar; its first dimension must be the batch.")
    for index, dimension in enumerate(tensor.shape.dim[1:], start=1):
        if not dimension.dim_value:
            _refuse_open(path, value.name, index, dimension.dim_param)
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    if dtype not in feeds.DTYPES:
        known = ", ".join(feeds.DTYPES)
        raise WorkloadError(f"input {value.name} of {path} is of dtype {dtype}, which cannot be fed; valid: {known}.")
    return TensorSpec(name=value.name, shape=tuple(one.dim_value for one in tensor.shape.dim[1:]), dtype=dtype)


def _refuse_open(path: Path, name: str, index: int, symbol: str) -> None:
    tool = "python -m onnxruntime.tools.make_dynamic_shape_fixed"
    what = f"--dim_param {symbol} --dim_value 128" if symbol else f"--input_name {name} --input_shape 1,128"
    raise WorkloadError(
        f"dimension {index} of input {name} of {path} is open ({symbol or 'unnamed'}); only the first, the batch, may "
        "be. "
        f"Fix it with: {tool} {what} {path.name} fixed.onnx"
    )
