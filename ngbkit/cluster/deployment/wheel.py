"""A wheel of the ngbkit that runs now, from a checkout or from an installed wheel: what travels to a device.

Made without a build tool and without a network, and the same byte for byte as long as its contents are the same.
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
# The first that a zip file can tell.
_DATE = (1980, 1, 1, 0, 0, 0)
_UNIX, _PLAIN_FILE = 3, 0o100644 << 16


def build(folder: Path) -> Path:
    """Write the wheel into `folder`, which is made where it is missing; its path.

    Raises
    ------
    UsageError
        This ngbkit was never installed, so that nothing says what it needs.
    """
    found = _distribution()
    about = f"ngbkit-{found.version}.dist-info"
    contents = {name: path.read_bytes() for name, path in _package()}
    contents |= {f"{about}/{name}": text for name, text in _metadata(found)}
    listed = "".join(f"{name},sha256={_hash(content)},{len(content)}\n" for name, content in contents.items())
    contents[f"{about}/RECORD"] = f"{listed}{about}/RECORD,,\n".encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"ngbkit-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr, entry.compress_type = _UNIX, _PLAIN_FILE, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


def extras() -> list[str]:
    """The extras that this ngbkit says it has."""
    return _distribution().metadata.get_all("Provides-Extra") or []


def _distribution() -> metadata.Distribution:
    try:
        found = metadata.distribution("ngbkit")
    except metadata.PackageNotFoundError:
        found = None
    if found is None or found.read_text("METADATA") is None:
        raise UsageError(
            "this ngbkit runs from a folder and was never installed, so that nothing says what it needs on a device: "
            "install it (`pip install -e .` in its checkout) and deploy again."
        )
    return found


def _package() -> Iterator[tuple[str, Path]]:
    """The files of the package, sorted, without what Python and editors leave beside them."""
    root = Path(ngbkit.__file__).parent
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        left_out = any(part.startswith(".") or part == "__pycache__" for part in parts) or path.suffix == ".pyc"
        if path.is_file() and not left_out:
            yield "/".join(("ngbkit", *parts)), path


def _metadata(found: metadata.Distribution) -> Iterator[tuple[str, bytes]]:
    """What the wheel says about itself: as it was installed, except for who built it and how."""
    for name in ("METADATA", "entry_points.txt"):
        yield name, (found.read_text(name) or "").encode()
    yield "WHEEL", _WHEEL.encode()
    for file in sorted(found.files or (), key=str):
        if file.parts[0].endswith(".dist-info") and file.parts[1:2] == ("licenses",):
            yield "/".join(file.parts[1:]), file.read_binary()


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
