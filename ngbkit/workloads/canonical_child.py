"""The process of one attempt at a canonical graph: it lifts, folds and proves.

It is ``python -m ngbkit.workloads.canonical_child SOURCE TARGET FOLDER OPSET IR FOLDS THREADS``. FOLDER has the
inputs of the proof in ``inputs.npz``, and takes ``report.json`` with the steps and the problem. TARGET is written only
where the graph has changed and is proved.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.registry import find_version
from ngbkit.workloads import values
from ngbkit.workloads.canonical import FOLDER, PROVED, STORED, convert, find_opset, is_foldable, lacks_shapes, lift
from ngbkit.workloads.onnx_model import open_session
from ngbkit.workloads.onnx_traversal import find_inputs, infer_shapes

# A product of more elements than that is left to the compiler: it would only make the file larger.
_LARGEST_RESULT = 1 << 18


def main(arguments: Sequence[str]) -> None:
    """Make one attempt."""
    source, target, folder = map(Path, arguments[:3])
    opset, ir, folds, threads = map(int, arguments[3:])
    steps = rewrite(source, target, opset, ir, folds=bool(folds))
    problem = prove(source, target, values.read(folder / "inputs.npz"), threads) if target.exists() else ""
    if problem:
        target.unlink()
    (folder / "report.json").write_text(json.dumps({"steps": steps, "problem": problem}))


def rewrite(source: Path, target: Path, opset: int, ir: int = 0, *, folds: bool) -> list[str]:
    """Write the canonical graph of `source` to `target`, unless nothing changes, and return the steps."""
    import onnx

    model = onnx.load(source, load_external_data=False)
    steps = []
    is_changed = False
    if opset:
        version = find_opset(model)
        try:
            model = lift(model, opset) if version < opset else convert(model, opset)
        except ValueError as error:
            steps.append(f"opset {version} not {'lifted' if version < opset else 'lowered'}: {error}")
        else:
            steps.append(f"opset {version} to {opset} (onnx {onnx.__version__})")
            is_changed = True
    if ir:
        steps.append(f"format {model.ir_version} to {ir}")
        model.ir_version = ir
        is_changed = True
    if folds and is_foldable(model):
        fix_weights(model.graph)
        _save(infer_shapes(model), target)
        fold(target)
        model = onnx.load(target, load_external_data=False)
        target.unlink()
        steps.append(f"constants folded ({FOLDER} {find_version(FOLDER)})")
        is_changed = True
    if lacks_shapes(model):
        steps.append(f"shapes inferred (onnx {onnx.__version__})")
        is_changed = True
    if is_changed:
        _save(infer_shapes(model), target)
    return steps


def fix_weights(graph: Any) -> None:
    """Make the weights that are inputs with a default, as old files declare all of them, plain constants."""
    inputs = find_inputs(graph)
    del graph.input[:]
    graph.input.extend(inputs)


def fold(file: Path) -> None:
    """Fold constants and inline functions; no operator is fused."""
    import onnx_ir as ir
    from onnxscript import optimizer

    model = ir.load(file)
    optimizer.inline(model)
    model.ir_version = max(model.ir_version, 4)  # a constant need not be an input
    optimizer.fold_constants(
        model,
        onnx_shape_inference=True,
        output_size_limit=_LARGEST_RESULT,
        should_fold=lambda node: False if node.op_type in STORED else None,  # None is the tool's own choice
    )
    optimizer.remove_unused_nodes(model)
    ir.save(model, file)


def prove(original: Path, rewritten: Path, arrays: Mapping[str, np.ndarray], threads: int = 1) -> str:
    """Return why the second file does not compute the same as the first; if it does, state the ranks of its outputs."""
    expected, actual = (run(file, arrays, threads) for file in (original, rewritten))
    if list(expected) != list(actual):
        return f"wrong result: outputs {list(actual)}; expected {list(expected)}"
    for name, output in expected.items():
        error = measure_error(output, actual[name])
        if error > PROVED:
            return f"wrong result: output {name} has an error of {error:.3g}; expected at most {PROVED:g}"
    _state_ranks(rewritten, actual)
    return ""


def _state_ranks(file: Path, outputs: Mapping[str, Any]) -> None:
    import onnx

    model = onnx.load(file, load_external_data=False)
    if lacks_shapes(model):
        for output in model.graph.output:
            kind = output.type.tensor_type
            if output.type.WhichOneof("value") == "tensor_type" and not kind.HasField("shape"):
                # The sizes may depend on the values of these inputs: only their number is certain.
                kind.shape.SetInParent()
                for index in range(np.ndim(outputs[output.name])):
                    kind.shape.dim.add(dim_param=f"{output.name}_dim{index}")
        _save(model, file)


def measure_error(expected: Any, actual: Any) -> float:
    """Measure an output's error over the root mean square of the expected one; infinite where kinds or texts differ."""
    if not (isinstance(expected, np.ndarray) and isinstance(actual, np.ndarray)):
        return 0.0 if repr(expected) == repr(actual) else math.inf
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return math.inf
    if expected.dtype.kind not in "fc":
        return 0.0 if np.array_equal(expected, actual) else math.inf
    kind = np.result_type(expected.dtype, np.float64)
    targets, results = expected.astype(kind), actual.astype(kind)
    finite = np.isfinite(targets)
    if not np.array_equal(targets[~finite], results[~finite], equal_nan=True):
        return math.inf
    difference = np.abs(results[finite] - targets[finite])
    if not difference.any():
        return 0.0
    scale = float(np.sqrt(np.mean(np.abs(targets[finite]) ** 2)))
    error = float(np.sqrt(np.mean(difference**2))) / scale if scale else math.inf
    return math.inf if math.isnan(error) else error


def run(file: Path, arrays: Mapping[str, np.ndarray], threads: int) -> dict[str, Any]:
    """Run a file by ONNX Runtime without graph optimisations, or else by onnx's reference; outputs by name."""
    try:
        session = open_session(file, threads)
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(file))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(arrays)), strict=True))
    names = [output.name for output in session.get_outputs()]
    feeds = {value.name: arrays[value.name] for value in session.get_inputs()}
    return dict(zip(names, session.run(names, feeds), strict=True))


def _save(model: Any, file: Path) -> None:
    file.write_bytes(model.SerializeToString(deterministic=True))


if __name__ == "__main__":
    main(sys.argv[1:])
