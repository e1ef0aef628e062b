"""Canonical graphs: a user's ONNX file in the form that a compiler's importer reads, proved against the original."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.files import copy
from ngbkit.registry import find_version
from ngbkit.workloads.base import hash_json
from ngbkit.workloads.onnx_traversal import find_external_files, find_inputs, walk_graphs
from ngbkit.workloads.subprocesses import run_module

if TYPE_CHECKING:
    import numpy as np

LIMIT_S = 300.0
"""Seconds that all attempts at a canonical graph may take together."""

PROVED = 1e-5
"""The largest relative error of a canonical graph; weights stay as they are, so nearly all have none."""

FOLDER = "onnxscript"
"""The package that folds constants, without fusing operators."""

_PACKAGES = ("onnx", FOLDER, "onnxruntime", "onnxruntime-gpu")
_CHILD = "ngbkit.workloads.canonical_child"
_SHAPES = frozenset({"Shape", "Size"})

STORED = frozenset({"DequantizeLinear", "QuantizeLinear"})
"""Operators of constants that stay: folded, they would replace the weights of a quantised network by floats."""

UNUSED = "not used: "
"""The beginning of the step that says why a graph is not used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """The ONNX graphs that a compiler's importer reads: of static inputs, with the shape of every output, and as here.

    Parameters
    ----------
    opset
        The least version of ONNX's operators; 0 if it reads all of them.
    folds
        Whether the arithmetic on shapes and constants must be folded beforehand.
    most_opset, most_ir
        The latest version of ONNX's operators and of its format that it reads; 0 without a limit.
    """

    opset: int = 0
    folds: bool = False
    most_opset: int = 0
    most_ir: int = 0

    @property
    def is_limited(self) -> bool:
        """True if it reads no graph of a later version than one of its limits."""
        return bool(self.most_opset or self.most_ir)


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """The file for an importer.

    Parameters
    ----------
    path
        The canonical file; the original one if the importer reads that as it is, or if no rewriting was proved.
    steps
        The steps in order, each with its tool and version: ``"opset 11 to 17 (onnx 1.23.2)"``, ``"constants folded
        (onnxscript 0.7.2)"``, and each one that was left out, with the reason. Empty if nothing had to change.
    seconds
        The duration, the proof included.
    """

    path: Path
    steps: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpsetPlan:
    """One attempt: the opset and the format to convert to, 0 for none, and whether constants are folded."""

    opset: int
    folds: bool
    ir: int = 0

    def describe(self) -> str:
        """Describe the attempt, with the versions of its tools."""
        tools = ["onnx"] * bool(self.opset or self.ir or not self.folds) + [FOLDER] * self.folds
        return " and ".join(f"{tool} {find_version(tool)}" for tool in tools)


def canonicalise(
    path: Path,
    out: Path,
    importer: Importer,
    arrays: Mapping[str, np.ndarray],
    *,
    threads: int = 1,
    limit_s: float = LIMIT_S,
) -> Canonical:
    """Write the file that `importer` reads to `out`, computing the same as the file at `path`.

    Each attempt runs in a process of its own. Its graph and the original one run with the same inputs, by ONNX Runtime
    without graph optimisations or else by onnx's reference: every output has the same shape and type, floats a relative
    error of at most `PROVED`, and all else is equal. A graph that is not proved is not used. Nothing is raised for a
    graph or a tool that fails: the result then has the original path, and the reason.

    Parameters
    ----------
    path
        An ONNX file whose inputs are static in every dimension, its external data beside it.
    out
        The file to write, in an existing folder; external data that is elsewhere is copied there. The same file and
        the same versions of the tools give the same bytes. It is absent if nothing had to change or was proved.
    importer
        The form that the compiler's importer reads.
    arrays
        The inputs of the proof, by name.
    threads
        The threads of the proof.
    limit_s
        The seconds that all attempts together may take.
    """
    start = time.monotonic()
    plans, notes = _plan(path, importer)
    for plan in plans:
        rest_s = limit_s - (time.monotonic() - start)
        if rest_s <= 0:
            notes.append(f"left as it is: canonical graphs took longer than {limit_s:g} s")
            break
        steps, problem = _attempt(path, out, plan, arrays, threads, rest_s)
        if not problem:
            is_used = out.exists()
            return Canonical(path=out if is_used else path, steps=(*notes, *steps), seconds=time.monotonic() - start)
        notes.append(f"{UNUSED}{plan.describe()} ({problem})")
    return Canonical(path=path, steps=tuple(notes), seconds=time.monotonic() - start)


def build_key(importer: Importer) -> str:
    """Build the name of an importer's files: equal where they have the same content, for the installed tools."""
    versions = {package: find_version(package) for package in _PACKAGES}
    return hash_json({"importer": asdict(importer), "versions": versions})[:12]


def lift(model: Any, opset: int) -> Any:
    """Return an `onnx.ModelProto` with the operators of `opset`, by onnx's version converter.

    The model itself is unchanged, and returned if it has that version or a later one. Functions are inlined, and the
    operators of other domains stay as they are. ValueError: the converter cannot lift an operator, or the model.
    """
    import onnx

    version = find_opset(model)
    if version >= opset:
        return model
    lifted = convert(model, opset)
    if version < 11 <= opset:
        _keep_resizing(lifted)
    lifted.ir_version = max(
        lifted.ir_version, onnx.helper.find_min_ir_version_for(lifted.opset_import, ignore_unknown=True)
    )
    return lifted


