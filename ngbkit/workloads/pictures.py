"""Pictures of a folder as samples of a network: resized, cropped and normalised as the network was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit.errors import MissingDependencyError, WorkloadError
from ngbkit.workloads import values
from ngbkit.workloads.base import Workload

_ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
# By content, whatever the ending says; others, such as EPS, would start programs.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "TIFF", "PPM")
# At even distances; half of them calibrate, and the others judge.
_MOST = 512
# https://docs.pytorch.org/vision/stable/models.html: most networks of ImageNet, where nothing else is published.
_MEAN, _DEVIATION, _CROP = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 0.875


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A conversion of a picture without its transparency to a sample: resized, cropped, normalised."""

    channels: int
    height: int
    width: int
    mean: Sequence[float] = _MEAN
    deviation: Sequence[float] = _DEVIATION
    crop: float = _CROP
    interpolation: str = "bilinear"
    origin: str = "as most networks of ImageNet, since the network publishes no other"

    def __str__(self) -> str:
        mean, deviation = ([round(float(value), 4) for value in each] for each in (self.mean, self.deviation))
        return (
            f"resized to cover {self._scale(self.height)} x {self._scale(self.width)} ({self.interpolation}), cropped "
            f"to {self.height} x {self.width}, {'RGB' if self.channels == 3 else 'grey'} from 0 to 1, less {mean} over "
            f"{deviation}: {self.origin}"
        )

    def _scale(self, side: int) -> int:
        return int(side / self.crop)

    def apply(self, picture: Any) -> np.ndarray:
        """Convert a picture of Pillow to an array (channels, height, width) of float32."""
        from PIL import Image

        converted = _to_eight_bits(picture).convert("RGB" if self.channels == 3 else "L")
        ratio = max(self._scale(self.width) / converted.width, self._scale(self.height) / converted.height)
        size = (max(self.width, round(converted.width * ratio)), max(self.height, round(converted.height * ratio)))
        left, top = (size[0] - self.width) // 2, (size[1] - self.height) // 2
        # Only what remains is resized: of a picture of 1 x 120,000, the whole would take gigabytes.
        across, down = converted.width / size[0], converted.height / size[1]
        box = (left * across, top * down, (left + self.width) * across, (top + self.height) * down)
        resampling = getattr(Image.Resampling, self.interpolation.upper())
        cropped = converted.resize((self.width, self.height), resampling, box)
        levels = np.asarray(cropped, np.float32).reshape(self.height, self.width, self.channels) / 255
        mean, deviation = (
            np.resize(np.asarray(each, np.float32), self.channels) for each in (self.mean, self.deviation)
        )
        return np.ascontiguousarray(((levels - mean) / deviation).transpose(2, 0, 1))


def _to_eight_bits(picture: Any) -> Any:
    """Convert a picture whose levels are beyond 8 bits, which Pillow cuts off at 255, or whose palette has alpha."""
    from PIL import Image

    if picture.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if picture.mode in ("I", "F"):
        raise ValueError(f"its levels of mode {picture.mode} have no range; save it with 8 or 16 bits")
    return picture.convert("RGBA") if picture.mode == "P" and "transparency" in picture.info else picture


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder of something else than the tensors of an ONNX test."""
    return path.is_dir() and not any(path.glob("input_*.pb"))


def load(folder: Path, workload: Workload) -> tuple[np.ndarray, Transform]:
    """Load the pictures below a folder as samples of a network, with the conversion; WorkloadError if one is bad."""
    transform = choose_transform(workload)
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in _ENDINGS and file.is_file())
    if not files:
        raise WorkloadError(
            f"invalid calibration data for {workload.name}: got the folder {folder} without a picture; expected files "
            f"{', '.join(_ENDINGS)}. Give another folder, or an .npz file of arrays by input name."
        )
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError("pillow", "notebook") from error
    count = min(len(files), _MOST)
    values.check_size(folder, count * 4 * transform.channels * transform.height * transform.width)
    arrays = []
    for file in (files[place * len(files) // count] for place in range(count)):
        try:
            with Image.open(file, formats=_FORMATS) as picture:
                arrays.append(transform.apply(picture))
        except Exception as error:  # the decoders of Pillow raise anything
            raise WorkloadError(
                f"invalid calibration data for {workload.name}: {file} cannot be read as a picture ({error}); expected "
                "a whole file. Remove it, or replace it."
            ) from error
    return np.stack(arrays), transform


def choose_transform(workload: Workload) -> Transform:
    """Choose the published conversion of a network of timm, or the usual one at the size of the only input."""
    if workload.source == "timm":
        return _find_published(workload)
    shapes = [tuple(spec.shape[1:]) for spec in workload.inputs if spec.batch_axis == 0]
    fits = len(workload.inputs) == 1 == len(shapes) and len(shapes[0]) == 3 and shapes[0][0] in (1, 3)
    if not fits or not all(isinstance(side, int) for side in shapes[0]):
        inputs = ", ".join(f"{spec.name} {spec.format_shape()}" for spec in workload.inputs)
        raise WorkloadError(
            f"invalid calibration data for {workload.name}: got a folder of pictures; expected a network with one "
            f"input (batch, 3, height, width) that is known here; it has {inputs or 'inputs that its device knows'}. "
            "Give an .npz file of arrays by input name."
        )
    channels, height, width = (int(side) for side in shapes[0])
    return Transform(channels=channels, height=height, width=width)


def _find_published(workload: Workload) -> Transform:
    """Find timm's own settings for a network, ``timm.data.resolve_data_config``."""
    try:
        from timm.data import resolve_data_config
        from timm.models import get_pretrained_cfg
    except ImportError as error:
        raise MissingDependencyError("timm", "torch") from error
    spec = workload.spec
    published = get_pretrained_cfg(spec["architecture"])
    config = resolve_data_config({}, pretrained_cfg=published.to_dict() if published else {})
    channels, *sides = config["input_size"]
    height, width = spec["img_size"] or sides
    return Transform(
        channels=int(spec["kwargs"].get("in_chans", channels)),
        height=int(height),
        width=int(width),
        mean=config["mean"],
        deviation=config["std"],
        crop=float(config["crop_pct"]),
        interpolation=str(config["interpolation"]),
        origin=f"timm's own for {spec['architecture']}",
    )
