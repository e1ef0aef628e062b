"""ONNX files, with a fixed or an open batch, other open dimensions as factors, weights inside or in external files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from ngbkit.errors import WorkloadError
from ngbkit.files import hash_file
from ngbkit.user_text import parse_path
from ngbkit.workloads import files, onnx_inputs, onnx_model
from ngbkit.workloads.base import Factors, Network, Source, Workload
from ngbkit.workloads.export import find_external_files

_SUFFIX = ".onnx"
# Complaints of the checker that concern no runtime: an operator newer than this onnx, an output without a shape (the
# inputs are checked here), external data that is a link inside of the model's folder (it is sent as a copy).
_HARMLESS = ("No Op registered", "Field 'shape' of 'type' is required", "link")
_BASELINE = "onnxruntime, graph optimisations off"


def file(path: str | Path, *, name: str | None = None) -> Workload:
    """A network in an ONNX file.

    The first dimension of every input is the batch: a symbol accepts any batch size, a number only that one. The
    symbol of any other dimension, such as a sequence length, is a factor that the sweep gives values; one without a
    name is called after its input and its place, ``x_dim2``. Operators are not checked: each compiler rejects those
    that it does not support.

    Parameters
    ----------
    path
        The file, with its external data, if any, beside it.
    name
        The label. Default: the file's name without its suffix.

    Raises
    ------
    WorkloadError
        The file or its external data is missing, truncated or not ONNX, or an input has no batch.
    MissingDependencyError
        The package ``onnx`` is not installed.
    """
    path = parse_path(path)
    model = onnx_model.read(path)
    inputs, batch_size = onnx_inputs.describe(path, model)
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
        "inputs": inputs,
        "batch_size": batch_size,
    }
    takes = onnx_inputs.list_factors(inputs)
    return Workload(name=name or path.stem, source="onnx", spec=spec, takes=takes, artifacts=artifacts)


def build(workload: Workload, factors: Factors) -> Network:
    """Lay out the file with its external data beside it, under their original names."""
    return Network(
        inputs=onnx_inputs.bind(workload.spec["inputs"], factors),
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
    summary="ONNX files, with a fixed or a dynamic batch, and other dynamic dimensions as factors",
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
