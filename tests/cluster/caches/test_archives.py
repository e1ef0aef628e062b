"""Hostile archives, each built by hand; ngbkit would never write one."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from keeping import META, run_cache

from ngbkit.cluster.caches import tar, transfer
from ngbkit.commands.answer import Answer
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.hardware import environment


def build_member(name: str, content: bytes, **fields: Any) -> bytes:
    """Build one file of a tar archive."""
    header = tarfile.TarInfo(name)
    header.size = len(content)
    for field, value in fields.items():
        setattr(header, field, value)
    return header.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


END = b"\0" * 1024
RECORD = "tvm/ab12/records.json"


def list_entries(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"name": name, "bytes": len(content), "hash": hashlib.blake2b(content, digest_size=16).hexdigest()}
        for name, content in files.items()
    ]


def build_manifest(entries: Any, **fields: Any) -> bytes:
    manifest = {"format": 1, "chip": environment.read_chip(), "accelerator": "cpu", "files": entries, **fields}
    return build_member("manifest.json", json.dumps(manifest).encode())


def build_archive(extra: Mapping[str, bytes], members: Iterable[bytes] | None = None, meta: Any = META) -> bytes:
    """Build an archive with one valid result and these further files."""
    files = {"tvm/ab12/meta.json": json.dumps(meta).encode(), RECORD: b"records", **extra}
    packed = [build_member(name, content) for name, content in files.items()] if members is None else list(members)
    return build_manifest(list_entries(files)) + b"".join(packed) + END


def build_endless_header() -> bytes:
    """Build the header of a manifest of the largest possible size."""
    header = tarfile.TarInfo("manifest.json")
    header.size = 8**11 - 1
    return header.tobuf()


SOUND = build_archive({})
SOUND_META = build_member("tvm/ab12/meta.json", json.dumps(META).encode())
LINKS = {
    "symbolic": {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"},
    "hard": {"type": tarfile.LNKTYPE, "linkname": "manifest.json"},
    "device": {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 5},
    "pipe": {"type": tarfile.FIFOTYPE},
    "folder": {"type": tarfile.DIRTYPE},
    "sparse": {"type": tarfile.GNUTYPE_SPARSE},
    "long name": {"type": tarfile.GNUTYPE_LONGNAME},
    "extended": {"type": tarfile.XHDTYPE},
    "global": {"type": tarfile.XGLTYPE},
}
HOSTILE: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "no archive": lambda: b"x" * 5000,
    "an empty archive": lambda: END,
    "no manifest": lambda: SOUND_META + END,
    "a manifest that is a link": lambda: build_member("manifest.json", b"", **LINKS["symbolic"]) + END,
    "a manifest without end": build_endless_header,
    "a large manifest": lambda: build_member("manifest.json", b" " * (1 << 24) + b"{}") + END,
    "no JSON": lambda: build_member("manifest.json", b"{") + END,
    "a list": lambda: build_member("manifest.json", b"[]") + END,
    "JSON of great depth": lambda: build_member("manifest.json", b"[" * 1_000_000) + END,
    "another format": lambda: build_manifest([], format=2) + END,
    "no list of files": lambda: build_manifest(None) + END,
    "files that are no objects": lambda: build_manifest(["a"]) + END,
    "files of other fields": lambda: build_manifest([{"path": "a"}]) + END,
    "files of wrong types": lambda: build_manifest([{"name": 1, "bytes": "2", "hash": None}]) + END,
    "a negative size": lambda: build_manifest([{"name": RECORD, "bytes": -1, "hash": "0" * 32}]) + END,
    "a hash that is none": lambda: build_manifest([{"name": RECORD, "bytes": 1, "hash": "../" * 10}]) + END,
    "a file twice": lambda: build_manifest(list_entries({RECORD: b""}) * 2) + END,
    "a file twice on some file systems": lambda: build_manifest(list_entries({RECORD: b"", RECORD.upper(): b""})) + END,
    "a file that is a folder too": lambda: build_archive({f"{RECORD}/more.json": b"{}"}),
    "a meta that is a folder": lambda: (
        build_manifest(list_entries({"tvm/ab12/meta.json/x.txt": b""}))
        + build_member("tvm/ab12/meta.json/x.txt", b"")
        + END
    ),
    "more than it may unpack to": lambda: (
        build_manifest([{"name": RECORD, "bytes": transfer.MAX_BYTES + 1, "hash": "0" * 32}]) + END
    ),
    "too few files": lambda: build_archive({}, [SOUND_META]),
    "too many files": lambda: build_archive({})[:-1024] + build_member("tvm/ab12/more.json", b"{}") + END,
    "files in another order": lambda: build_archive({}, [build_member(RECORD, b"records"), SOUND_META]),
    "another content": lambda: build_archive({}, [SOUND_META, build_member(RECORD, b"RECORDS")]),
    "another size": lambda: build_archive({}, [SOUND_META, build_member(RECORD, b"records and more")]),
    "another name": lambda: build_archive({}, [SOUND_META, build_member("tvm/ab12/other.json", b"records")]),
    "a library that was changed": lambda: (
        build_archive({"tvm/ab12/a.so": b"ELF"})[:-2048] + build_member("tvm/ab12/a.so", b"EVI")
    ),
    "a cut": lambda: SOUND[:-1500],
    "no end": lambda: SOUND[:-1024],
    "a flipped bit in a header": lambda: SOUND.replace(b"tvm/ab12/records.json\0", b"tvm/ab13/records.json\0", 1),
    "a compressed archive that is cut": lambda: gzip.compress(SOUND)[:-20],
    "a compressed archive that is damaged": lambda: (
        gzip.compress(SOUND)[:40] + b"\xff" * 40 + gzip.compress(SOUND)[80:]
    ),
    "no meta": lambda: build_manifest(list_entries({RECORD: b"records"})) + build_member(RECORD, b"records") + END,
    "a meta that is none": lambda: build_archive({}, meta=[]),
    "a meta without candidates": lambda: build_archive({}, meta={**META, "candidates": "many"}),
    "a meta of fewer than no candidates": lambda: build_archive({}, meta={**META, "candidates": -1}),
    "a meta without versions": lambda: build_archive({}, meta={**META, "versions": None}),
    "a result in two parts": lambda: build_archive(
        {
            "tvm/cd34/meta.json": json.dumps(META).encode(),
            "tvm/ab12/other.json": b"{}",
        }
    ),
}
OUTSIDE = [
    "../../../evil.json",
    "/tmp/evil.json",
    "tvm/../../../evil.json",
    "tvm/ab12/../../evil.json",
    "tvm/ab12/./evil.json",
    "tvm/ab12//evil.json",
    "tvm/ab12/",
    "tvm/ab12",
    "evil.json",
    "tvm/ab12/.bashrc",
    ".tvm/ab12/evil.json",
    "tvm/.ab12.in/evil.json",
    "tvm/ab12/a\\..\\evil.json",
    "tvm/ab12/C:evil.json",
    "tvm/ab12/evil\n.json",
    "tvm/ab12/évil.json",
    "tvm/ab12/evil.json\0.txt",
    "tvm/ab12/" + "a/" * 8 + "evil.json",
    "tvm/ab12/" + "a" * 200 + ".json",
]


def import_bytes(content: bytes, tmp_path: Path, *words: str) -> Answer:
    file = tmp_path / "hostile.tar"
    file.write_bytes(content)
    return run_cache("import", str(file), "--with-libraries", "--anyway", *words)


def list_paths(folder: Path) -> set[str]:
    """List every path below a folder, except those of the lock."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "devices" not in path.parts}


