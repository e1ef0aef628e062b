"""Plants regressions of known size, and counts how often gates and bisections find them, and alarm without one.

    python bench/gate.py gates results/gate.jsonl                    # 0 and 5 %, 20 gates each
    python bench/gate.py gates results/gate.jsonl --shares 0.02,0.03 # the limit
    python bench/gate.py bisections results/bisect.jsonl             # 20 bisections with a slowdown, 20 without

Finished ones are in the file and are not measured again; with `--report` none is measured.

Gates: a network of `LAYERS` equal layers is compared with one of a few layers more, so that a share of the work of a
call is planted, and nothing else; its size in time is also measured without ngbkit, by a loop over two sessions of ONNX
Runtime. Every gate is a run of its own: new processes, new rounds. The report judges the stored intervals at several
margins.

Bisections: one of sixteen releases of a synthetic compiler, and all after it, take 5 % more work. The compiler is a
plug-in whose releases are wheels in a folder, each with a number of equal products as its work. Every gate is a run of
its own, with new processes of each release's own environment.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from json_lines import append, read
from onnx import TensorProto, helper, numpy_helper
from plugin_path import put_on_path, write_plugin

from ngbkit import set_options
from ngbkit.api import build_gate_sweep
from ngbkit.device.timing.normal import LEVEL
from ngbkit.hardware import environment
from ngbkit.metrics.gates.gate import judge
from ngbkit.metrics.gates.sides import judge_sides

LAYERS, CHANNELS, SIZE = 100, 16, 28
COMPILERS = ("onnxruntime", "openvino")
SHARES = (0.0, 0.05)
MARGINS = (0.0, 0.01, 0.02, 0.03)
_DIRECT_CALLS = 300
RELEASES = tuple(f"1.{minor}.0" for minor in range(16))
WORK, SHARE = 400, 0.05
RELU = '<ir_version: 10, opset_import: ["": 20]> relu (float[batch, 8] x) => (float[batch, 8] y) { y = Relu(x) }'
PLUGIN = """
import numpy as np
from ngbkit.compilers.base import Compiler, Program
from ngbkit.sweep.records import Contract


def compile(task):
    import plantedruntime

    matrix = np.ones((48, 48), np.float32)

    def run():
        for _ in range(plantedruntime.WORK):
            np.dot(matrix, matrix)
        return np.maximum(task.arrays[0], 0)

    return Program(
        run=run,
        fetch=lambda output: [output],
        contract=Contract(runtime="plantedruntime", precision="f32", threads=task.threads),
    )


COMPILER = Compiler(
    name="planted",
    summary="does work of a known size",
    forms={"onnx": ()},
    packages=("plantedruntime",),
    install="pip install plantedruntime",
    compile=compile,
    distribution="plantedruntime",
)
"""


def write_network(path: Path, layers: int) -> Path:
    """Write a stack of equal convolutions; a longer one begins with the weights of a shorter one."""
    generator = np.random.default_rng(0)
    scale = np.sqrt(2 / (CHANNELS * 9))
    nodes, weights, value = [], [], "x"
    for layer in range(layers):
        kernel = generator.standard_normal((CHANNELS, CHANNELS, 3, 3)) * scale
        weights.append(numpy_helper.from_array(kernel.astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("Conv", [value, f"w{layer}"], [f"c{layer}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{layer}"], [value := f"r{layer}"]))
    shape: list[str | int | None] = ["batch", CHANNELS, SIZE, SIZE]
    graph = helper.make_graph(
        nodes,
        "stack",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, shape)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def time_directly(before: Path, after: Path) -> float:
    """Return the ratio of the later network's time to the earlier one's, by two sessions of ONNX Runtime in turns."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = environment.count_usable_cores()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    sessions = [onnxruntime.InferenceSession(path, options, ["CPUExecutionProvider"]) for path in (before, after)]
    array = np.random.default_rng(0).standard_normal((1, CHANNELS, SIZE, SIZE)).astype(np.float32)
    seconds = np.empty((_DIRECT_CALLS, 2))
    for call in range(_DIRECT_CALLS):
        for side in (0, 1) if call % 2 else (1, 0):
            start = time.perf_counter()
            sessions[side].run(None, {"x": array})
            seconds[call, side] = time.perf_counter() - start
    return float(np.median(seconds[10:, 1] / seconds[10:, 0]))


