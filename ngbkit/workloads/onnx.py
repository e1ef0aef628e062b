"""ONNX files: the batch in any dimension or in none, other open dimensions as factors, weights inside or beside."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ngbkit.errors import WorkloadError
from ngbkit.files import hash_file, write_atomically
from ngbkit.user_text import parse_path
from ngbkit.workloads import files, onnx_inputs, onnx_model
from ngbkit.workloads.base import Factors, Network, Source, Workload, hash_json
from ngbkit.workloads.onnx_inputs import BatchAxes
from ngbkit.workloads.onnx_traversal import find_external_files, rename_external_files

_SUFFIX = ".onnx"
_BASELINE = "onnxruntime, graph optimisations off"


def file(path: str | Path, *, name: str | None = None, batch_axis: BatchAxes | None = None) -> Workload:
    """A network in an ONNX file.

    The batch is a dimension whose symbol is called so, in whichever place; else the open first dimension of inputs;
    else the first dimension if all inputs have the same number there, which is then the only batch size; else there is
    none, and a sample is a call. The symbol of any other dimension, such as a sequence length, is a factor that the
    sweep gives values; one without a name is called after its input and its place, ``x_dim2``, and an expression such
    as ``past + sequence`` follows its factors. `ngbkit.describe` shows all of it. Operators are not checked: each
    compiler rejects those that it does not support.

    Parameters
    ----------
    path
        The file, with its external data, if any, beside it.
    name
        The label. Default: the file's name without its suffix.
    batch_axis
        The dimension of inputs that is the batch, by input name, None for an input without one:
        ``{"state": 1, "rate": None}``. Default: as above.

    Raises
    ------
    WorkloadError
        The file or its external data is missing, truncated or not ONNX, no runtime accepts it, or an input is no tensor
        with a shape.
    MissingDependencyError
        The package ``onnx`` is not installed.
    """
    path = parse_path(path)
    model = onnx_model.read(path)
    inputs = _describe_inputs(path, model, batch_axis)
    onnx_model.check(path)
    names: dict[str, list[str]] = {}
    artifacts: dict[str, Path] = {}
    for member in dict.fromkeys((path.name, *find_external_files(model))):
        digest = hash_file(path.parent / member)
        names.setdefault(digest, []).append(member)
        artifacts[digest] = (path.parent / member).absolute()
    spec = {"graph": path.name, "files": names, **inputs}
    workload = Workload(
        name=name or path.stem,
        source="onnx",
        spec=spec,
        artifacts=artifacts,
        path=files.normalise(path),
        batch_axis=dict(batch_axis or {}),
    )
    return _with_factors(workload)


def with_batch_axis(workload: Workload, batch_axis: BatchAxes) -> Workload:
    """Return the description of a file whose batch is where the user says."""
    path = locate_graph(workload)
    described = _describe_inputs(path, onnx_model.read_graph(path), batch_axis)
    return _with_factors(replace(workload, spec={**workload.spec, **described}))


def locate_graph(workload: Workload) -> Path:
    """Return the path of the graph that a description names."""
    files: dict[str, list[str]] = workload.spec["files"]
    return next(workload.artifacts[digest] for digest, names in files.items() if workload.spec["graph"] in names)


def _describe_inputs(path: Path, model: Any, batch_axis: BatchAxes | None) -> dict[str, Any]:
    inputs, batch_size = onnx_inputs.describe(path, model, batch_axis)
    return {"inputs": [spec.to_json() for spec in inputs], "batch_size": batch_size}


def _with_factors(workload: Workload) -> Workload:
    return replace(workload, takes=onnx_inputs.list_factors(workload.inputs))


def build(workload: Workload, factors: Factors) -> Network:
    """Find the file, which reads its external data where that is."""
    return Network(
        inputs=onnx_inputs.bind(workload.inputs, factors),
        onnx=_lay_out(workload),
        batch_size=workload.spec["batch_size"],
        baseline=_BASELINE,
    )


def parse(text: str) -> Workload | None:
    """Parse the path of a file ending in ``.onnx``."""
    return file(text) if text.lower().endswith(_SUFFIX) else None


SOURCE = Source(
    name="onnx",
    summary="ONNX files, with a fixed or a dynamic batch, and other dynamic dimensions as factors",
    build=build,
    parse=parse,
    complete=partial(files.complete, suffix=_SUFFIX),
    with_batch_axis=with_batch_axis,
    preload=(),
)


def _lay_out(workload: Workload) -> Path:
    graph: str = workload.spec["graph"]
    paths = {name: workload.artifacts[digest] for digest, names in workload.spec["files"].items() for name in names}
    outside = [name for name in paths if not onnx_model.is_inside(name)]
    if outside:  # the description may be another machine's
        raise WorkloadError(f"invalid file of {workload.name}: got {outside[0]!r}; expected a name inside its folder.")
    file = paths[graph]
    if len(paths) == 1 or file.name == graph:  # this machine described them, and they already have this layout
        return file
    # onnx reads no links, and ONNX Runtime nothing outside of the graph's folder: this one reads the store's own files.
    store = file.parents[1]
    path = store / f"{file.name}-{hash_json(workload.spec['files'])}{_SUFFIX}"
    if not path.is_file():
        model = onnx_model.read_graph(file)
        rename_external_files(model, {name: data.relative_to(store).as_posix() for name, data in paths.items()})
        with write_atomically(path) as draft:
            draft.write_bytes(model.SerializeToString())
    return path
