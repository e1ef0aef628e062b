"""Tries everything that ngbkit does with an NVIDIA GPU on a real one, in parts that several short calls can finish.

    python tests/bench/gpu.py --minutes 9 [--state FOLDER] [--only PART,…] [--again 'sweep*']

It needs this checkout and the packages that are there. Each part leaves one JSON file in the state folder, and a part
that is finished does not run again: copy the folder to another machine to go on there.

    machine       the GPU, its driver, the compilers that work, and what the others lack
    conformance   ngbkit's suite, with accelerator="cuda", of each compiler
    clocks        CUDA events against the host's clock, and the L2 flush
    graphs        a network as a CUDA graph: its outputs, and its time over that of plain launches
    precision     f32 against tf32: products and convolutions compared with float64
    energy        the meter against the GPU's own counter
    fallback      work on the CPU in place of the GPU is found
    memory        the status of a network that does not fit
    sweep         the paper's five smallest networks at six batch sizes; `gpu_sweep.py` collects it, and all that follow
    sweep-conv, sweep-mha    both blocks at depths 1 to 6, with CUDA graphs and without: 20 to 30 s each
    sweep-inductor, sweep-precisions, sweep-tvm    torch.compile, lower precisions, and TVM, tuned and not

The exit status is 1 if a part failed, and 2 if some are left to do.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # ngbkit may not be installed
from gpu_sweep import RUNS  # noqa: E402

CHECKED = {
    "clocks": ("identity", "torchscript", "inductor", "onnxruntime", "tensorrt-rtx", "tensorrt"),
    "graphs": ("onnxruntime", "tensorrt-rtx", "tensorrt"),
    "precision": (
        *("identity", "torchscript", "inductor", "aotinductor"),
        *("onnxruntime", "tvm", "tensorrt-rtx", "tensorrt"),
    ),
    "energy": ("identity",),
    "memory": ("identity", "onnxruntime"),
}
SUITE = """from ngbkit.testing import CompilerConformance

class TestOnCuda(CompilerConformance):
    compiler = "{compiler}"
    accelerator = "cuda"
