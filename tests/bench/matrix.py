"""Measures every compiler on every network: the paper's fifteen, both blocks, and three published ONNX files.

Run it on a quiet machine; it takes hours, and resumes after any interruption. It writes
notebooks/data/compilers.nc, which notebooks/gallery-compilers.ipynb reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from deployed import collect
from parts import measure

import ngbkit
from ngbkit import Sweep, blocks, paper, registry, workloads
from ngbkit.dataset.storage import save

ROOT = Path(__file__).parents[2]
OUT = ROOT / "notebooks" / "data" / "compilers.nc"
#: The five of the fifteen with the fewest parameters.
SMALLEST = ("resnet18", "efficientnet_b3", "efficientnet_b4", "deit3_small_patch16_224", "resnet50")
PUBLISHED = ("textlines", "direction", "filetype")
UNTUNED = "tvm"
WIDTH, DEPTHS = 64, (1, 6)


def build_sweeps(folder: Path) -> Iterator[tuple[str, Sweep]]:
    """Yield the sweeps by name; untuned TVM takes seconds per call, so that its sweeps take one sample per trial."""
    names = [name for name in registry.list_names(registry.COMPILERS) if name != UNTUNED]
    zoo = paper.zoo()
    small = [workload for workload in zoo if workload.name in SMALLEST]
    rest = [workload for workload in zoo if workload.name not in SMALLEST]
    rest += [blocks.conv(WIDTH, DEPTHS), blocks.mha(WIDTH, DEPTHS)]
    rest += [workloads.onnx.file(path) for path in collect(folder / "files", PUBLISHED)]
    for kind, compilers, samples in (("", names, 16), ("-tvm", [UNTUNED], 1)):
        build = partial(Sweep, repeats=samples, min_rounds=min(8, samples), timeout_s=1800, max_seconds=30)
        yield f"small{kind}", build(small, compilers, [1, 8])
        yield f"rest{kind}", build(rest, compilers, [1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/matrix"), help="folder of its progress")
    parser.add_argument("--only", nargs="*", help="sweeps to run: small, rest, small-tvm, rest-tvm")
    parser.add_argument("--retry", nargs="*", default=(), help="statuses of trials to run again")
    args = parser.parse_args()
    selected = ((name, sweep) for name, sweep in build_sweeps(args.folder) if not args.only or name in args.only)
    data = ngbkit.merge(*measure(selected, args.folder, retry=args.retry))
    OUT.parent.mkdir(exist_ok=True)
    save(data, OUT, overwrite=True)
    print(OUT)


if __name__ == "__main__":
    main()
