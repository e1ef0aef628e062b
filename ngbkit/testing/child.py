"""The child processes of the suite: they prepare the cases, or compile and call each of them, once or once more."""

from __future__ import annotations

import json
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import numpy as np

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Form, Program, Task, Tuning
from ngbkit.device.isolation.profiling import ProfiledTurns, build_refusal
from ngbkit.errors import UnsupportedError
from ngbkit.hardware.accelerators import cuda
from ngbkit.testing.networks import NETWORKS, run_reference
from ngbkit.workloads import feeds
from ngbkit.workloads.base import BATCH, TensorSpec
from ngbkit.workloads.export import export_for

BATCH_SIZES = (1, 3)
THREADS = 2
PROFILED_ROUNDS, PROFILED_CALLS = 2, 2
UNKNOWN_OPERATOR = "unknown_operator"
RESULTS, RECOMPILED, SOURCES = "results.json", "recompiled.json", "sources.json"


def resolve(reference: str) -> Compiler:
    """Return the compiler of an entry point, or of ``"package.module:ATTRIBUTE"``."""
    if ":" in reference:
        compiler = metadata.EntryPoint(name=reference, value=reference, group=registry.COMPILERS).load()
    else:
        compiler = registry.load(registry.COMPILERS, reference)
    return cast(Compiler, compiler)


def load_arrays(cases: Path, network: str, batch_size: int, kind: str) -> list[np.ndarray]:
    """Load the arrays of one case whose names start with `kind`, ``"input"`` or ``"output"``, in order."""
    with np.load(_build_path(cases, network, batch_size, ".npz")) as stored:
        return [stored[name] for name in stored.files if name.startswith(kind)]


def prepare(folder: str) -> None:
    """Write ``<network>/batch-<size>`` as .onnx and .npz for every case."""
    for name, build in NETWORKS.items():
        network, subfolder = build(), Path(folder, name)
        subfolder.mkdir()
        export_for(network, subfolder, BATCH_SIZES, seed=0)
        for batch_size in BATCH_SIZES:
            arrays = feeds.draw(network.inputs, network.examples, batch_size, seed=0)
            _save(
                _build_path(folder, name, batch_size, ".npz"),
                {"input": arrays, "output": run_reference(network, arrays)},
            )
    _write_unknown_operator(folder)


def compile_all(reference: str, form: Form, cases: str, out: str, accelerator: str) -> None:
    """Compile and call every case of one form, and write the results and the outputs of each.

    The cases of a network share a cache, as the trials of a workload do. Choices refused together are tried alone.
    """
    compiler = resolve(reference)
    cuda.set_cache(Path(out, "cache-cuda"))
    results: list[dict[str, Any]] = []

    def add_result(case: dict[str, Any]) -> None:
        result = _attempt(compiler, case, Path(cases), Path(out), str(len(results)), accelerator)
        if result.get("refused") and len(case["options"]) > 1:
            for name, choice in case["options"].items():
                add_result({**case, "options": {name: choice}})
        else:
            results.append({**case, **result})

    for case in _list_cases(compiler, form):
        add_result(_build_case(*case, form))
    for result in results:
        result["torch_imported"] = "torch" in sys.modules
    Path(out, RESULTS).write_text(json.dumps(results))
    _add_sources(Path(out))


def compile_again(reference: str, form: Form, cases: str, out: str, accelerator: str) -> None:
    """Compile the first case once more, with the caches that `compile_all` left in `out`."""
    compiler = resolve(reference)
    cuda.set_cache(Path(out, "cache-cuda"))
    case = _build_case(*next(_list_cases(compiler, form)), form)
    result = _attempt(compiler, case, Path(cases), Path(out), "0-again", accelerator)
    Path(out, RECOMPILED).write_text(json.dumps({"0": result}))
    _add_sources(Path(out))


def _add_sources(out: Path) -> None:
    """Add the files of all loaded modules to ``sources.json``, except installed and generated ones."""
    earlier = json.loads((out / SOURCES).read_text()) if (out / SOURCES).exists() else []
    excluded = (*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), str(out))
    files = {getattr(module, "__file__", None) for module in tuple(sys.modules.values())}
    sources = {str(file) for file in files if file and not str(file).startswith(excluded)}
    (out / SOURCES).write_text(json.dumps(sorted({*earlier, *sources})))


def _build_path(cases: str | Path, network: str, batch_size: int, suffix: str) -> Path:
    return Path(cases, network, f"batch-{batch_size}{suffix}")


def _save(path: Path, groups: Mapping[str, Sequence[np.ndarray]]) -> None:
    entries = {f"{group}.{index}": array for group, arrays in groups.items() for index, array in enumerate(arrays)}
    np.savez(path, **cast("dict[str, Any]", entries))


def _write_unknown_operator(folder: str) -> None:
    import onnx

    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in ("input", "output")]
    node = onnx.helper.make_node("Frobnicate", ["input"], ["output"], domain="nobody")
    graph = onnx.helper.make_graph([node], "unknown", values[:1], values[1:])
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid("nobody", 1)]
    Path(folder, UNKNOWN_OPERATOR).mkdir()
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10)
    onnx.save(model, _build_path(folder, UNKNOWN_OPERATOR, 1, ".onnx"))
    _save(_build_path(folder, UNKNOWN_OPERATOR, 1, ".npz"), {"input": [np.ones((1, 4), np.float32)]})


