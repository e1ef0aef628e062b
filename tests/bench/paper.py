"""Repeats the paper's evaluation on this machine: its fifteen networks and both blocks, at up to six batch sizes.

Run it on a quiet machine; it takes about three hours, resumes after any interruption, and writes the results so far to
notebooks/data/paper.nc, which notebooks/03-paper.ipynb reads. The smallest network of each family is measured at all
batch sizes, the larger ones at fewer. ``--only conv,mha`` measures these parts alone, and puts them in the place of
what the file has of them. Further parts are measured only by name: ``heads``, ``sequence``, ``kernel`` and ``size``,
of one block each, are the quickest; ``mha-384`` and ``conv-128`` are of more widths. They take 100 repeats, as in the
paper, or as many as a minute a group allows.

``--tvm`` measures TVM, too, in notebooks/data/paper-tvm.nc, beside the other compilers. The paper tuned it for hours to
days per network (its table III). Here it tries as many candidates as ``--candidates`` says, of the smallest network of
each family and of both blocks: some minutes each, and kept for the next time.

``--larger`` adds the ten larger networks at batch sizes 8 to 32 in notebooks/data/paper-larger.nc: it measures for
``--minutes`` the trials that tell most about the fastest compiler, and predicts the others, from these and from
notebooks/data/paper.nc, which has the same networks at smaller batch sizes. Repeat it to measure more. ``--rest`` then
measures the others, and again what other work slowed, in notebooks/data/paper-larger-measured.nc: it shows whether
the predictions were right.

``--releases`` measures the compilers at the paper's versions beside today's, in the same rounds, in
notebooks/data/paper-releases.nc: the smallest network of each family, and both blocks at depths 1 to 6. It takes 45
minutes, and 6 GB for the environments of the releases.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import xarray as xr
from parts import go_on, measure

import ngbkit
from ngbkit import Sweep, blocks, paper
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import expand_labels, list_labels
from ngbkit.dataset.storage import Data, save
from ngbkit.sweep.records import INCONCLUSIVE

DATA = Path(__file__).parents[2] / "notebooks" / "data"
OUT, TUNED_OUT = DATA / "paper.nc", DATA / "paper-tvm.nc"
RELEASES_OUT = DATA / "paper-releases.nc"
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
#: The paper's other widths, and what it varied beside width and depth: of one block, at the smallest width.
WIDE, WIDE_EMBEDDING = 128, 384
HEADS, SEQUENCES, KERNELS, SIDES = [2, 4, 8, 16], [10, 50, 200], [1, 3, 5], [61, 122, 244]
MANY = SETTINGS | {"repeats": 100, "max_seconds": 60.0}
#: The versions of section V-A, and OpenVINO as the paper optimises it where throughput is the criterion.
_THROUGHPUT = '{"hint":"throughput"}'
RELEASES = [
    *("identity@2.4.1", "torchscript@2.4.1", "onnxruntime@1.19.2", "openvino@2024.3.0"),
    *(f"openvino@2024.3.0{_THROUGHPUT}", f"openvino{_THROUGHPUT}"),
]


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


def build_further_sweeps() -> Iterator[tuple[str, Sweep]]:
    """Yield the parts that are measured only by name, the quickest first."""
    few: dict[str, Any] = {"batch_sizes": [1, 8], **MANY}
    width, embedding = WIDTHS[0], EMBEDDINGS[0]
    yield "heads", Sweep(blocks.mha(embedding, 1, heads=HEADS, name="mha-heads"), **few)
    yield "sequence", Sweep(blocks.mha(embedding, 1, sequence=SEQUENCES, name="mha-sequence"), **few)
    yield "kernel", Sweep(blocks.conv(width, 1, size=SIDES[0], kernel=KERNELS, name="conv-kernel"), **few)
    yield "size", Sweep(blocks.conv(width, 1, name="conv-size"), factors={"size": SIDES}, **few)
    yield f"mha-{WIDE_EMBEDDING}", Sweep(blocks.mha(WIDE_EMBEDDING, DEPTHS), batch_sizes=SIZES, **MANY)
    yield f"conv-{WIDE}", Sweep(blocks.conv(WIDE, DEPTHS, size=PIXELS), batch_sizes=SIZES[:3], **MANY)


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


def build_release_sweeps() -> Iterator[tuple[str, Sweep]]:
    """Yield the parts with the paper's versions by name, the quick ones first."""
    zoo = {workload.name: workload for workload in paper.zoo()}
    settings = SETTINGS | {"compilers": [*COMPILERS, *RELEASES]}
    networks = [zoo[members[0]] for members in paper.FAMILIES.values()]
    attention = [("mha", blocks.mha(EMBEDDINGS[:1], range(1, 7)), size) for size in (1, 8)]
    convolutions = [("conv", blocks.conv(WIDTHS[:1], range(1, 7), size=PIXELS), 1)]
    parts = [(workload.name, workload, size) for size in TUNED_SIZES for workload in networks]
    for name, workload, size in [*parts[:10], *attention, *convolutions, *parts[10:]]:
        yield f"{name}-{size}", Sweep(workload, batch_sizes=[size], **settings)


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
    mode.add_argument("--releases", action="store_true", help="measure the paper's versions beside today's")
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
            parser.error("what a budget measures has no parts: leave out --only.")
        guidance: dict[str, Any] = {"budget": 60 * args.minutes, "earlier": OUT}
        out = LARGER_OUT
        if args.rest:
            guidance, out = {"retry": [INCONCLUSIVE]}, REST_OUT
        run = go_on("larger", build_larger_sweep(), args.folder / "larger", **guidance)
        save(run.dataset(), out, overwrite=True)
        print(out)
        return
    chosen = set(filter(None, args.only.split(",")))
    further: dict[str, Sweep] = {}
    if args.tvm:
        parts, folder, out = dict(build_tuned_sweeps(args.candidates)), args.folder / "tvm", TUNED_OUT
    elif args.releases:
        parts, folder, out = dict(build_release_sweeps()), args.folder / "releases", RELEASES_OUT
    else:
        parts, further, folder, out = dict(build_sweeps()), dict(build_further_sweeps()), args.folder, OUT
    if unknown := chosen - {*parts, *further}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; expected {', '.join([*parts, *further])}")
    selected = [(name, sweep) for name, sweep in (parts | further).items() if name in (chosen or parts)]
    measured = measure(selected, folder, minutes=args.minutes)
    if out.exists():
        measured = [*select_others(ngbkit.load(out), measured), *measured]
    save(ngbkit.merge(*measured), out, overwrite=True)
    print(out)


def select_others(data: Data, measured: list[Data]) -> list[Data]:
    """Return what an earlier file has of other networks and widths, and of these at other batch sizes."""
    replaced = {
        (*key, size)
        for part in measured
        for node in nodes(part).values()
        for key, network in iterate_networks(node)
        for size in list_labels(network, "batch_size")
    }
    others: list[xr.Dataset | xr.DataTree] = []
    for node in nodes(data).values():
        for key, network in iterate_networks(node):
            sizes = [size for size in list_labels(network, "batch_size") if (*key, size) not in replaced]
            if sizes:
                others.append(network.sel(batch_size=sizes))
    return others


def iterate_networks(node: xr.Dataset) -> Iterator[tuple[tuple[Any, Any], xr.Dataset]]:
    """Yield the trials of each network at each width, by both; the width is None where none is swept."""
    node = expand_labels(node)
    for name in list_labels(node, "workload"):
        for width in list_labels(node, "width") or [None]:
            labels = {"workload": [name]} if width is None else {"workload": [name], "width": [width]}
            yield (name, width), node.sel(labels)


if __name__ == "__main__":
    main()
