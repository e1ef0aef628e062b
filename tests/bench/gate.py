"""Plants regressions of known size, and counts how often gates find them, and alarm without one.

    python tests/bench/gate.py results/gate.jsonl                    # 0 and 5 %, 20 gates each
    python tests/bench/gate.py results/gate.jsonl --shares 0.02,0.03 # the limit

Finished ones are in the file and are not measured again; with `--report` none is measured. A network of `LAYERS` equal
layers is compared with one of a few layers more, so that a share of the work of a call is planted, and nothing else;
its size in time is also measured without ngbkit, by a loop over two sessions of ONNX Runtime. Every gate is a run of
its own: new processes, new rounds. The report judges the stored intervals at several margins.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from json_lines import append, read
from onnx import TensorProto, helper, numpy_helper

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


def measure_gates(path: Path, shares: Sequence[float], runs: int, repeats: int) -> None:
    """Measure gates until the file has `runs` of each share, the shares in turn."""
    folder, counts = path.with_suffix(""), Counter(record["share"] for record in read(path))
    folder.mkdir(parents=True, exist_ok=True)
    missing = [share for number in range(runs) for share in shares if counts[share] <= number]
    with set_options(state_dir=str(folder / "state")):
        for share in missing:
            append(path, measure_gate(folder, share, repeats))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="the results, one a line of JSON")
    parser.add_argument("--shares", default=",".join(map(str, SHARES)), help="planted shares of the work of a call")
    parser.add_argument("--runs", type=int, default=20, help="gates of each share (default: 20)")
    parser.add_argument("--repeats", type=int, default=120, help="samples of a trial (default: 120)")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    args = parser.parse_args()
    if not args.report:
        measure_gates(args.path, [float(share) for share in args.shares.split(",")], args.runs, args.repeats)
    report_gates(args.path)


if __name__ == "__main__":
    main()
