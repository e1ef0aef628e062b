"""Three published ONNX files, downloaded as parts of packages of the ordinary registry.

They were exported by other tools: a detector of text lines and a classifier of their direction (PaddleOCR, as
rapidocr-onnxruntime ships them), and a classifier of file contents (magika). All dimensions but the batch are fixed
here to the sizes that these programs use.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

# package and version, member of its wheel, name here, shape of each input without the batch
FILES = (
    (
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "textlines",
        [3, 640, 640],
    ),
    (
        "rapidocr-onnxruntime==1.4.4",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "direction",
        [3, 48, 192],
    ),
    ("magika==1.0.3", "magika/models/standard_v3_3/model.onnx", "filetype", [2048]),
)


def collect(folder: Path) -> list[Path]:
    """Return the files in `folder`; missing ones are downloaded by pip."""
    folder.mkdir(parents=True, exist_ok=True)
    for package, member, name, shape in FILES:
        path = folder / f"{name}.onnx"
        if not path.exists():
            _fetch(package, member, path, shape)
    return [folder / f"{name}.onnx" for _, _, name, _ in FILES]


def _fetch(package: str, member: str, path: Path, shape: list[int]) -> None:
    with TemporaryDirectory() as wheels:
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, package]
        subprocess.run(fetch, check=True)
        (wheel,) = Path(wheels).iterdir()
        with zipfile.ZipFile(wheel) as archive:
            model = onnx.load_from_string(archive.read(member))
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
