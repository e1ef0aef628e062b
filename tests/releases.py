"""An index of wheels in a folder, of which uv installs environments without a network."""

from __future__ import annotations

import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path

# What a child of any release imports.
_HARNESS = ("attrs", "numpy", "psutil")


def build_index(folder: Path) -> Path:
    """Build an index of ``fakeruntime`` 1.0 and 1.1.0, and 0.9 for Python 3.6; return the settings of uv for it."""
    for name in _HARNESS:
        _pack_installed(name, folder)
    return write_index(folder, {"0.9": "cp36-none-any", "1.0": "py3-none-any", "1.1.0": "py3-none-any"})


def write_index(folder: Path, releases: Mapping[str, str], imports: Mapping[str, str] | None = None) -> Path:
    """Write an index of these releases of ``fakeruntime``, by the tag of each; return the settings of uv for it.

    Some have modules of another version.
    """
    for release, tag in releases.items():
        _write_wheel(folder, release, tag, (imports or {}).get(release, ""))
    settings = folder / "uv.toml"
    settings.write_text(f'offline = true\n[pip]\nno-index = true\nfind-links = ["{folder}"]\n')
    return settings


def _pack_installed(name: str, folder: Path) -> None:
    """Pack an installed distribution into a wheel."""
    distribution = metadata.distribution(name)
    tags = (line.partition(": ") for line in (distribution.read_text("WHEEL") or "").splitlines())
    tag = next(value for key, _, value in tags if key == "Tag")
    with zipfile.ZipFile(folder / f"{name}-{distribution.version}-{tag}.whl", "w") as wheel:
        for file in _list_files(distribution):
            wheel.write(Path(str(distribution.locate_file(file))), file)


def _list_files(distribution: metadata.Distribution) -> Iterator[str]:
    for path in distribution.files or ():
        file = path.as_posix()
        is_needed = not file.startswith("..") and "__pycache__" not in file and "/tests/" not in file
        if is_needed and Path(str(distribution.locate_file(file))).is_file():
            yield file


def _write_wheel(folder: Path, release: str, tag: str, imports: str = "") -> None:
    """Write a wheel whose module reports its release, or another version."""
    information = f"fakeruntime-{release}.dist-info"
    with zipfile.ZipFile(folder / f"fakeruntime-{release}-{tag}.whl", "w") as wheel:
        source = f"__version__ = '{imports or release}'\n"
        digest = urlsafe_b64encode(sha256(source.encode()).digest()).rstrip(b"=").decode()
        wheel.writestr("fakeruntime.py", source)
        wheel.writestr(f"{information}/METADATA", f"Metadata-Version: 2.1\nName: fakeruntime\nVersion: {release}\n")
        wheel.writestr(f"{information}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{information}/RECORD", f"fakeruntime.py,sha256={digest},{len(source)}\n")
