"""Every compiler on every network: the paper's fifteen, both blocks, and three ONNX files that others made.

Run it on a quiet machine; it takes hours. Ended in any way, it goes on where it was. What it measured goes to
notebooks/data/04-compilers.nc, which notebooks/04-compilers.ipynb reads.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from parts import measure
from wild import collect

import ngbkit
from ngbkit import Sweep, blocks, paper, registry, workloads
from ngbkit.dataset.storage import save

ROOT = Path(__file__).parents[2]
OUT = ROOT / "notebooks" / "data" / "04-compilers.nc"
#: The five of the fifteen with the fewest parameters.
SMALLEST = ("resnet18", "efficientnet_b3", "efficientnet_b4", "deit3_small_patch16_224", "resnet50")
UNTUNED = "tvm"
WIDTH, DEPTHS = 64, (1, 6)


def sweeps(folder: Path) -> Iterator[tuple[str, Sweep]]:
    """The sweeps by name. Untuned TVM takes seconds a call: it is on its own, one sample a trial."""
    names = [name for name in registry.names(registry.COMPILERS) if name != UNTUNED]
    zoo = paper.zoo()
    small = [one for one in zoo if one.name in SMALLEST]
    rest = [one for one in zoo if one.name not in SMALLEST]
    rest += [blocks.conv(WIDTH, DEPTHS), blocks.mha(WIDTH, DEPTHS)]
    rest += [workloads.onnx.file(path) for path in collect(folder / "files")]
    for kind, compilers, samples in (("", names, 16), ("-tvm", [UNTUNED], 1)):
        how = {"compilers": compilers, "repeats": samples, "min_rounds": min(8, samples), "timeout_s": 1800}
        yield f"small{kind}", Sweep(small, batch_sizes=[1, 8], max_seconds=30, **how)
        yield f"rest{kind}", Sweep(rest, batch_sizes=[1], max_seconds=30, **how)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/matrix"), help="where it remembers how far it is")
    parser.add_argument("--only", nargs="*", help="which of the sweeps: small, rest, small-tvm, rest-tvm")
    parser.add_argument("--retry", nargs="*", default=(), help="statuses of trials to run again")
    asked = parser.parse_args()
    wanted = ((name, sweep) for name, sweep in sweeps(asked.folder) if not asked.only or name in asked.only)
    data = ngbkit.merge(*measure(wanted, asked.folder, retry=asked.retry))
    OUT.parent.mkdir(exist_ok=True)
    save(data, OUT, overwrite=True)
    print(OUT)


if __name__ == "__main__":
    main()
