"""Count the node cases of the onnx package that ngbkit accepts and measures, and those on which the runtimes agree.

    python tests/bench/node_cases.py FOLDER --seed 1 --cases 300

The package onnx has about 1,900 cases of single operators for tests of runtimes, each a model with inputs. This draws
some by a seed, writes each as a folder with ``model.onnx`` and ``test_data_set_0/input_0.pb``, and counts those that
ONNX Runtime itself runs, called directly in a child process. Of these it prints how many ngbkit accepts with
``--inputs FOLDER/test_data_set_0``, how many it measures at the sizes of the case, in how many `identity` and
`onnxruntime` agree, and how many are not checked; and a reason for each of the rest. Results stay in FOLDER: a second
call continues, and a call that is complete prints the table again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from json_lines import append, read
from onnx.backend.test.case.node import collect_testcases

from ngbkit.api import Sweep
from ngbkit.cluster import engines
from ngbkit.errors import NgbkitError
from ngbkit.workloads import onnx as onnx_source
from ngbkit.workloads.base import Workload

COMPILERS = ("identity", "onnxruntime")
DATA = "test_data_set_0"
SWEEP_CASES = 50
MEASURED = ("ok", "not-checked")
_CRASH = re.compile(r"SIG[A-Z]+|crashed|died|killed", re.IGNORECASE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where cases, results and the state of ngbkit are")
    parser.add_argument("--seed", type=int, default=1, help="draws the cases")
    parser.add_argument("--cases", type=int, default=300, help="how many to draw")
    parser.add_argument("--direct", nargs="+", metavar="CASE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    cases = draw_cases(args.seed, args.cases)
    if args.direct:
        run_directly(cases, args.direct)
        return
    folder = args.folder.absolute()
    os.environ.setdefault("NGBKIT_STATE_DIR", str(folder / "state"))
    for name, case in cases.items():
        write_case(folder / name, case.model, case.data_sets)
    words = [str(folder), "--seed", str(args.seed), "--cases", str(args.cases)]
    file = folder / "results.jsonl"
    finished = {result["name"] for result in read(file)}
    missing = [name for name in cases if name not in finished]
    for start in range(0, len(missing), SWEEP_CASES):
        part = missing[start : start + SWEEP_CASES]
        errors = call_children(words, part)
        measured = measure(folder, [name for name in part if not errors[name]])
        for name in part:
            append(file, {"name": name, "direct": errors[name], **measured.get(name, {})})
    engines.close()
    print(f"seed {args.seed}, {len(cases)} cases")
    print_table([result for result in read(file) if result["name"] in cases and not result["direct"]])


def draw_cases(seed: int, count: int) -> dict[str, Any]:
    """Draw cases by a seed, and return each by its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the expected outputs of some cases overflow on purpose
        cases = {case.name: case for case in collect_testcases()}
    return {name: cases[name] for name in random.Random(seed).sample(sorted(cases), count)}


def write_case(folder: Path, model: Any, data_sets: Any) -> None:
    """Write the model and the inputs of its first data set as a folder of the ONNX tests."""
    data = folder / DATA
    data.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    inputs, _ = data_sets[0]
    for index, (value, info) in enumerate(zip(inputs, model.graph.input, strict=False)):
        (data / f"input_{index}.pb").write_bytes(convert_value(value, info.name).SerializeToString())


def convert_value(value: Any, name: str) -> Any:
    """Convert a value of a case to the message that an ONNX test folder has of it."""
    if isinstance(value, onnx.TensorProto):
        return value
    if value is None:
        return onnx.numpy_helper.from_optional(None, name)
    if isinstance(value, list):
        return onnx.numpy_helper.from_list(value, name)
    return onnx.numpy_helper.from_array(np.asarray(value), name)


