"""Repeats the paper's evaluation on this machine: its fifteen networks and both blocks, at up to six batch sizes.

Run it on a quiet machine; it takes about three hours, resumes after any interruption, and writes the results so far to
notebooks/data/paper.nc, which notebooks/03-paper.ipynb reads. The smallest network of each family is measured at all
batch sizes, the larger ones at fewer. ``--only conv,mha`` measures these parts alone, and puts them in the place of
what the file has of them.

``--tvm`` measures TVM, too, in notebooks/data/paper-tvm.nc, beside the other compilers. The paper tuned it for hours to
days per network (its table III). Here it tries as many candidates as ``--candidates`` says, of the smallest network of
each family and of both blocks: some minutes each, and kept for the next time.

``--larger`` adds the ten larger networks at batch sizes 8 to 32 in notebooks/data/paper-larger.nc: it measures for
``--minutes`` the trials that tell most about the fastest compiler, and predicts the others, from these and from
notebooks/data/paper.nc, which has the same networks at smaller batch sizes. Repeat it to measure more. ``--rest`` then
measures the others, and again what other work slowed, in notebooks/data/paper-larger-measured.nc: it shows whether
the predictions were right.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from parts import go_on, measure

import ngbkit
from ngbkit import Sweep, blocks, paper
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data, save
from ngbkit.sweep.records import INCONCLUSIVE

DATA = Path(__file__).parents[1] / "notebooks" / "data"
OUT, TUNED_OUT = DATA / "paper.nc", DATA / "paper-tvm.nc"
LARGER_OUT, REST_OUT = DATA / "paper-larger.nc", DATA / "paper-larger-measured.nc"
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
#: The sizes of tables VII and VIII, and one more embedding for figure 10.
WIDTHS, EMBEDDINGS, DEPTHS, PIXELS = [64, 96], [128, 256, 512], [1, 2, 6], (244, 244)
TUNED_SIZES = [1, 4, 16]


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


def build_tuned_sweeps(candidates: list[int]) -> Iterator[tuple[str, Sweep]]:
    """Yield the parts with TVM by name: a batch size each, so that an interruption costs little."""
    zoo = {workload.name: workload for workload in paper.zoo()}
    workloads = [zoo[names[0]] for names in paper.FAMILIES.values()]
    workloads += [blocks.conv(WIDTHS[:1], DEPTHS[:1], size=PIXELS), blocks.mha(EMBEDDINGS[:1], DEPTHS[:1])]
    compilers = [*COMPILERS, *(f'tvm{{"total":{number}}}' for number in candidates)]
    for size in TUNED_SIZES:
        for workload in workloads:
            sweep = Sweep(workload, batch_sizes=[size], **SETTINGS | {"compilers": compilers, "timeout_s": 7200.0})
            yield f"{workload.name}-{size}", sweep


def build_larger_sweep() -> Sweep:
    """The larger networks at the batch sizes that `build_sweeps` leaves out."""
    zoo = {workload.name: workload for workload in paper.zoo()}
    names = [name for members in paper.FAMILIES.values() for name in members[1:]]
    return Sweep([zoo[name] for name in names], batch_sizes=SIZES[3:], **SETTINGS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/paper"), help="folder of its progress")
    parser.add_argument("--minutes", type=float, default=240.0, help="time budget for new parts (default: 240)")
    parser.add_argument("--only", default="", help="names of parts, separated by commas, such as conv")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--tvm", action="store_true", help="measure TVM, tuned, beside the others")
    mode.add_argument("--larger", action="store_true", help="measure and predict the larger networks")
    mode.add_argument("--rest", action="store_true", help="measure what --larger predicted")
    parser.add_argument(
        "--candidates",
        type=lambda text: [int(number) for number in text.split(",")],
        default=[200],
        help="that TVM tries per network (default: 200); 200,1000 tunes each network twice",
    )
    args = parser.parse_args()
    if args.larger or args.rest:
        if args.only:
            parser.error("the larger networks have no parts: leave out --only.")
        guidance: dict[str, Any] = {"budget": 60 * args.minutes, "earlier": OUT}
        guidance = guidance if args.larger else {"retry": [INCONCLUSIVE]}
        run = go_on("larger", build_larger_sweep(), args.folder / "larger", **guidance)
        out = LARGER_OUT if args.larger else REST_OUT
        save(run.dataset(), out, overwrite=True)
        print(out)
        return
    chosen = set(filter(None, args.only.split(",")))
    parts = list(build_tuned_sweeps(args.candidates) if args.tvm else build_sweeps())
    if unknown := chosen - {name for name, _ in parts}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; expected {', '.join(name for name, _ in parts)}")
    parts = [(name, sweep) for name, sweep in parts if not chosen or name in chosen]
    folder, out = (args.folder / "tvm", TUNED_OUT) if args.tvm else (args.folder, OUT)
    measured = measure(parts, folder, minutes=args.minutes)
    if out.exists():
        measured = [*select_others(ngbkit.load(out), measured), *measured]
    save(ngbkit.merge(*measured), out, overwrite=True)
    print(out)


def select_others(data: Data, measured: list[Data]) -> list[Data]:
    """Return what an earlier file has of other networks, and of these at other batch sizes."""
    replaced = {
        (name, size)
        for part in measured
        for node in nodes(part).values()
        for name in list_labels(node, "workload")
        for size in list_labels(node, "batch_size")
    }
    others = []
    for node in nodes(data).values():
        for name in list_labels(node, "workload"):
            sizes = [size for size in list_labels(node, "batch_size") if (name, size) not in replaced]
            if sizes:
                others.append(expand_labels(node).sel(workload=[name], batch_size=sizes))
    return others


if __name__ == "__main__":
    main()
