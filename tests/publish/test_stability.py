"""The same notebooks and recordings give the same site, byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from ngbkit.publish import publish


def test_a_second_build_has_the_same_bytes(folder: Path, site: Path, tmp_path: Path) -> None:
    """A first build in another folder, home and time zone has the same files and the same archive as a later one."""
    shutil.copytree(folder, tmp_path / "elsewhere" / "notebooks")
    environment = {**os.environ, "HOME": str(tmp_path), "NGBKIT_STATE_DIR": str(tmp_path / "state"), "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-m", "ngbkit", "publish", "notebooks", "-o", "pages", "--quiet"]
    subprocess.run(command, cwd=tmp_path / "elsewhere", env=environment, check=True)
    publish(folder, site)

    assert [] == list_differences(site, tmp_path / "elsewhere" / "pages")


def list_differences(*sites: Path) -> list[str]:
    """The files that two sites do not share, and those with other bytes, each with its first difference."""
    first, second = (
        {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}
        | {f"archive.zip/{entry.filename}": repr(entry).encode() for entry in list_entries(site)}
        for site in sites
    )
    lines = [f"{name}: in one site only" for name in sorted(first.keys() ^ second.keys())]
    for name in sorted(first.keys() & second.keys()):
        if first[name] != second[name]:
            pairs = enumerate(zip(first[name], second[name], strict=False))
            start = max(next((index for index, (left, right) in pairs if left != right), 0) - 40, 0)
            excerpts = [content[name][start : start + 120] for content in (first, second)]
            lines.append(f"{name}: {excerpts[0]!r} and {excerpts[1]!r}")
    return lines


def list_entries(site: Path) -> list[zipfile.ZipInfo]:
    with zipfile.ZipFile(site / "archive.zip") as archive:
        return archive.infolist()
