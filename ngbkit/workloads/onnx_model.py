"""ONNX files that may come from anywhere, read as models whose graph, texts and external data are sound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ngbkit.errors import MissingDependencyError, WorkloadError
from ngbkit.workloads.onnx_traversal import find_external_files, find_subgraphs, find_tensors, open_negative


def read(path: Path) -> Any:
    """Read the `onnx.ModelProto` of a file, whose external data is checked and not read.

    WorkloadError: as `read_graph`; or its external data is missing, truncated or outside of its folder.
    MissingDependencyError: the package ``onnx`` is not installed.
    """
    model = read_graph(path)
    try:
        sizes = find_external_files(model)
    except ValueError as error:
        raise WorkloadError(f"{path} has invalid external data: {error}. Export it again.") from None
    for name, size in sizes.items():
        _check_external(path, name, size)
    return model


def read_graph(path: Path) -> Any:
    """Read the `onnx.ModelProto` of a file, whatever its external data; negative dimensions are dynamic.

    WorkloadError: the file is missing, truncated, damaged or not ONNX. MissingDependencyError: the package ``onnx`` is
    not installed.
    """
    model = _parse(path)
    try:  # protobuf decodes a text when it is read, not when it parses the file, and may return its bytes instead
        is_damaged = any(isinstance(text, bytes) for text in _iterate_texts(model))
    except UnicodeDecodeError:
        is_damaged = True
    if is_damaged:
        raise WorkloadError(f"{path} is damaged ONNX: a name in it is no text. Copy or export it again.")
    open_negative(model.graph)
    return model


def check(path: Path) -> None:
    """Check that a file is a graph that a runtime runs.

    onnx's checker has rules that no runtime keeps: on the order of nodes, on names, on weights of old files that are no
    inputs, on operators that it does not know. So where it complains, ONNX Runtime decides; and without ONNX Runtime
    here, the compilers on the device do. WorkloadError: the checker complains, and ONNX Runtime refuses the file too.
    """
    import onnx

    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        complaint = str(error).strip().partition("\n")[0]
    except Exception as error:  # noqa: BLE001  it reads external data itself, and raises what it meets
        complaint = " ".join(str(error).split())
    else:
        return
    refusal = _load_in_onnxruntime(path)
    if refusal:
        raise WorkloadError(f"{path} is not valid ONNX: {complaint}. ONNX Runtime refuses it too: {refusal}")


def _load_in_onnxruntime(path: Path) -> str:
    """Load a file in ONNX Runtime, and return why it refuses the graph, or ``""``; an unknown operator is no reason."""
    try:
        open_session(path)
    except ImportError:
        return ""
    except Exception as error:  # noqa: BLE001  its errors have no common type
        line = " ".join(str(error).split())
        return "" if any(text in line for text in _UNKNOWN_OPERATOR) else line[:300]
    return ""


def open_session(path: Path, threads: int = 0) -> Any:
    """Open a file in ONNX Runtime on a CPU, without graph optimisations; by default a thread a core."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = threads
    settings.log_severity_level = _FATAL
    return onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])


_FATAL = 4
# Other compilers may know what this one does not.
_UNKNOWN_OPERATOR = (
    *("is not a registered function/op", "No Op registered", "NOT_IMPLEMENTED", "Could not find an implementation"),
)


def is_inside(name: str) -> bool:
    """Return whether a relative name stays inside of the folder that it is joined to."""
    location = PurePosixPath(name)
    return bool(location.parts) and not location.is_absolute() and ".." not in location.parts


def _parse(path: Path) -> Any:
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # ships no types
    except ImportError:
        raise MissingDependencyError("onnx", "onnxruntime") from None
    try:
        if not path.is_file():
            raise WorkloadError(f"there is no file {path}; expected the path of an .onnx file.")
        with path.open("rb") as stream:
            head = stream.read(64)
        if head.startswith(b"version https://git-lfs"):
            raise WorkloadError(f"{path} is a Git LFS pointer; expected the file itself. Fetch it with: git lfs pull")
        model = onnx.load(path, format="protobuf", load_external_data=False)
    except OSError as error:
        raise WorkloadError(f"{path} cannot be read: {error.strerror or error}. Name another file.") from None
    except DecodeError as error:
        # A model's first field is its ir_version: a file that starts with it was written as ONNX.
        if head.startswith(b"\x08"):
            raise WorkloadError(f"{path} is truncated or damaged ONNX ({error}). Copy or export it again.") from None
        raise WorkloadError(f"{path} is not an ONNX file ({error}). Export one with torch.onnx.export.") from None
    if not model.graph.node or not model.opset_import:
        raise WorkloadError(f"{path} contains no ONNX graph: it is truncated, or in another format. Export it again.")
    return model


def _iterate_texts(model: Any) -> Iterator[str | bytes]:
    yield from (opset.domain for opset in model.opset_import)
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
        yield from _iterate_node_texts(function.node)
    yield from _iterate_graph_texts(model.graph)


def _iterate_graph_texts(graph: Any) -> Iterator[str | bytes]:
    yield graph.name
    for tensor in find_tensors(graph):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield value.name
        yield from (dimension.dim_param for dimension in value.type.tensor_type.shape.dim)
    yield from _iterate_node_texts(graph.node)


def _iterate_node_texts(nodes: Iterable[Any]) -> Iterator[str | bytes]:
    for node in nodes:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (text for attribute in node.attribute for text in (attribute.name, attribute.ref_attr_name))
        for subgraph in find_subgraphs(node):
            yield from _iterate_graph_texts(subgraph)


def _check_external(path: Path, name: str, size: int) -> None:
    if not is_inside(name):
        raise WorkloadError(f"{path} stores weights in {name!r}, outside its folder. Save them beside it.")
    data = path.parent / name
    try:
        actual = data.stat().st_size if data.is_file() else None
        target = data.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a null character, or a circle of links
        raise WorkloadError(f"{path} stores weights in {name[:100]!r}, which is no file ({error}).") from None
    if actual is None:
        raise WorkloadError(f"{path} stores weights in {name}, which is missing. Copy that file to {data}.")
    # A download of Hugging Face is a folder of links to files that are beside each other in another folder.
    if not any(target.is_relative_to(folder) for folder in (path.parent.resolve(), path.resolve().parent)):
        raise WorkloadError(
            f"{path} stores weights in {name}, a link to {target}, outside its folder. If that file belongs to the "
            f"network, copy it to {data}."
        )
    if actual < size:
        raise WorkloadError(f"{data} is truncated: got {actual} bytes; expected {size} or more. Copy it again.")