def _list_cases(compiler: Compiler, form: Form) -> Iterator[tuple[str, int, dict[str, Any]]]:
    first, *others = NETWORKS
    for batch_size in BATCH_SIZES:
        yield first, batch_size, {}
    for name in others:
        yield name, BATCH_SIZES[-1], {}
    choices = (
        [(name, choice) for choice in reversed(option.choices) if choice != option.default]
        for name, option in compiler.options.items()
    )
    for combination in zip_longest(*choices):
        yield first, BATCH_SIZES[0], dict(filter(None, combination))
    if form == "onnx":
        yield UNKNOWN_OPERATOR, 1, {}


def _build_case(network: str, batch_size: int, options: Mapping[str, Any], form: Form) -> dict[str, Any]:
    return {"network": network, "batch_size": batch_size, "form": form, "options": options}


def _is_profiled(case: Mapping[str, Any]) -> bool:
    """Return whether the case is profiled, one of each network: some compilers compile anew for it."""
    return not case["options"] and case["batch_size"] == BATCH_SIZES[-1]


def _attempt(
    compiler: Compiler, case: Mapping[str, Any], cases: Path, out: Path, name: str, accelerator: str
) -> dict[str, Any]:
    try:
        task = _build_task(compiler, case, cases, out / f"cache-{case['network']}", accelerator)
        program = compiler.compile(task)
        calls = {"0": program.fetch(program.run())}
        with program.within():
            calls["1"] = program.fetch(program.run())
            _check_memory(program, task)
    except Exception as error:  # noqa: BLE001  a compiler may raise anything, and the suite reports it
        message = f"{type(error).__name__}: {error}"
        refused = isinstance(error, UnsupportedError) or any(
            re.search(pattern, message) for pattern in compiler.refusals
        )
        return {"error": message, "refused": refused, "detail": traceback.format_exc()}
    _save(out / f"{name}.npz", calls)
    contract = asdict(program.contract)
    return {
        "contract": contract,
        **_collect_json("facts", lambda: program.facts),
        **_collect_json("explained", program.explain),
        **(_collect_json("profile", lambda: _profile(program)) if _is_profiled(case) else {}),
    }


def _check_memory(program: Program, task: Task) -> None:
    """Check that a call reads what was written to the memory of a program, as if it had been fed; ValueError if not."""
    if not program.memory or program.feed is None:
        return
    before = [array.copy() for array in task.arrays]
    other = [np.ascontiguousarray(np.flip(array)) for array in before]
    runs = []
    for feed in (program.feed, lambda arrays: _write(program, arrays)):
        feed(before)
        program.run()
        feed(other)
        runs.append([np.array(output) for output in program.fetch(program.run())])
        program.feed(before)
    if not all(np.array_equal(expected, got) for expected, got in zip(*runs, strict=True)):
        raise ValueError("invalid memory: a call reads other values than those that were written; expected the same.")


def _write(program: Program, arrays: Sequence[np.ndarray]) -> None:
    for targets, array in zip(program.memory, arrays, strict=True):
        for target in targets:
            target[...] = array


def _profile(program: Program) -> dict[str, Any]:
    """Profile a few calls of a program; a profiler that is unsupported here has no kernels, and a note."""
    if program.profile is None:
        return {}
    with program.within():
        try:
            turns = ProfiledTurns(program, program.profile())
        except UnsupportedError as error:
            return build_refusal(str(error))
        for _ in range(PROFILED_ROUNDS):
            turns.time_turn(PROFILED_CALLS, settle=1)
        return turns.to_json()


def _collect_json(name: str, collect: Callable[[], Any]) -> dict[str, Any]:
    """Return the value of `collect` under a name, or why it is not plain JSON."""
    try:
        return {name: json.loads(json.dumps(collect(), allow_nan=False))}
    except Exception as error:  # noqa: BLE001  any exception is the finding
        return {f"{name}_problem": f"{type(error).__name__}: {error}"}


def _build_task(compiler: Compiler, case: Mapping[str, Any], cases: Path, cache: Path, accelerator: str) -> Task:
    cache.mkdir(exist_ok=True)
    name, batch_size, form = case["network"], case["batch_size"], case["form"]
    arrays = load_arrays(cases, name, batch_size, "input")
    return Task(
        form=form,
        module=NETWORKS[name]().module if form == "module" else None,
        onnx=_build_path(cases, name, batch_size, ".onnx") if form == "onnx" else None,
        inputs=[TensorSpec(name="input", shape=(BATCH, *array.shape[1:]), dtype=str(array.dtype)) for array in arrays],
        arrays=arrays,
        batch_size=batch_size,
        options=compiler.settle(case["options"]),
        threads=THREADS,
        cache=cache,
        accelerator=accelerator,
        tuning=Tuning(folder=cache.with_name(f"{cache.name}-tuning")),
    )
