"""Tries everything that ngbkit does with an NVIDIA GPU on a real one, in parts that several short calls can finish.

    python tests/bench/gpu.py --minutes 9 [--state FOLDER] [--only PART,…] [--again PART,…]

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
    sweep-conv, sweep-mha, sweep-mha-16    both blocks at depths 1 to 6, with CUDA graphs and without: 20 to 30 s each
    sweep-conv-inductor, sweep-mha-inductor    the same with torch.compile: a minute a group
    sweep-inductor, sweep-graphs, sweep-tvm    torch.compile, CUDA graphs, and TVM, tuned and not

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
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
CHECKED = {
    "clocks": ("identity", "torchscript", "inductor", "onnxruntime", "tensorrt-rtx", "tensorrt"),
    "graphs": ("identity", "onnxruntime", "tensorrt-rtx", "tensorrt"),
    "precision": (
        *("identity", "torchscript", "inductor", "aotinductor"),
        *("onnxruntime", "tvm", "tensorrt-rtx", "tensorrt"),
    ),
    "energy": ("identity",),
    "memory": ("identity", "onnxruntime"),
}
#: The runs of `gpu_sweep.py`: "sweep" is its run "gpu", and "sweep-conv" its "gpu-conv".
SWEEPS = (
    *("", "precisions", "precisions-inductor", "conv", "mha", "mha-16"),
    *("inductor", "graphs", "conv-inductor", "mha-inductor", "tvm"),
)
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

    def store(self, part: str, result: Result) -> Result:
        path = self.locate(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1))
        status = "ok" if result["ok"] else "FAILED"
        print(f"{status:8} {part:26} {result['seconds']:6.1f} s  {result['line']}", flush=True)
        return result

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
    parser.add_argument(
        "--only", default="", metavar="PARTS", help="run these parts only; another text is the beginning of several"
    )
    parser.add_argument(
        "--again", default="", metavar="PARTS", help="run these parts again; selected as those of --only"
    )
    args = parser.parse_args()
    session = Session(args.state, time.monotonic() + 60 * args.minutes)
    finished = [path.stem for path in (args.state / "parts").glob("*.json")]
    for part in select_parts(finished, args.again) if args.again else []:
        session.locate(part).unlink()
    results, left = run_parts(session, args.only)
    failed = [part for part, result in results.items() if not result["ok"]]
    print(f"failed: {', '.join(failed) or 'none'}; left: {', '.join(left) or 'none'}")
    sys.exit(1 if failed else 2 if left else 0)


def select_parts(parts: list[str], names: str) -> list[str]:
    """Return the parts of these names, with commas between; a name that is no part's is the beginning of several."""
    exact = {name for name in names.split(",") if name in parts}
    begins = tuple(name for name in names.split(",") if name and name not in exact)
    return [part for part in parts if part in exact or part.startswith(begins)]


def run_parts(session: Session, only: str) -> tuple[dict[str, Result], list[str]]:
    """Run the parts that are not finished until the time is up; return all results, and the parts that are left."""
    # It costs seconds, and says what the packages of this call have made available.
    results = {"machine": session.store("machine", run_check(session, "machine"))}
    machine = results["machine"].get("data", {})
    for name, reason in machine.get("unavailable", {}).items():
        print(f"lacking  {name:26} {'':8}  {reason}", flush=True)
    if not machine.get("gpu"):
        return results, ["everything: this machine has no GPU that works"]
    parts = list(list_parts(machine.get("available", [])))
    left = []
    for part in select_parts(parts, only) if only else parts:
        if session.locate(part).exists():
            results[part] = json.loads(session.locate(part).read_text())
        elif (result := run_part(session, part)) is not None:
            results[part] = session.store(part, result)
        else:
            left.append(part)
    return results, left


def list_parts(available: list[str]) -> Iterator[str]:
    for check, compilers in CHECKED.items():
        yield from (f"{check}-{compiler}" for compiler in compilers if compiler in available)
    if "onnxruntime" in available:
        yield "fallback"
    yield from (f"conformance-{compiler}" for compiler in available)
    yield from (f"sweep-{name}" if name else "sweep" for name in SWEEPS if name != "tvm" or "tvm" in available)


def run_part(session: Session, part: str) -> Result | None:
    """Run one part and return its result; None if it is left for the next call."""
    if session.left_s < LEAST_S:
        return None
    check, _, compiler = part.partition("-")
    try:
        if check == "conformance":
            return run_suite(session, compiler)
        if check == "sweep":
            return run_sweep(session, part)
        return run_check(session, check, *filter(None, [compiler]))
    except subprocess.TimeoutExpired:
        return None


def run_check(session: Session, *words: str) -> Result:
    """Run a check of `gpu_checks.py` in a process of its own."""
    began = time.monotonic()
    process = session.run([str(HERE / "gpu_checks.py"), *words])
    seconds = time.monotonic() - began
    if process.returncode:
        problem = process.stderr.strip() or "it printed no reason"
        return {"ok": False, "line": problem.splitlines()[-1][:400], "seconds": seconds, "detail": problem[-6000:]}
    data = json.loads(process.stdout.splitlines()[-1])
    return {"ok": data.pop("ok"), "line": data.pop("line"), "seconds": seconds, "data": data}


def run_suite(session: Session, compiler: str) -> Result:
    """Run the conformance suite of a compiler."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="ngbkit-suite-") as name:
        module, report = Path(name) / "test_on_cuda.py", Path(name) / "report.xml"
        module.write_text(SUITE.format(compiler=compiler))
        options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", name, "--junitxml", str(report)]
        process = session.run(["-m", "pytest", *options, str(module)])
        seconds = time.monotonic() - began
        if not report.exists():
            detail = process.stdout[-4000:] + process.stderr[-2000:]
            return {"ok": False, "line": "pytest wrote no report", "seconds": seconds, "detail": detail}
        cases = list(ElementTree.parse(report).iter("testcase"))
    problems = {
        case.get("name", ""): {"message": (problem.get("message") or "")[:3000], "text": (problem.text or "")[-3000:]}
        for case in cases
        for problem in (*case.iter("failure"), *case.iter("error"))
    }
    line = f"{len(cases) - len(problems)} of {len(cases)} tests passed"
    line += "".join(f"; {test}: {problem['message'][:600]}" for test, problem in problems.items())
    data = {"tests": len(cases), "problems": problems}
    return {"ok": bool(cases) and not problems, "line": line, "seconds": seconds, "data": data}


def run_sweep(session: Session, part: str) -> Result | None:
    """Run a sweep, or the rest of it, until the time is up; None if it is unfinished."""
    began = time.monotonic()
    words = [str(HERE / "gpu_sweep.py"), "measure", str(session.state / "sweep"), part.replace("sweep", "gpu")]
    process = session.run(words, STOPPING_S)
    lines = process.stdout.strip().splitlines()
    data = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    line = data.get("line", f"ended with {process.returncode}: {' '.join(lines[-3:])}")
    seconds = time.monotonic() - began
    if data.get("state") != "finished":
        print(f"left     {part:26} {seconds:6.1f} s  {line}", flush=True)
        return None
    return {"ok": True, "line": line, "seconds": seconds, "data": data}


if __name__ == "__main__":
    main()
