"""A folder of pictures calibrates a network, converted as the network was published."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ngbkit import Sweep
from ngbkit.errors import NgbkitError
from ngbkit.workloads import pictures, samples, timm
from ngbkit.workloads.base import Workload


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six pictures, some of them in a folder of a class, of one grey level each."""
    (tmp_path / "class").mkdir()
    for place in range(6):
        picture = Image.new("RGB", (40 + place, 30), (40 * place, 40 * place, 40 * place))
        picture.save(tmp_path / ("class" if place % 2 else "") / f"{place}.png")
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_pictures_are_converted_as_timm_publishes_it(folder: Path) -> None:
    """The size, the crop and the normalisation are those of the network, and the conversion is part of the artifact."""
    (workload,) = Sweep(timm.model("resnet18", img_size=32), calibrate=str(folder)).workloads
    arrays = samples._read_arrays(workload.artifacts[workload.calibration])
    text = samples.read_transform(workload)
    levels = sorted(np.unique(arrays["0"][:, 0]))

    assert (6, 3, 32, 32) == arrays["0"].shape
    np.testing.assert_allclose([(40 * place / 255 - 0.485) / 0.229 for place in range(6)], levels, rtol=1e-4)
    assert "cropped to 32 x 32, RGB from 0 to 1" in text
    assert text.endswith("timm's own for resnet18")


def test_other_networks_get_the_usual_conversion() -> None:
    """A picture is covered, not stretched: its centre stays, and grey networks get one channel."""
    transform = pictures.Transform(channels=1, height=8, width=16, mean=(0.0,), deviation=(1.0,))
    wide = Image.new("RGB", (100, 20), (255, 255, 255))
    array = transform.apply(wide)

    assert (1, 8, 16) == array.shape
    np.testing.assert_allclose(1.0, array)
    assert "as most networks of ImageNet" in str(transform)


@pytest.mark.parametrize("size", [(1, 120_000), (120_000, 1)])
def test_only_what_remains_is_resized(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture of one pixel by many would take gigabytes at the size that covers the network's input."""
    sizes: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def record(picture: Image.Image, size: tuple[int, int], *more: Any) -> Image.Image:
        sizes.append(size)
        return resize(picture, size, *more)

    monkeypatch.setattr(Image.Image, "resize", record)
    transform = pictures.Transform(channels=3, height=224, width=192, mean=(0.0,), deviation=(1.0,))

    np.testing.assert_allclose(transform.apply(Image.new("RGB", size, (51, 51, 51))), 0.2)
    assert [(192, 224)] == sizes


def make_pictures() -> dict[str, Image.Image]:
    """Make a picture of the same grey in each mode that files have, of different sizes."""
    grey = Image.new("L", (20, 30), 100)
    palette = grey.convert("P")
    palette.info["transparency"] = bytes([0] * 100)
    deep = Image.fromarray(np.full((30, 24), 100 * 257, np.uint16))
    modes = {name: grey.resize((16 + place, 40)).convert(name) for place, name in enumerate(("L", "LA", "RGB", "RGBA"))}
    return {**modes, "P": palette, "I;16": deep, "CMYK": grey.convert("RGB").convert("CMYK")}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("channels", [1, 3])
def test_each_mode_has_the_same_levels(channels: int, tmp_path: Path) -> None:
    """Grey, alpha, palettes and 16 bits become the same sample as RGB, and Pillow warns of nothing."""
    transform = pictures.Transform(channels=channels, height=8, width=8, mean=(0.0,), deviation=(1.0,))
    for name, picture in make_pictures().items():
        path = tmp_path / f"picture.{'tif' if name in ('CMYK', 'I;16') else 'png'}"
        picture.save(path)
        with Image.open(path) as opened:
            np.testing.assert_allclose(transform.apply(opened), 100 / 255, atol=0.01, err_msg=name)


def test_levels_without_a_range_are_refused(tmp_path: Path) -> None:
    """Numbers of 32 bits have no white; the sentence names the file and the remedy."""
    Image.fromarray(np.ones((9, 9), np.float32)).save(tmp_path / "float.tif")

    with pytest.raises(NgbkitError, match=r"float.tif cannot be read .*its levels of mode F have no range"):
        pictures.load(tmp_path, timm.model("resnet18", img_size=32))


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("empty", "without a picture; expected files .png"),
        ("unreadable", "broken.png cannot be read as a picture"),
        ("program", r"broken.png cannot be read as a picture \(cannot identify"),
    ],
)
def test_a_folder_that_calibrates_nothing_is_refused(fault: str, message: str, tmp_path: Path) -> None:
    """Each fault of a folder has a sentence of its own."""
    if fault == "unreadable":
        (tmp_path / "broken.png").write_bytes(b"\\x89PNG and no more")
    elif fault == "program":  # for which Pillow starts Ghostscript
        Image.new("L", (9, 9)).save(tmp_path / "broken.png", "EPS")
    with pytest.raises(NgbkitError, match=message):
        pictures.load(tmp_path, timm.model("resnet18", img_size=32))


def test_a_network_without_pictures_says_so(mlp: Workload, folder: Path) -> None:
    """A folder of pictures calibrates no network of other inputs."""
    with pytest.raises(NgbkitError, match="got a folder of pictures; expected a network with one input"):
        Sweep(mlp, calibrate=str(folder))
