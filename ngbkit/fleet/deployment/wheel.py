"""A wheel of the running ngbkit, from a checkout or from an installed wheel, for a device.

It is built without a build tool and without a network; the same contents give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import ngbkit
from ngbkit.errors import UsageError

_WHEEL = "Wheel-Version: 1.0\nGenerator: ngbkit\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
# The earliest date of a zip file.
_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX, _PLAIN_FILE = 3, 0o100644 << 16


def build(folder: Path) -> Path:
    """Write the wheel to a folder, which is created if it is missing; return its path."""
    distribution = _find_distribution()
    info = f"ngbkit-{distribution.version}.dist-info"
    contents = {name: path.read_bytes() for name, path in _list_package_files()}
    contents |= {f"{info}/{name}": text for name, text in _build_metadata(distribution)}
    lines = "".join(f"{name},sha256={_hash(content)},{len(content)}\n" for name, content in contents.items())
    contents[f"{info}/RECORD"] = f"{lines}{info}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"ngbkit-{distribution.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr, entry.compress_type = _UNIX, _PLAIN_FILE, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


def list_extras() -> list[str]:
    """List the extras of this ngbkit."""
    return _find_distribution().metadata.get_all("Provides-Extra") or []


def _find_distribution() -> metadata.Distribution:
    try:
        distribution = metadata.distribution("ngbkit")
    except metadata.PackageNotFoundError:
        distribution = None
    if distribution is None or distribution.read_text("METADATA") is None:
        raise UsageError(
            "this ngbkit runs from a folder without being installed, so its requirements are unknown: install it "
            "(`pip install -e .` in its checkout) and deploy again."
        )
    return distribution


def _list_package_files() -> Iterator[tuple[str, Path]]:
    """List the files of the package by name, sorted, without hidden files and byte code."""
    root = Path(ngbkit.__file__).parent
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        is_excluded = any(part.startswith(".") or part == "__pycache__" for part in parts) or path.suffix == ".pyc"
        if path.is_file() and not is_excluded:
            yield "/".join(("ngbkit", *parts)), path


def _build_metadata(distribution: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """Build the wheel's metadata: as it was installed, except for the builder."""
    for name in ("METADATA", "entry_points.txt"):
        yield name, (distribution.read_text(name) or "").encode()
    yield "WHEEL", _WHEEL.encode()
    for file in sorted(distribution.files or (), key=str):
        if file.parts[0].endswith(".dist-info") and file.parts[1:2] == ("licenses",):
            yield "/".join(file.parts[1:]), file.read_binary()


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
