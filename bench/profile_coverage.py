"""The share of kernel time that is mapped to nodes of the network, by runtime and network: the paper's fifteen.

    python bench/profile_coverage.py --out coverage [--networks resnet18,deit3_small_patch16_224] [--batch-sizes 1,8]

Each network, batch size and runtime is one line of ``coverage/coverage.jsonl``: what is there is not measured again.
The shares are ratios of medians over calls in one process, so they need no quiet machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from programs import compile_network

from ngbkit.sweep.conversion import to_workloads
from ngbkit.workloads import building, paper
from ngbkit.workloads.base import Network
from ngbkit.workloads.export import export_for

RUNTIMES = ("onnxruntime", "openvino")
CALLS = 4


def measure(network: Network, onnx: Path, batch_size: int, runtime: str, threads: int) -> dict[str, Any]:
    """Profile some calls of a network in a runtime; return the shares of its kernels' time by role."""
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"batch_size": batch_size, "onnx": onnx, "threads": threads}
        program = compile_network(network, runtime, Path(folder), **settings)
        assert program.profile is not None
        profiler = program.profile()
        for _ in range(CALLS):
            profiler.prepare()
            profiler.run()
            profiler.finish()
        profile = profiler.read()
    mapped = {node for kernel in profile.kernels for node in kernel.nodes}
    shares = {role: round(share, 4) for role, share in profile.compute_shares().items()}
    return {**shares, "nodes": len(profile.nodes), "mapped_nodes": len(mapped), "kernels": len(profile.kernels)}


def main() -> None:
    """Measure what the file lacks, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", default=",".join(workload.name for workload in paper.zoo()))
    parser.add_argument("--batch-sizes", default="1,8")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    file = args.out / "coverage.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    present = {(line["network"], line["batch_size"], line["runtime"]) for line in lines}
    sizes = [int(size) for size in args.batch_sizes.split(",")]
    for name in args.networks.split(","):
        keys = [(name, size, runtime) for size in sizes for runtime in RUNTIMES]
        if present.issuperset(keys):
            continue
        network = building.build(to_workloads([name])[0], {})
        with tempfile.TemporaryDirectory() as folder:
            paths = export_for(network, Path(folder), sizes, 0)
            for _, size, runtime in (key for key in keys if key not in present):
                shares = measure(network, paths[size], size, runtime, args.threads)
                line = {"network": name, "batch_size": size, "runtime": runtime, **shares}
                print(json.dumps(line), flush=True)
                with file.open("a") as stream:
                    stream.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