def check_refused(content: bytes, state_dir: Path, tmp_path: Path) -> None:
    """Check that an import refuses the archive, and leaves nothing behind in the state folder or beside it."""
    (state_dir / "tuning" / "cpu").mkdir(parents=True)
    paths, neighbours = list_paths(state_dir), set(state_dir.parent.iterdir())
    with pytest.raises(UsageError, match=r"hostile\.tar"):
        import_bytes(content, tmp_path)

    assert paths == list_paths(state_dir)
    assert neighbours == set(state_dir.parent.iterdir())


def test_a_valid_archive_built_by_hand_is_imported(state_dir: Path, tmp_path: Path) -> None:
    """Otherwise the refusals below would prove nothing."""
    import_bytes(SOUND, tmp_path)

    assert "records" == (state_dir / "tuning" / "cpu" / "tvm" / "ab12" / "records.json").read_text()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_changed_archive_is_refused(state_dir: Path, tmp_path: Path, name: str) -> None:
    """The error names the file; nothing is installed."""
    check_refused(HOSTILE[name](), state_dir, tmp_path)


@pytest.mark.parametrize("kind", LINKS)
def test_only_plain_files_are_accepted(state_dir: Path, tmp_path: Path, kind: str) -> None:
    """Links, devices, pipes and folders are refused, and extended headers, which have no size limit."""
    content = b"" if kind in ("symbolic", "hard", "device", "pipe", "folder") else b"records"
    files = {"tvm/ab12/meta.json": json.dumps(META).encode(), RECORD: content}
    archive = build_manifest(list_entries(files)) + SOUND_META + build_member(RECORD, content, **LINKS[kind]) + END

    check_refused(archive, state_dir, tmp_path)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leads_out_of_its_folder(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Hidden names, and those with a meaning on another system, are refused too."""
    check_refused(build_manifest(list_entries({name: b"{}"})) + END, state_dir, tmp_path)


def test_a_bomb_is_not_unpacked(state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No more is read than its manifest lists, and nothing if that is too much."""
    total = 0
    read = tar.Reader._read

    def count(self: tar.Reader, size: int) -> bytes:
        nonlocal total
        total += size
        return read(self, size)

    monkeypatch.setattr(tar.Reader, "_read", count)
    bomb = gzip.compress(build_archive({}, [SOUND_META, build_member(RECORD, b"\0" * (1 << 26))]))
    check_refused(bomb, state_dir, tmp_path)

    assert len(bomb) < 1 << 17
    assert total < 1 << 14


def test_a_full_disk_is_reported_before_anything_is_written(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is refused by its manifest alone."""
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: argparse.Namespace(free=3))

    check_refused(SOUND, state_dir, tmp_path)


def test_texts_of_an_archive_are_sanitized(state_dir: Path, tmp_path: Path) -> None:
    """No terminal obeys them."""
    evil = "\x1b]0;owned\x07\x1b[2J"
    meta = {**META, "network": evil, "target": evil, "versions": {evil: evil}, "seconds": "long", "batch_size": evil}
    file = tmp_path / "hostile.tar"
    file.write_bytes(build_archive({}, meta=meta))
    with pytest.raises(UsageError) as refused:
        run_cache("import", str(file))
    with pytest.raises(UsageError) as unnamed:
        run_cache("import", str(file), "other")
    imported = run_cache("import", str(file), "--anyway").to_text()

    assert all("\x1b" not in text for text in (str(refused.value), str(unnamed.value), imported))
    assert "\x1b" not in run_cache("list").to_text()


@pytest.mark.parametrize(("size", "change"), [(5, "shrank"), (2, "grew")])
def test_a_file_that_changes_during_the_export_is_reported(tmp_path: Path, size: int, change: str) -> None:
    """The previous archive stays."""
    file = tmp_path / "tuned.tar"
    file.write_text("before")
    with pytest.raises(NgbkitError, match=f"cannot archive a: it {change}"), tar.create(file) as archive:
        tar.add(archive, "a", size, io.BytesIO(b"abc"))

    assert "before" == file.read_text()


def test_unread_content_is_skipped() -> None:
    """It is never parsed as a header."""
    content = build_member("evil", b"") * 3
    archive = build_member("a", content) + build_member("b", b"b") + END
    files = tar.Reader(name="x", stream=io.BytesIO(archive)).read_files()

    assert ["a", "b"] == [name for name, _, _ in files]
