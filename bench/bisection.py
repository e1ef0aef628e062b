"""Plants a slowdown of 5 % in one of sixteen releases of a synthetic compiler, and counts how often bisections find it.

    python bench/bisection.py measure results/bisect.jsonl              # 20 bisections with a slowdown, 20 without
    python bench/bisection.py report results/bisect.jsonl

The compiler is a plug-in whose releases are wheels in a folder, each with a number of equal products as its work: a
slow one has 5 % more of them. Every gate is a run of its own, with new processes of each release's own environment.
Finished bisections are in the file and are not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

RELEASES = tuple(f"1.{minor}.0" for minor in range(16))
WORK, SHARE = 400, 0.05
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


def write_plugin(folder: Path) -> None:
    """Write the compiler, and make it known to this process and to its children."""
    (folder / "ngbkit_planted.py").write_text(PLUGIN)
    information = folder / "ngbkit_planted-1.0.dist-info"
    information.mkdir(exist_ok=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ngbkit-planted\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[ngbkit.compilers]\nplanted = ngbkit_planted:COMPILER\n")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))


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


def write_network(path: Path) -> Path:
    """Write a network of one Relu."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def measure_bisection(number: int, *, planted: bool, repeats: int) -> dict[str, Any]:
    """Bisect once, in a state folder of its own; the slow release is drawn by the number."""
    import ngbkit

    slow_from = random.Random(number).randrange(1, len(RELEASES)) if planted else None
    with tempfile.TemporaryDirectory(prefix="ngbkit-bisect-") as scratch:
        os.environ["UV_CONFIG_FILE"] = str(write_index(Path(scratch, "index"), slow_from))
        start = time.monotonic()
        with ngbkit.set_options(state_dir=str(Path(scratch, "state"))):
            network = str(write_network(Path(scratch, "relu.onnx")))
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


def read(path: Path) -> list[dict[str, Any]]:
    """Read the finished bisections; a last line that was cut short is measured again."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def measure(path: Path, runs: int, repeats: int) -> None:
    """Measure bisections with and without a slowdown in turn, until the file has so many of each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    finished = {(record["planted"], record["number"]) for record in read(path)}
    with tempfile.TemporaryDirectory(prefix="ngbkit-plugin-") as folder:
        write_plugin(Path(folder))
        for number in range(runs):
            for planted in (True, False):
                if (planted, number) in finished:
                    continue
                record = measure_bisection(number, planted=planted, repeats=repeats)
                with path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
                print(json.dumps(record), flush=True)


def report(records: Sequence[dict[str, Any]]) -> None:
    """Print how many bisections have the right answer, a wrong one, or none, and what they took."""
    print("planted  bisections  right  wrong release  not conclusive  most gates  mean gates  s each")
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
    parser.add_argument("action", choices=("measure", "report"))
    parser.add_argument("path", type=Path, help="the bisections, one a line of JSON")
    parser.add_argument("--runs", type=int, default=20, help="bisections of each kind (default: 20)")
    parser.add_argument("--repeats", type=int, default=100, help="samples of a column (default: 100)")
    args = parser.parse_args()
    if args.action == "measure":
        measure(args.path, args.runs, args.repeats)
    report(read(args.path))


if __name__ == "__main__":
    main()
