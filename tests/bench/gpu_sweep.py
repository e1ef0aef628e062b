"""The sweep of `gpu.py`, measured without an engine, and its dataset.

python tests/bench/gpu_sweep.py measure STATE [RUN …]   # on the machine with the GPU; stops at Ctrl+C, and resumes
python tests/bench/gpu_sweep.py collect STATE [--into notebooks/data]    # where ngbkit[notebook] is
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.device import plan
from ngbkit.device.spec import Spec
from ngbkit.options import set_options
from ngbkit.sweep.column import BASELINE
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.workloads import blocks, timm

DEVICE, ACCELERATOR = "gpu", "cuda:0"
#: The smallest network of each of the paper's families.
NETWORKS = ("resnet18", "efficientnet_b3", "deit3_small_patch16_224", "swin_s3_tiny_224", "convnext_tiny")
REPEATS = 60
#: Half of the images judge lower precisions.
JUDGING = 32
#: The smallest width of the paper's tables VII and VIII at every depth, for the slope and the retention of each
#: compiler; a CUDA graph takes out the launches, whose number grows with the depth.
DEPTHS = (1, 2, 3, 4, 5, 6)
BLOCKS: dict[str, Any] = {
    "compilers": ("identity", "torchscript", "onnxruntime", 'onnxruntime{"cuda_graph":true}'),
    "batch_sizes": (8, 16),
}
CONV, MHA = [blocks.conv(64, DEPTHS)], [blocks.mha(128, DEPTHS)]
#: Seconds in which TVM tunes a network: hours of the paper's table III do not fit a call.
TUNING_S = 100
#: The networks whose precisions are measured: convolutions, and attention. Inductor takes a minute for each column.
CAST = ("resnet18", "deit3_small_patch16_224")
#: What each run measures: options of a grid. Compilers that take half a minute or more have runs of their own.
RUNS: dict[str, dict[str, Any]] = {
    "gpu": {
        "compilers": ("identity", "torchscript", "onnxruntime", "tensorrt-rtx", "tensorrt"),
        "batch_sizes": (1, 2, 4, 8, 16, 32),
    },
    "gpu-inductor": {"compilers": ("identity", "inductor"), "batch_sizes": (1, 32)},
    "gpu-precisions": {
        "workloads": [timm.model(name) for name in CAST],
        "compilers": ("identity", "onnxruntime"),
        "precisions": ("f32", "tf32", "f16", "bf16"),
        "calibrate": "images.npz",
        "accept": ("agreement>=0.99",),
        "batch_sizes": (1, 32),
    },
    "gpu-precisions-inductor": {
        "workloads": [timm.model(name) for name in CAST[:1]],
        "compilers": ("identity", "inductor"),
        "precisions": ("f32", "tf32", "f16"),
        "calibrate": "images.npz",
        "accept": ("agreement>=0.99",),
        "batch_sizes": (32,),
    },
    "gpu-conv": {"workloads": CONV, **BLOCKS},
    "gpu-mha": {"workloads": MHA, **BLOCKS, "batch_sizes": (8,)},
    "gpu-tvm": {
        "workloads": [timm.model(NETWORKS[0])],
        "compilers": ("identity", "tvm", f'tvm{{"seconds":{TUNING_S}}}'),
        "batch_sizes": (1,),
    },
}
DATA = Path(__file__).parents[2] / "notebooks" / "data"


def write_images(path: Path) -> Path:
    """Write images of noise, by which lower precisions of networks with random weights are judged."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        images = np.random.default_rng(0).standard_normal((2 * JUDGING, 3, 224, 224), dtype=np.float32)
        np.savez(path, x=images)
    return path


def build_spec(state: Path, run_id: str) -> Spec:
    options = {"workloads": [timm.model(name) for name in NETWORKS], **RUNS[run_id]}
    if "calibrate" in options:
        options["calibrate"] = write_images(state / options["calibrate"])
    grid = Grid(**{"devices": [DEVICE], "repeats": REPEATS, **options})
    # A machine with other packages than the last one measures what was unsupported or failed there.
    return Spec(
        run_id=run_id,
        device=DEVICE,
        state_dir=state,
        sweep=grid,
        accelerator=ACCELERATOR,
        retry=frozenset({"unsupported", "failed"}),
        retry_id=str(time.time()),
    )


def measure(state: Path, run_ids: Sequence[str]) -> None:
    set_options(state_dir=state)
    began = time.monotonic()

    names = {
        trial.id: f"{trial.workload} {trial.batch_size} {trial.compiler}"
        for run_id in run_ids
        for trial in build_spec(state, run_id).sweep.trials()
    }

    def show(event: dict[str, Any]) -> None:
        record = event.get("record", {})
        if record.get("trial_id") in names:
            text = f"{record.get('status', 'ok')} {record.get('error', '')[:120]}"
            print(
                f"{time.monotonic() - began:6.1f} s  {names[record['trial_id']]}: {text}", file=sys.stderr, flush=True
            )

    lines = []
    for run_id in run_ids:
        spec = build_spec(state, run_id)
        outcome = plan.carry_out(spec, show)
        trials = {trial.id for trial in spec.sweep.trials()}
        with Journal(plan.locate_journal(state, DEVICE, run_id), writable=False) as journal:
            statuses = Counter(status for name, status in journal.statuses().items() if name in trials)
        parts = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
        lines.append(f"{run_id}: {sum(statuses.values())} of {len(trials)} trials: {parts or 'none'}")
        if outcome != "finished":
            break
    print(json.dumps({"state": outcome, "line": "; ".join(lines)}))


def collect(state: Path, into: Path) -> None:
    """Write the results of the checks, and a dataset of each run in which a trial was measured, into a folder."""
    from ngbkit.dataset import storage
    from ngbkit.dataset.assembly import assemble_journal

    parts = {path.stem: json.loads(path.read_text()) for path in sorted((state.parent / "parts").glob("*.json"))}
    for part in parts.values():
        # Packages are in the environment of the dataset; a traceback is for whoever mends it.
        part.get("data", {}).pop("packages", None)
    checks = into / "gpu.json"
    # Another machine may have run other parts.
    earlier = json.loads(checks.read_text()) if checks.exists() else {}
    checks.write_text(json.dumps(dict(sorted({**earlier, **parts}.items())), indent=1) + "\n")
    for run_id in RUNS:
        path = plan.locate_journal(state, DEVICE, run_id)
        if not path.exists():
            continue
        with Journal(path, writable=False) as journal:
            data = assemble_journal(build_spec(state, run_id).sweep, journal, run_id=run_id)
        statuses = Counter(np.ravel(data["status"]).tolist())
        print(f"{run_id}: {', '.join(f'{count} {status}' for status, count in statuses.most_common())}")
        # A run whose other compilers all failed compares nothing.
        if "ok" in np.unique(data["status"].drop_sel(compiler=BASELINE)):
            target = into / f"{run_id}.nc"
            print(f"{storage.save(data, target, overwrite=True)}: {target.stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("measure", "collect"))
    parser.add_argument("state", type=Path)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"one of {', '.join(RUNS)} (default: all)")
    parser.add_argument("--into", type=Path, default=DATA)
    args = parser.parse_args()
    if unknown := set(args.runs) - set(RUNS):
        parser.error(f"invalid run: got {', '.join(sorted(unknown))}; expected one of {', '.join(RUNS)}")
    if args.verb == "measure":
        measure(args.state, args.runs or list(RUNS))
    else:
        collect(args.state, args.into)


if __name__ == "__main__":
    main()