"""
#: A part that cannot have this long is left for the next call, and a stopped sweep has this long to end.
LEAST_S, STOPPING_S = 15.0, 25.0
Result = dict[str, Any]


@dataclass
class Session:
    """One call: its state folder, and the time that it ends."""

    state: Path
    ends: float

    @property
    def left_s(self) -> float:
        return self.ends - time.monotonic()

    def locate(self, part: str) -> Path:
        return self.state / "parts" / f"{part}.json"

    def run(self, command: list[str], stopping_s: float = 0.0) -> subprocess.CompletedProcess[str]:
        """Run a command; one that may stop in order is interrupted in time, and any other raises TimeoutExpired."""
        process = subprocess.Popen(
            [sys.executable, *command],
            env=build_environment(),
            stdout=subprocess.PIPE,
            stderr=None if stopping_s else subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, errors = process.communicate(timeout=max(1.0, self.left_s - stopping_s))
        except subprocess.TimeoutExpired:
            try:
                if not stopping_s:
                    raise
                process.send_signal(signal.SIGINT)  # it ends after the trial that it is at
                output, errors = process.communicate(timeout=stopping_s)
            except subprocess.TimeoutExpired:
                # Its children too: a suite compiles in processes of its own.
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)


def build_environment() -> dict[str, str]:
    """Build the environment of the parts: this checkout, and CUDA's libraries of all folders of packages."""
    # A library in one folder of packages does not look for CUDA's in another.
    folders = [str(folder) for path in sys.path for folder in sorted(Path(path).glob("nvidia/*/lib"))]
    joined = {"PYTHONPATH": [str(ROOT)], "LD_LIBRARY_PATH": folders}
    return {
        **os.environ,
        **{name: os.pathsep.join(filter(None, [*parts, os.environ.get(name)])) for name, parts in joined.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="when to end, whatever is left (default: 9)")
    parser.add_argument("--state", type=Path, default=ROOT / "results" / "gpu", help="where results are stored")
    parser.add_argument("--only", default="*", metavar="PARTS", help="run these parts only, such as 'sweep*,clocks-*'")
    parser.add_argument("--again", default="", metavar="PARTS", help="run these parts again")
    args = parser.parse_args()
    session = Session(args.state, time.monotonic() + 60 * args.minutes)
    for path in (args.state / "parts").glob("*.json"):
        if is_selected(path.stem, args.again):
            path.unlink()
    results, left = run_parts(session, args.only)
    failed = [part for part, result in results.items() if not result["ok"]]
    print(f"failed: {', '.join(failed) or 'none'}; left: {', '.join(left) or 'none'}")
    sys.exit(1 if failed else 2 if left else 0)


def is_selected(part: str, patterns: str) -> bool:
    return any(fnmatch(part, pattern) for pattern in patterns.split(","))


def run_parts(session: Session, only: str) -> tuple[dict[str, Result], list[str]]:
    """Run the parts that are not finished until the time is up; return all results, and the parts that are left."""
    # It costs seconds, and says what the packages of this call have made available.
    session.locate("machine").unlink(missing_ok=True)
    results = {"machine": load_or_run(session, "machine") or {"ok": False}}
    machine = results["machine"].get("data", {})
    for name, reason in machine.get("unavailable", {}).items():
        print(f"lacking  {name:26} {'':8}  {reason}", flush=True)
    if not machine.get("gpu"):
        return results, ["everything: this machine has no GPU that works"]
    left = []
    for part in list_parts(machine["available"]):
        if is_selected(part, only):
            result = load_or_run(session, part)
            results |= {part: result} if result else {}
            left += [] if result else [part]
    return results, left


def list_parts(available: list[str]) -> Iterator[str]:
    for check, compilers in CHECKED.items():
        yield from (f"{check}-{compiler}" for compiler in compilers if compiler in available)
    if "onnxruntime" in available:
        yield "fallback"
    yield from (f"conformance-{compiler}" for compiler in available)
    # "sweep-conv" is the run "gpu-conv" of `gpu_sweep.py`.
    yield from (run.replace("gpu", "sweep") for run in RUNS if run != "gpu-tvm" or "tvm" in available)


def load_or_run(session: Session, part: str) -> Result | None:
    """Return the stored result of a part, or run it and store its result; None if it is left for the next call."""
    path, began = session.locate(part), time.monotonic()
    if path.exists():
        return dict(json.loads(path.read_text()))
    if session.left_s < LEAST_S:
        return None
    run = {"conformance": run_suite, "sweep": run_sweep}.get(part.partition("-")[0], run_check)
    try:
        result = run(session, part)
    except subprocess.TimeoutExpired:
        return None
    result["seconds"] = time.monotonic() - began
    status = "left" if result.pop("left", False) else "ok" if result["ok"] else "FAILED"
    print(f"{status:8} {part:26} {result['seconds']:6.1f} s  {result['line']}", flush=True)
    if status == "left":
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1))
    return result


def run_check(session: Session, part: str) -> Result:
    """Run a check of `gpu_checks.py` in a process of its own."""
    check, _, compiler = part.partition("-")
    process = session.run([str(HERE / "gpu_checks.py"), *filter(None, [check, compiler])])
    if process.returncode:
        problem = process.stderr.strip() or "it printed no reason"
        return {"ok": False, "line": problem.splitlines()[-1][:400], "detail": problem[-6000:]}
    data = json.loads(process.stdout.splitlines()[-1])
    return {"ok": data.pop("ok"), "line": data.pop("line"), "data": data}


def run_suite(session: Session, part: str) -> Result:
    """Run the conformance suite of a compiler."""
    with TemporaryDirectory(prefix="ngbkit-suite-") as name:
        module = Path(name) / "test_on_cuda.py"
        module.write_text(SUITE.format(compiler=part.partition("-")[2]))
        options = ["-q", "-rfE", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", name]
        process = session.run(["-m", "pytest", *options, str(module)])
    *lines, last = process.stdout.splitlines() or ["pytest printed nothing"]
    line = "; ".join([last, *(line[:600] for line in lines if line.startswith(("FAILED", "ERROR")))])
    if process.returncode:
        return {"ok": False, "line": line, "detail": process.stdout[-6000:]}
    return {"ok": True, "line": line}


def run_sweep(session: Session, part: str) -> Result:
    """Run a sweep, or the rest of it, until the time is up."""
    words = [str(HERE / "gpu_sweep.py"), "measure", str(session.state / "sweep"), part.replace("sweep", "gpu")]
    process = session.run(words, STOPPING_S)
    lines = process.stdout.strip().splitlines()
    data = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    line = data.get("line", f"ended with {process.returncode}: {' '.join(lines[-3:])}")
    return {"ok": True, "left": data.get("state") != "finished", "line": line, "data": data}


if __name__ == "__main__":
    main()
