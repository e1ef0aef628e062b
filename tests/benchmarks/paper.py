"""Repeats the paper's evaluation on this machine: its fifteen networks and both blocks, at up to six batch sizes.

Run it on a quiet machine; it takes about an hour, resumes after any interruption, and writes the results so far to
notebooks/data/paper.nc, which notebooks/paper.ipynb reads. The smallest network of each family is measured at all
batch sizes, the larger ones at fewer.

TVM is not among the compilers: the paper tuned it for hours to days per network (its table III), and untuned results do
not represent it. Untuned results are in notebooks/data/04-compilers.nc, tuned ones for one network in 04-tvm.nc.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parts import measure

import ngbkit
from ngbkit import Sweep, blocks, paper
from ngbkit.dataset.storage import save

OUT = Path(__file__).parents[2] / "notebooks" / "data" / "paper.nc"
COMPILERS = ["identity", "torchscript", "onnxruntime", "openvino"]
SIZES = [1, 2, 4, 8, 16, 32]
#: Intervals are computed from rounds; a large batch has the fewest.
SETTINGS: dict[str, Any] = {
    "compilers": COMPILERS,
    "repeats": 16,
    "min_rounds": 6,
    "max_seconds": 15.0,
    "timeout_s": 900.0,
}
#: The sizes of tables VII and VIII, and one more embedding for figure 10; half of the paper's side of 244 pixels, which
#: would take four times as long.
WIDTHS, EMBEDDINGS, DEPTHS, PIXELS = [64, 96], [128, 256, 512], [1, 2, 6], (122, 122)


def build_sweeps() -> Iterator[tuple[str, Sweep]]:
    """Yield the parts by name."""
    zoo = {workload.name: workload for workload in paper.zoo()}
    small, middle, large = zip(*paper.FAMILIES.values(), strict=True)
    for name in small:
        yield name, Sweep(zoo[name], batch_sizes=SIZES, **SETTINGS)
    yield "conv", Sweep(blocks.conv(WIDTHS, DEPTHS, size=PIXELS), batch_sizes=SIZES, **SETTINGS)
    yield "mha", Sweep(blocks.mha(EMBEDDINGS, DEPTHS), batch_sizes=SIZES, **SETTINGS)
    for name in middle:
        yield name, Sweep(zoo[name], batch_sizes=SIZES[:3], **SETTINGS)
    for name in large:
        yield name, Sweep(zoo[name], batch_sizes=[1, 4], **SETTINGS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/paper"), help="folder of its progress")
    parser.add_argument("--minutes", type=float, default=120.0, help="time budget for new parts")
    args = parser.parse_args()
    save(ngbkit.merge(*measure(build_sweeps(), args.folder, minutes=args.minutes)), OUT, overwrite=True)
    print(OUT)


if __name__ == "__main__":
    main()
