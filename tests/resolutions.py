"""Measures an ONNX file and a module with every compiler, in environments of the lowest and of the highest packages.

    python tests/resolutions.py --only 3.10 lowest-direct

Each environment is deleted after its rows are written to results/resolutions; rows without a fault are not measured
again by the same commit. It downloads gigabytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxgraphs
from pythons import VERSIONS, create_environment
from requirements import run

from ngbkit import requirements
from ngbkit.fleet.deployment import wheel

ROOT = Path(__file__).parents[1]
OUT = ROOT / "results" / "resolutions"
# The lowest torch that all extras allow is above what some of them ask for, so these have environments of their own.
EXTRAS = {
    "lowest-direct": ("torch,onnxruntime,openvino,iree,tvm", "inductor", "aotinductor", "all"),
    "highest": ("all",),
}
ENVIRONMENTS = [
    (version, resolution, extras)
    for version in VERSIONS[:2]
    for resolution, groups in EXTRAS.items()
    for extras in groups
    if (version, extras) != ("3.10", "aotinductor")  # its torch needs Python 3.11
]
MODULE = """from torch import nn
model = nn.Sequential(nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(28800, 10))
input_shape = (32, 32, 32)
"""


def measure(folder: Path, version: str, resolution: str, extras: str) -> Iterator[list[str]]:
    """Measure both networks in an environment; yield the compiler, the kind, the status and the fault of each row."""
    python = create_environment(str(folder / "environment"), version, *list_packages(resolution, extras))
    package = str(wheel.build(folder))
    run([sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--python", python, package])
    (folder / "module.py").write_text(MODULE)
    onnxgraphs.residual(folder, width=32, size=32).rename(folder / "file.onnx")
    environment = {**os.environ, "NGBKIT_STATE_DIR": str(folder / "state"), "IPYTHONDIR": str(folder / "ipython")}
    compilers = {row["compiler"]: row for row in json.loads(run([python, "-m", "ngbkit", "compilers", "--json"]))}
    words = ["file.onnx", "module.py", "-c", ",".join(compilers), "-r", "3", "--json", "--quiet"]
    for row in json.loads(run([python, "-m", "ngbkit", "run", *words], environment, folder)):
        compiler, kind = row["compiler"], row["workload"]
        yield [compiler, kind, row["status"], row["error"], find_fault(compilers[compiler], kind, row)]


def list_packages(resolution: str, extras: str) -> list[str]:
    """List the requirements of an environment of wheels; torch is pinned, as a newer torchvision would raise it."""
    options = ["--resolution", resolution, "--no-build", "--requirements", str(ROOT / "pyproject.toml")]
    bounds = [requirements.read_bounds(extra).get("torch") for extra in extras.split(",")]
    least = max(requirements.find_least(each) for each in bounds if each is not None)
    pins = [f"torch=={least}"] if resolution != "highest" else []
    return [*options, *(f"--extra={extra}" for extra in ["notebook", *extras.split(",")]), *pins]


def find_fault(compiler: dict[str, Any], kind: str, row: dict[str, str]) -> str:
    """Find why a row is false: a compiler that works here does not measure, or no package is named."""
    if row["status"] == "ok" or kind not in compiler["networks"]:
        return ""
    if compiler["available"] and not compiler["networks"][kind]:
        return "works here, and does not measure"
    packages = [*compiler["packages"], "onnx", "onnxscript", "torch"]
    return "" if any(package in row["error"] for package in packages) else "its error names no package"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="a Python, a resolution, an extra")
    only, commit = set(parser.parse_args().only), run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT).strip()
    faults = 0
    for environment in ENVIRONMENTS:
        if not only <= set(environment):
            continue
        file = OUT / f"{'-'.join([commit, *environment])}.json"
        rows = json.loads(file.read_text()) if file.exists() else []
        if not rows or any(row[-1] for row in rows):
            with tempfile.TemporaryDirectory(prefix="ngbkit-resolution-") as folder:
                rows = list(measure(Path(folder), *environment))
            OUT.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(rows))
        for row in rows:
            print(*environment, *row, sep=" | ", flush=True)
            faults += bool(row[-1])
    sys.exit(f"{faults} rows are false." if faults else None)


if __name__ == "__main__":
    main()
