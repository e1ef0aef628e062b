"""The files that a panel hands over: pictures of a figure, the table of its trials, and the dataset."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ngbkit import figures
from ngbkit.dataset import storage
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError
from ngbkit.metrics import frames
from ngbkit.user_text import format_size

# A longer message would end the connection of many servers.
_MOST_BYTES = 100_000_000
_UNSAFE = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A file for the browser to save."""

    name: str
    mime: str
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A format of a figure: its suffix, its MIME type, and its width in millimetres, if it is for paper."""

    suffix: str
    mime: str
    width: float | None = None


PICTURES: Mapping[str, Picture] = {
    "PNG": Picture(suffix=".png", mime="image/png"),
    "SVG": Picture(suffix=".svg", mime="image/svg+xml"),
    "PDF 88 mm": Picture(suffix=".pdf", mime="application/pdf", width=88),
    "PDF 180 mm": Picture(suffix=".pdf", mime="application/pdf", width=180),
    "LaTeX 88 mm": Picture(suffix=".tex", mime="text/x-tex", width=88),
    "LaTeX 180 mm": Picture(suffix=".tex", mime="text/x-tex", width=180),
}
KINDS = (*PICTURES, "CSV", "NetCDF")
"""The files, by the text of their buttons."""


def export_figure(kind: str, name: str, figure: str, draw: Callable[[], Any]) -> Export:
    """Write a figure of the dataset in a variable as one of `PICTURES`; `draw` draws it."""
    picture = PICTURES[kind]
    size = "" if picture.width is None else f"-{picture.width:g}mm"
    target = f"{name}-{figure}{size}{picture.suffix}"
    return _export(target, picture.mime, lambda path: figures.save(draw(), path, width=picture.width))


def export_table(data: Data, name: str, labels: Mapping[str, list[Any]]) -> Export:
    """Write the trials that have these labels as CSV, with all that was measured of each."""
    frame = frames.to_dataframe(data)
    for dim, selected in labels.items():
        frame = frame[frame[dim].isin(selected)]
    return _export(f"{name}-trials.csv", "text/csv", lambda path: frames.write(frame, path))


def export_dataset(data: Data, name: str) -> Export:
    """Write a dataset whole."""
    return _export(f"{name}.nc", "application/x-netcdf", lambda path: storage.save(data, path))


def _export(name: str, mime: str, write: Callable[[Path], object]) -> Export:
    """Write a file in a folder of its own, which nobody sees, and return its content."""
    name = _UNSAFE.sub("-", name)
    with TemporaryDirectory(prefix="ngbkit-") as folder:
        path = Path(folder) / name
        write(path)
        content = path.read_bytes()
    if len(content) > _MOST_BYTES:
        raise UsageError(
            f"{name} is too large for a download: got {format_size(len(content))}; expected at most "
            f"{format_size(_MOST_BYTES)}. Write it in a cell: ngbkit.save(ds, {name!r})."
        )
    return Export(name=name, mime=mime, content=content)
