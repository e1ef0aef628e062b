"""The files that travel with a site: its notebooks, what they read of the files beside them, and pictures of pages."""

from __future__ import annotations

import posixpath
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ngbkit.errors import UsageError
from ngbkit.files import list_files
from ngbkit.publish.cells import find_modules, read_code, read_notebook
from ngbkit.publish.sanitise import list_tokens
from ngbkit.user_text import join_names

# Files that define networks travel wherever they are; other files only if they are in `data`.
_NETWORKS = frozenset({".py", ".onnx", ".data"})
# A path with a folder, in the words of a line or in a text.
_PATH = re.compile(r"[^\s\"'=,()\[\]]*/[^\s\"'=,()\[\]]+\.(?:onnx|py)\b")


def copy_sources(notebook: Path, reads: Iterable[str], folder: Path) -> set[Path]:
    """Copy a notebook, the modules that it imports and the data that it reads into a folder; return the originals."""
    files = set(_list_sources(notebook, reads))
    for file in files:
        copy = folder / file.relative_to(notebook.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return files


def describe_data(folder: Path, copied: set[Path]) -> Iterator[str]:
    """Yield a sentence on the files in `data` that travel, and one on those that no notebook reads."""
    data = list_files(folder / "data")
    for sentence, files in (
        ("in the archive", [file for file in data if file in copied]),
        ("not in the archive, since no notebook reads them", [file for file in data if file not in copied]),
    ):
        if names := sorted({file.relative_to(folder).as_posix() for file in files}):
            yield f"{sentence}: {join_names(names)}"


def describe_outside(notebooks: Iterable[Path]) -> Iterator[str]:
    """Yield a sentence on the networks that notebooks name and that are outside of their folder."""
    names: set[str] = set()
    for notebook in notebooks:
        folder = notebook.parent.resolve()
        for name in set(_PATH.findall(read_code(notebook))):
            file = folder / Path(name).expanduser()
            if file.is_file() and not file.resolve().is_relative_to(folder):
                names.add(name)
    if names:
        yield (
            f"not in the archive, since they are outside of the folder of the notebooks: {join_names(sorted(names))}. "
            "Copy them beside the notebooks, or a reader cannot run these cells."
        )


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


def _list_sources(notebook: Path, reads: Iterable[str]) -> Iterator[Path]:
    """Yield a notebook, its modules and its data: what its kernel read, and what its code names."""
    folder, modules = notebook.parent, find_modules(notebook)
    yield from (notebook, *modules)
    code = "\n".join([read_code(notebook), *(module.read_text(errors="replace") for module in modules)])
    data = [file for file in list_files(folder / "data") if folder / "data" / "recorded" not in file.parents]
    # A library of C opens files that the kernel does not notice.
    mentions = [file for file in data if file.relative_to(folder).as_posix() in code]
    for path in (*map(folder.joinpath, reads), *mentions):
        for file in list_files(path) if path.is_dir() else [path]:
            parts = file.relative_to(folder).parts
            is_hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
            is_inside = file.is_file() and file.resolve().is_relative_to(folder.resolve())
            if is_inside and not is_hidden and (parts[0] == "data" or file.suffix in _NETWORKS):
                yield file


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
