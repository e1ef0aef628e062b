"""Archives of unknown origin: only plain files are unpacked, and only below the folder."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path

import pytest

from ngbkit.errors import UsageError
from ngbkit.publish import unpacking


def write(target: Path, name: str, mode: int = stat.S_IFREG | 0o644) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        member = zipfile.ZipInfo(name)
        member.external_attr = mode << 16
        archive.writestr(member, "content")
    return target


def test_an_archive_and_a_folder_are_unpacked_alike(tmp_path: Path) -> None:
    """The files of both are in the new folder; links of a folder stay behind."""
    archive = write(tmp_path / "a.zip", "notebooks/a.ipynb")
    unpacking.unpack(archive, tmp_path / "first")
    (tmp_path / "first" / "link").symlink_to("/etc/hostname")
    unpacking.unpack(tmp_path / "first", tmp_path / "second")

    assert ["notebooks/a.ipynb"] == [
        path.relative_to(tmp_path / "second").as_posix() for path in (tmp_path / "second").rglob("*") if path.is_file()
    ]


@pytest.mark.parametrize(
    ("name", "mode", "fault"),
    [
        ("../outside", stat.S_IFREG, "leads out of its folder"),
        ("/outside", stat.S_IFREG, "leads out of its folder"),
        ("a/../../outside", stat.S_IFREG, "leads out of its folder"),
        ("a\\..\\outside", stat.S_IFREG, "leads out of its folder"),
        ("link", stat.S_IFLNK, "is no plain file"),
    ],
)
def test_a_file_outside_and_a_link_are_refused(tmp_path: Path, name: str, mode: int, fault: str) -> None:
    """Nothing of such an archive is written."""
    archive = write(tmp_path / "a.zip", name, mode)
    with pytest.raises(UsageError, match=rf"^invalid archive \S+: .* {fault}"):
        unpacking.unpack(archive, tmp_path / "folder")

    assert ["a.zip", "folder"] == sorted(path.name for path in tmp_path.iterdir())
    assert [] == list((tmp_path / "folder").iterdir())


def test_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text, a missing file, a damaged archive and one that is larger than the disk are named."""
    (tmp_path / "a.txt").write_text("text")
    archive = write(tmp_path / "a.zip", "a")
    damaged = tmp_path / "b.zip"
    damaged.write_bytes(archive.read_bytes().replace(b"content", b"changed"))
    for path in (tmp_path / "a.txt", damaged):
        with pytest.raises(UsageError, match=r"cannot be read as an archive: .*Download it again"):
            unpacking.unpack(path, tmp_path / "folder")
    with pytest.raises(UsageError, match="there is no file"):
        unpacking.unpack(tmp_path / "c.zip", tmp_path / "folder")
    monkeypatch.setattr(unpacking, "_MOST_BYTES", 3)
    with pytest.raises(UsageError, match="is too large"):
        unpacking.unpack(archive, tmp_path / "folder")
