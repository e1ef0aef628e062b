"""The pictures that pages show by Markdown: files in the folder of the notebooks, which are copied for the site."""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ngbkit.errors import UsageError
from ngbkit.publish.cells import read_notebook
from ngbkit.publish.sanitise import list_tokens


def list_images(source: Path) -> dict[str, Path]:
    """List the pictures of a page by their quoted paths in its folder; UsageError for a path to none."""
    root = source.parent.resolve()
    names = dict.fromkeys(posixpath.normpath(address.lstrip("/")) for address in _list_addresses(source))
    pictures = {name: root / unquote(name) for name in names}
    for name, picture in pictures.items():
        if name.startswith("..") or not picture.resolve().is_relative_to(root) or not picture.is_file():
            raise UsageError(
                f"invalid picture in {source.name}: got {name}; expected a file in {source.parent}. Copy it there."
            )
    return pictures


def copy_images(source: Path, folder: Path) -> list[Path]:
    """Copy the pictures of a page, with their folders, into a folder, and return the copies."""
    pictures = list_images(source)
    for name, picture in pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, folder / name)
    return [folder / name for name in pictures]


def _list_addresses(source: Path) -> Iterator[str]:
    """Yield the addresses of the pictures of a page that are paths."""
    if source.suffix == ".ipynb":
        cells = read_notebook(source)["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    else:
        texts = [source.read_text(encoding="utf-8")]
    for text in texts:
        for token in list_tokens(text):
            if token.type == "image":
                parts = urlsplit(str(token.attrs["src"]))
                if not (parts.scheme or parts.netloc):
                    yield parts.path