def measure_gate(folder: Path, share: float, repeats: int) -> dict[str, Any]:
    """Measure one gate with new processes."""
    before, after = (folder / f"stack-{round(LAYERS * (1 + extra))}.onnx" for extra in (0.0, share))
    for path in (before, after):
        if not path.exists():
            write_network(path, int(path.stem.rpartition("-")[2]))
    direct, began = time_directly(before, after), time.monotonic()
    sweep = build_gate_sweep(str(before), str(after), compilers=COMPILERS, repeats=repeats, min_rounds=30)
    gate = judge_sides(sweep.run(), 0.0)
    columns = ["compiler", "slowdown", "low", "high", "rounds", "conclusive", "verdict", "reason"]
    trials = gate.trials[[name for name in columns if name in gate.trials]].to_dict("records")
    return {"share": share, "seconds": time.monotonic() - began, "direct": direct, "repeats": repeats, "trials": trials}


def write_index(folder: Path, slow_from: int | None) -> Path:
    """Write a wheel of each release, those from one place on with more work; return the settings of uv."""
    folder.mkdir(parents=True, exist_ok=True)
    for place, release in enumerate(RELEASES):
        work = round(WORK * (1 + SHARE)) if slow_from is not None and place >= slow_from else WORK
        information = f"plantedruntime-{release}.dist-info"
        with zipfile.ZipFile(folder / f"plantedruntime-{release}-py3-none-any.whl", "w") as wheel:
            wheel.writestr("plantedruntime.py", f"WORK = {work}\n")
            wheel.writestr(
                f"{information}/METADATA", f"Metadata-Version: 2.1\nName: plantedruntime\nVersion: {release}\n"
            )
            wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{information}/RECORD", "")
    settings = folder / "uv.toml"
    settings.write_text(f'[pip]\nfind-links = ["{folder}"]\n')
    return settings


def measure_bisection(number: int, *, planted: bool, repeats: int) -> dict[str, Any]:
    """Bisect once, in a state folder of its own; the slow release is drawn by the number."""
    import ngbkit

    slow_from = random.Random(number).randrange(1, len(RELEASES)) if planted else None
    with tempfile.TemporaryDirectory(prefix="ngbkit-bisect-") as scratch:
        os.environ["UV_CONFIG_FILE"] = str(write_index(Path(scratch, "index"), slow_from))
        start = time.monotonic()
        with ngbkit.set_options(state_dir=str(Path(scratch, "state"))):
            network = str(Path(scratch, "relu.onnx"))
            onnx.save(onnx.parser.parse_model(RELU), network)
            result = ngbkit.bisect(
                network, "planted", good=RELEASES[0], bad=RELEASES[-1], repeats=repeats, threads=1, report=print
            )
            from ngbkit.cluster import engines

            engines.close()
    right = ("slower", (RELEASES[slow_from],)) if slow_from is not None else ("not slower", ())
    return {
        "planted": planted,
        "number": number,
        "right": (result.verdict, result.suspects) == right,
        "verdict": result.verdict,
        "suspects": result.suspects,
        "slow": None if slow_from is None else RELEASES[slow_from],
        "slowdown": result.slowdown,
        "gates": len(result.gates),
        "contended": sum(not step.conclusive for step in result.gates),
        "seconds": time.monotonic() - start,
    }


def measure_gates(path: Path, shares: Sequence[float], runs: int, repeats: int) -> None:
    """Measure gates until the file has `runs` of each share, the shares in turn."""
    folder, counts = path.with_suffix(""), Counter(record["share"] for record in read(path))
    folder.mkdir(parents=True, exist_ok=True)
    missing = [share for number in range(runs) for share in shares if counts[share] <= number]
    with set_options(state_dir=str(folder / "state")):
        for share in missing:
            append(path, measure_gate(folder, share, repeats))