def convert(model: Any, opset: int) -> Any:
    """Return a copy of an `onnx.ModelProto` with the operators of another `opset`; ValueError as for `lift`."""
    import onnx
    from onnx.inliner import inline_local_functions

    converted = onnx.ModelProto()
    converted.CopyFrom(model)
    try:
        if converted.functions:
            converted = inline_local_functions(converted)
        _normalise(converted)
        return onnx.version_converter.convert_version(converted, opset)
    except Exception as error:  # a converter in C++ has exceptions of many kinds
        line = " ".join(str(error).split())[-200:]
        version = find_opset(model)
        verb = "lift" if version < opset else "lower"
        raise ValueError(f"onnx {onnx.__version__} cannot {verb} opset {version} to {opset}: {line}") from error


def find_opset(model: Any) -> int:
    """Find the version of ONNX's own operators in an `onnx.ModelProto`; 1 where it states none."""
    return max((opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")), default=1)


def is_foldable(model: Any) -> bool:
    """Return whether constants of a model can be folded: shapes, functions, or operators of constants alone."""
    if model.functions:
        return True
    constants = {"", *(tensor.name for tensor in model.graph.initializer)}  # an absent input has no name
    for node in model.graph.node:
        if node.op_type == "Constant":
            constants.update(node.output)
        elif node.op_type in _SHAPES or (
            node.op_type not in STORED and node.input and all(name in constants for name in node.input if name)
        ):
            return True
    return any(node.op_type in _SHAPES for graph in walk_graphs(model.graph) for node in graph.node)


def lacks_shapes(model: Any) -> bool:
    """Return whether a tensor among the outputs of an `onnx.ModelProto` has no shape."""
    types = (output.type for output in model.graph.output)
    return any(kind.WhichOneof("value") == "tensor_type" and not kind.tensor_type.HasField("shape") for kind in types)


def _plan(path: Path, importer: Importer) -> tuple[list[_OpsetPlan], list[str]]:
    """Plan the attempts in order, and state what is not installed."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    version = find_opset(model)
    opset = importer.opset if 0 < version < importer.opset else 0
    opset = importer.most_opset if 0 < importer.most_opset < version else opset
    ir = importer.most_ir if 0 < importer.most_ir < model.ir_version else 0
    # A lifted graph may have constants that the original one does not have.
    folds = importer.folds and bool(opset or is_foldable(model))
    notes = []
    if folds and find_version(FOLDER) is None:
        folds = False
        notes.append(f"constants not folded: {FOLDER} is not installed; install with: pip install {FOLDER}")
    plans = [_OpsetPlan(opset=opset, folds=True, ir=ir)] if folds else []
    if opset or ir or lacks_shapes(model):
        plans.append(_OpsetPlan(opset=opset, folds=False, ir=ir))
    if opset and folds:
        plans.append(_OpsetPlan(opset=0, folds=True))
    return plans, notes


def _attempt(
    path: Path, out: Path, plan: _OpsetPlan, arrays: Mapping[str, np.ndarray], threads: int, limit_s: float
) -> tuple[list[str], str]:
    """Try one plan; return its steps and the problem, empty where it has none. `out` exists if the graph changed."""
    import onnx

    from ngbkit.workloads import values

    if out.parent != path.parent:
        for name in find_external_files(onnx.load(path, load_external_data=False)):
            if not (out.parent / name).exists():
                copy(path.parent / name, out.parent / name)
    with tempfile.TemporaryDirectory(prefix="canonical-") as scratch:
        folder = Path(scratch)
        values.write(folder / "inputs.npz", arrays)
        # In the folder of `out`, where the external data is, and moved in one step: a reader never sees half of a file.
        draft = out.with_name(f".{out.stem}.draft.onnx")
        try:
            numbers = map(str, (plan.opset, plan.ir, int(plan.folds), threads))
            arguments = [str(path), str(draft), str(folder), *numbers]
            problem = run_module(_CHILD, arguments, limit_s)
            if problem:
                return [], problem
            report = json.loads((folder / "report.json").read_text())
            if draft.exists():
                draft.replace(out)
            return report["steps"], report["problem"]
        finally:
            draft.unlink(missing_ok=True)


def _keep_resizing(model: Any) -> None:
    """Resize as before opset 11: without these attributes it is another function, which the converter overlooks."""
    import onnx

    for graph in walk_graphs(model.graph):
        for node in graph.node:
            if node.op_type == "Resize" and not any(item.name.startswith("coordinate") for item in node.attribute):
                attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                node.attribute.extend(onnx.helper.make_attribute(*item) for item in attributes.items())


def _normalise(model: Any) -> None:
    """State what the version converter wants stated, and runtimes do without."""
    stated = {opset.domain for opset in model.opset_import}
    domains = {node.domain for graph in walk_graphs(model.graph) for node in graph.node}
    for domain in sorted(domains - stated - {"", "ai.onnx"}):
        model.opset_import.add(domain=domain, version=1)
    # Up to version 3 of the format every weight is an input, too: from version 4 on none has to be.
    if model.ir_version < 4 and len(find_inputs(model.graph)) + len(model.graph.initializer) != len(model.graph.input):
        model.ir_version = 4
