"""Tries everything that ngbkit does with an NVIDIA GPU on a real one, in parts that several short calls can finish.

    python bench/gpu.py --minutes 9 [--state FOLDER] [--bundle FILE.tar.gz] [--wheels .whl]
        [--only PART,…] [--again PART,…]

It needs this checkout and the packages that are there; `gpu_wheels.py` gathers those that a machine without a network
lacks. Each part leaves one JSON file in the state folder, and a part that is finished does not run again. With
``--bundle`` the state comes from that file, if there is one, and returns to it, so that another machine can go on.

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
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gpu_wheels

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[1]
CHECKED = {
    "clocks": ("identity", "torchscript", "inductor", "onnxruntime", "tensorrt-rtx", "tensorrt"),
    "graphs": ("identity", "onnxruntime", "tensorrt-rtx", "tensorrt"),
    "precision": (
        "identity",
        "torchscript",
        "inductor",
        "aotinductor",
        "onnxruntime",
        "tvm",
        "tensorrt-rtx",
        "tensorrt",
    ),
    "energy": ("identity",),
    "memory": ("identity", "onnxruntime"),
}
#: The runs of `gpu_sweep.py`: "sweep" is its run "gpu", and "sweep-conv" its "gpu-conv".
SWEEPS = (
    "",
    "precisions",
    "precisions-inductor",
    "conv",
    "mha",
    "mha-16",
    "inductor",
    "graphs",
    "conv-inductor",
    "mha-inductor",
    "tvm",
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
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def left_s(self) -> float:
        return self.ends - time.monotonic()

    @property
    def site(self) -> Path:
        return self.state / "site"

    def environment(self) -> dict[str, str]:
        """Build the environment of the parts: this checkout, the installed wheels, and CUDA's libraries for these."""
        paths = [str(ROOT), str(self.site), os.environ.get("PYTHONPATH", "")]
        # A library in one folder of packages does not look for CUDA's in another.
        folders = [str(folder) for path in sys.path for folder in sorted(Path(path).glob("nvidia/*/lib"))]
        libraries = [*folders, os.environ.get("LD_LIBRARY_PATH", "")]
        joined = {"PYTHONPATH": paths, "LD_LIBRARY_PATH": libraries}
        return {**os.environ, **{name: os.pathsep.join(filter(None, parts)) for name, parts in joined.items()}}

    def locate(self, part: str) -> Path:
        return self.state / "parts" / f"{part}.json"

    def store(self, part: str, result: Result) -> None:
        self.results[part] = result
        path = self.locate(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1))
        print(f"{format_status(result):8} {part:26} {result['seconds']:6.1f} s  {result['line']}", flush=True)

    def load(self, part: str) -> Result | None:
        path = self.locate(part)
        return json.loads(path.read_text()) if path.exists() else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9.0, help="when to end, whatever is left (default: 9)")
    parser.add_argument(
        "--state", type=Path, default=ROOT / "results" / "gpu", help="where results and wheels are stored"
    )
    parser.add_argument(
        "--bundle", type=Path, metavar="FILE", help="an archive of the results, read first and written last"
    )
    parser.add_argument(
        "--wheels", type=Path, default=ROOT / ".whl", help="pieces of wheels to install (default: .whl)"
    )
    parser.add_argument(
        "--only", default="", metavar="PARTS", help="run these parts only; another text is the beginning of several"
    )
    parser.add_argument(
        "--again", default="", metavar="PARTS", help="run these parts again; selected as those of --only"
    )
    parser.add_argument("--into", type=Path, metavar="FILE", help="write the bundle there rather than to --bundle")
    args = parser.parse_args()
    session = Session(args.state, time.monotonic() + 60 * args.minutes)
    args.state.mkdir(parents=True, exist_ok=True)
    if args.bundle and args.bundle.exists():
        unpack(args.bundle, args.state)
    if args.wheels.is_dir():
        complete = gpu_wheels.install(args.wheels, args.state / "wheels", session.site)
        print("wheels:", ", ".join(complete) or "none", flush=True)
    finished = [path.stem for path in (args.state / "parts").glob("*.json")]
    for part in select_parts(finished, args.again) if args.again else []:
        session.locate(part).unlink()
    try:
        left = run_parts(session, args.only)
    finally:
        if args.bundle:
            pack(args.state, args.into or args.bundle)
    failed = [part for part, result in session.results.items() if not result["ok"]]
    print(f"failed: {', '.join(failed) or 'none'}; left: {', '.join(left) or 'none'}")
    sys.exit(1 if failed else 2 if left else 0)


def select_parts(parts: list[str], names: str) -> list[str]:
    """Return the parts of these names, with commas between; a name that is no part's is the beginning of several."""
    exact = {name for name in names.split(",") if name in parts}
    begins = tuple(name for name in names.split(",") if name and name not in exact)
    return [part for part in parts if part in exact or part.startswith(begins)]