def measure_bisections(path: Path, runs: int, repeats: int) -> None:
    """Measure bisections with and without a slowdown in turn, until the file has so many of each."""
    finished = {(record["planted"], record["number"]) for record in read(path)}
    cases = [(is_planted, number) for number in range(runs) for is_planted in (True, False)]
    with tempfile.TemporaryDirectory(prefix="ngbkit-plugin-") as folder:
        write_plugin(Path(folder), "ngbkit.compilers", "planted", PLUGIN, "COMPILER")
        put_on_path(Path(folder))
        for is_planted, number in cases:
            if (is_planted, number) not in finished:
                append(path, measure_bisection(number, planted=is_planted, repeats=repeats))


def judge_record(record: dict[str, Any], margin: float) -> list[str]:
    """The verdicts of a stored gate at another margin."""
    names = ("slowdown", "low", "high", "rounds", "conclusive")
    slowdown, low, high, rounds, conclusive = ([trial[name] for trial in record["trials"]] for name in names)
    verdicts = judge(slowdown, low, high, rounds=rounds, level=LEVEL, conclusive=conclusive, margin=margin)
    return [str(verdict) for verdict in verdicts]


def report_gates(path: Path) -> None:
    """Print how many gates alarm, by planted share and margin."""
    records = read(path)
    names = [f"alarms at {margin:.0%}" for margin in MARGINS]
    print("  ".join(["planted", "measured", "directly", "gates", "s a gate", *names, "inconclusive at 2%"]))
    for share in sorted({record["share"] for record in records}):
        gates = [record for record in records if record["share"] == share]
        slowdown = np.median([trial["slowdown"] for gate in gates for trial in gate["trials"]]) - 1
        direct = np.median([gate["direct"] for gate in gates]) - 1
        alarms = [sum("slower" in judge_record(gate, margin) for gate in gates) for margin in MARGINS]
        seconds = np.mean([gate["seconds"] for gate in gates])
        inconclusive = sum("not conclusive" in judge_record(gate, 0.02) for gate in gates)
        counts = "  ".join(f"{count:>12}" for count in alarms)
        line = f"{share:>7.1%}  {slowdown:>8.2%}  {direct:>8.2%}  {len(gates):>5}  {seconds:>8.1f}  {counts}"
        print(f"{line}  {inconclusive:>15}")


def report_bisections(path: Path) -> None:
    """Print how many bisections have the right answer, a wrong one, or none, and what they took."""
    print("planted  bisections  right  wrong release  not conclusive  most gates  mean gates  s each")
    records = read(path)
    for planted in (True, False):
        part = [record for record in records if record["planted"] == planted]
        if not part:
            continue
        right = sum(record["right"] for record in part)
        wrong = sum(not record["right"] and record["verdict"] == "slower" for record in part)
        gates = [record["gates"] for record in part]
        means = [sum(record[name] for record in part) / len(part) for name in ("gates", "seconds")]
        print(
            f"{SHARE if planted else 0.0:>7.0%}  {len(part):>10}  {right:>5}  {wrong:>13}  "
            f"{len(part) - right - wrong:>14}  {max(gates):>10}  {means[0]:>10.1f}  {means[1]:>6.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("gates", "bisections"))
    parser.add_argument("path", type=Path, help="the results, one a line of JSON")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)), help="planted shares of the work of a call")
    parser.add_argument("--runs", type=int, default=20, help="gates of each share, or bisections of each kind")
    parser.add_argument("--repeats", type=int, default=0, help="samples of a trial (default: 120, of bisections 100)")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if args.action == "gates":
        if not args.report:
            measure_gates(args.path, [float(share) for share in args.shares.split(",")], args.runs, args.repeats or 120)
        report_gates(args.path)
    else:
        if not args.report:
            measure_bisections(args.path, args.runs, args.repeats or 100)
        report_bisections(args.path)


if __name__ == "__main__":
    main()