def call_children(words: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Run cases by ONNX Runtime in child processes; return the error of each, ``""`` where it runs."""
    errors: dict[str, str] = {}
    while missing := [name for name in names if name not in errors]:
        command = [sys.executable, __file__, *words, "--direct", *missing]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in child.stdout.splitlines() if line.startswith("[")]
        errors |= dict(lines)
        if len(lines) < len(missing):
            errors[missing[len(lines)]] = f"the child ended with {child.returncode}"
    return errors


def run_directly(cases: Mapping[str, Any], names: Sequence[str]) -> None:
    """Run cases by ONNX Runtime in this process, and print a line of JSON for each."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    for name in names:
        try:
            model, (values, _) = cases[name].model, cases[name].data_sets[0]
            session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
            needed = {entry.name for entry in session.get_inputs()}
            pairs = zip(model.graph.input, values, strict=False)
            call(session, {info.name: to_feed(value, info.name) for info, value in pairs if info.name in needed})
            error = ""
        except Exception as exception:  # noqa: BLE001  a runtime may raise anything
            error = f"{type(exception).__name__}: {' '.join(str(exception).split())[:300]}"
        print(json.dumps([name, error]), flush=True)


def to_feed(value: Any, name: str) -> Any:
    """Convert a value of a case as ONNX Runtime takes it, with types beyond NumPy's as values of its own."""
    from onnxruntime import OrtValue

    if value is None or isinstance(value, list):
        return value
    tensor = convert_value(value, name)
    array = onnx.numpy_helper.to_array(tensor)
    is_plain = array.dtype.isbuiltin == 1
    return array if is_plain else OrtValue.ortvalue_from_numpy_with_onnx_type(array, tensor.data_type)


def call(session: Any, feed: Mapping[str, Any]) -> None:
    """Call a session; outputs of types beyond NumPy's, such as float8, remain values of ONNX Runtime."""
    from onnxruntime import OrtValue

    try:
        session.run(None, feed)
    except RuntimeError as error:
        if "No corresponding Numpy type" not in str(error):
            raise
        values = {
            name: OrtValue.ortvalue_from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in feed.items()
        }
        session.run_with_ort_values(None, values)


def measure(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Measure cases on one engine; return the refusal of each, or the status and reason by compiler."""
    results: dict[str, dict[str, Any]] = {}
    groups: dict[int, list[Workload]] = {}
    for name in names:
        try:
            workload, batch_size = describe(folder / name)
        except Exception as error:  # noqa: BLE001  a traceback is a fault of ngbkit, and a row of the table
            kind = "" if isinstance(error, NgbkitError) else f"traceback: {type(error).__name__}: "
            results[name] = {"refusal": f"{kind}{error}"}
        else:
            groups.setdefault(batch_size, []).append(workload)
    for batch_size, workloads in groups.items():
        run = Sweep(workloads, COMPILERS, [batch_size], repeats=1, threads=1, patience=0).start()
        run.wait()
        for record in run.records():
            trial = run.trial(record.trial_id)
            results.setdefault(trial.workload, {})[trial.compiler] = [record.status, record.error]
    return results


def describe(case: Path) -> tuple[Workload, int]:
    """Describe a case as a workload with its values, and return its own batch size."""
    workload = onnx_source.file(case / "model.onnx", name=case.name)
    if workload.takes:
        workload = workload.with_factors({name: [size] for name, size in find_sizes(case, workload).items()})
    batch_size = int(workload.spec["batch_size"] or find_sizes(case, workload)["batch"])
    return Sweep(workload, COMPILERS, [batch_size], inputs=case / DATA).workloads[0], batch_size


def find_sizes(case: Path, workload: Workload) -> dict[str, int]:
    """Find the values of the batch and of factors in the arrays of a case."""
    sizes: dict[str, int] = {}
    for path, spec in zip(sorted((case / DATA).iterdir()), workload.inputs, strict=False):
        dims = onnx.TensorProto.FromString(path.read_bytes()).dims
        sizes |= {str(side): int(size) for side, size in zip(spec.shape, dims, strict=False) if isinstance(side, str)}
    return sizes


def print_table(results: Sequence[Mapping[str, Any]]) -> None:
    """Print the counts, and the cases that are not counted as agreeing, each with its reason."""
    accepted = [result for result in results if "refusal" not in result]
    rows = [[result.get(compiler, ["lost", ""]) for compiler in COMPILERS] for result in accepted]
    statuses = [[status for status, _ in row] for row in rows]
    counts = {
        "run by ONNX Runtime directly": len(results),
        "accepted": len(accepted),
        "measured": sum(all(status in MEASURED for status in row) for row in statuses),
        "agree": sum(all(status == "ok" for status in row) for row in statuses),
        "not checked": sum("not-checked" in row for row in statuses),
        "not equivalent": sum("not-equivalent" in row for row in statuses),
        "crashed": sum(any(_CRASH.search(reason) for _, reason in row) for row in rows),
    }
    for label, count in counts.items():
        print(f"{label:30} {count:5} {count / max(len(results), 1):7.1%}")
    for result in results:
        reasons = {f"{status}: {reason}" for status, reason in (result.get(name, ["lost", ""]) for name in COMPILERS)}
        reasons = {f"refused: {result['refusal']}"} if "refusal" in result else reasons - {"ok: "}
        for reason in reasons:
            print(f"  {result['name']}: {' '.join(reason.split())[:220]}")


if __name__ == "__main__":
    main()