def run_parts(session: Session, only: str) -> list[str]:
    """Run the parts that are not finished until the time is up; return those that are left."""
    left: list[str] = []
    # It costs seconds, and says what the packages of this call have made available.
    session.store("machine", run_check(session, "machine", None))
    available = session.results["machine"].get("data", {}).get("available", [])
    for name, reason in session.results["machine"].get("data", {}).get("unavailable", {}).items():
        print(f"lacking  {name:26} {'':8}  {reason}", flush=True)
    if not session.results["machine"].get("data", {}).get("gpu"):
        return ["everything: this machine has no GPU that works"]
    parts = list(list_parts(available))
    parts = select_parts(parts, only) if only else parts
    todo = []
    for part in parts:
        if (result := session.load(part)) is not None:
            session.results[part] = result
        else:
            todo.append(part)
    suites = [part for part in todo if part.startswith("conformance-")]
    # Nothing is timed there: compilers can share the machine.
    with ThreadPoolExecutor(max(1, min(4, (os.cpu_count() or 1) // 4))) as pool:
        left += filter(None, pool.map(lambda part: run_part(session, part), suites))
    for part in todo:
        if part not in suites and run_part(session, part):
            left.append(part)
    return left


def list_parts(available: list[str]) -> Iterator[str]:
    for check, compilers in CHECKED.items():
        yield from (f"{check}-{compiler}" for compiler in compilers if compiler in available)
    if "onnxruntime" in available:
        yield "fallback"
    yield from (f"conformance-{compiler}" for compiler in available)
    yield from (f"sweep-{name}" if name else "sweep" for name in SWEEPS if name != "tvm" or "tvm" in available)


def run_part(session: Session, part: str) -> str:
    """Run one part and store its result; return its name if it is left for the next call."""
    if session.left_s < LEAST_S:
        return part
    check, _, compiler = part.partition("-")
    try:
        if check == "conformance":
            result = run_suite(session, compiler)
        elif check == "sweep":
            result = run_sweep(session, part.replace("sweep", "gpu"))
        else:
            result = run_check(session, check, compiler or None)
    except subprocess.TimeoutExpired:
        return part
    if result.pop("unfinished", False):
        print(f"left     {part:26} {result['seconds']:6.1f} s  {result['line']}", flush=True)
        return part
    session.store(part, result)
    return ""


def run_check(session: Session, check: str, compiler: str | None) -> Result:
    """Run a check of `gpu_checks.py` in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, str(HERE / "gpu_checks.py"), check, *([compiler] if compiler else [])]
    process = run(command, session)
    seconds = time.monotonic() - began
    if process.returncode:
        problem = process.stderr.strip()
        return {
            "ok": False,
            "line": problem.splitlines()[-1][:400] if problem else "",
            "seconds": seconds,
            "detail": problem[-6000:],
        }
    data = json.loads(process.stdout.splitlines()[-1])
    return {"ok": data.pop("ok"), "line": data.pop("line"), "seconds": seconds, "data": data}


def run_suite(session: Session, compiler: str) -> Result:
    """Run the conformance suite of a compiler."""
    began = time.monotonic()
    with TemporaryDirectory(prefix="ngbkit-suite-") as name:
        module, report = Path(name) / "test_on_cuda.py", Path(name) / "report.xml"
        module.write_text(SUITE.format(compiler=compiler))
        options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", name, "--junitxml", str(report)]
        process = run([sys.executable, "-m", "pytest", *options, str(module)], session)
        seconds = time.monotonic() - began
        if not report.exists():
            return {
                "ok": False,
                "line": "pytest wrote no report",
                "seconds": seconds,
                "detail": process.stdout[-4000:] + process.stderr[-2000:],
            }
        cases = list(ElementTree.parse(report).iter("testcase"))
    problems = {}
    for case in cases:
        for problem in (*case.iter("failure"), *case.iter("error")):
            problems[case.get("name", "")] = {
                "message": (problem.get("message") or "")[:3000],
                "text": (problem.text or "")[-3000:],
            }
    line = f"{len(cases) - len(problems)} of {len(cases)} tests passed"
    if problems:
        line += "; " + "; ".join(f"{test}: {problem['message'][:600]}" for test, problem in problems.items())
    return {
        "ok": bool(cases) and not problems,
        "line": line,
        "seconds": seconds,
        "data": {"tests": len(cases), "problems": problems},
    }


def run_sweep(session: Session, run_id: str) -> Result:
    """Run a sweep, or the rest of it, until the time is up."""
    began = time.monotonic()
    command = [sys.executable, str(HERE / "gpu_sweep.py"), "measure", str(session.state / "sweep"), run_id]
    process = subprocess.Popen(command, env=session.environment(), stdout=subprocess.PIPE, text=True)
    try:
        output, _ = process.communicate(timeout=max(1.0, session.left_s - STOPPING_S))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)  # it ends after the trial that it is at
        try:
            output, _ = process.communicate(timeout=STOPPING_S)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    lines = output.strip().splitlines()
    data = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
    line = data.get("line", f"ended with {process.returncode}: {' '.join(lines[-3:])}")
    finished = data.get("state") == "finished"
    return {"ok": finished, "unfinished": not finished, "line": line, "seconds": time.monotonic() - began, "data": data}


def run(command: list[str], session: Session) -> subprocess.CompletedProcess[str]:
    """Run a command; TimeoutExpired if it does not end within this call's time."""
    process = subprocess.Popen(
        command,
        env=session.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        stdout, stderr = process.communicate(timeout=max(1.0, session.left_s))
    except subprocess.TimeoutExpired:
        # Its children too: a suite compiles in processes of its own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def format_status(result: Result) -> str:
    return "ok" if result["ok"] else "FAILED"


def pack(state: Path, bundle: Path) -> None:
    """Write the results and the sweep's journal, without its caches, into an archive."""
    with tarfile.open(bundle.with_name(f"{bundle.name}.partial"), "w:gz") as archive:
        for path in sorted(
            [
                *(state / "parts").glob("*"),
                *(state / "sweep" / "devices").rglob("*.sqlite*"),
                *(state / "sweep").glob("*.json"),
            ]
        ):
            archive.add(path, path.relative_to(state))
    bundle.with_name(f"{bundle.name}.partial").replace(bundle)


def unpack(bundle: Path, state: Path) -> None:
    """Add the content of an archive that is not there yet."""
    with TemporaryDirectory(prefix="ngbkit-bundle-") as name, tarfile.open(bundle) as archive:
        archive.extractall(name, filter="data")
        for path in sorted(Path(name).rglob("*")):
            target = state / path.relative_to(name)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)


if __name__ == "__main__":
    main()
