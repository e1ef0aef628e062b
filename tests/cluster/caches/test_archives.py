"""Archives that mean ill, each made by hand, as ours would never be."""

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
from keeping import META, carry_out

from ngbkit.cluster.caches import tar, transfer
from ngbkit.commands.listing import Answer
from ngbkit.errors import NgbkitError, UsageError
from ngbkit.hardware import environment


def member(name: str, content: bytes, **fields: Any) -> bytes:
    """One file of an archive, as tar has it."""
    about = tarfile.TarInfo(name)
    about.size = len(content)
    for field, value in fields.items():
        setattr(about, field, value)
    return about.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


END = b"\0" * 1024
RECORD = "tvm/ab12/records.json"


def listed(files: Mapping[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"name": name, "bytes": len(content), "hash": hashlib.blake2b(content, digest_size=16).hexdigest()}
        for name, content in files.items()
    ]


def manifest(entries: Any, **about: Any) -> bytes:
    told = {"format": 1, "chip": environment.chip(), "accelerator": "cpu", "files": entries, **about}
    return member("manifest.json", json.dumps(told).encode())


def holding(extra: Mapping[str, bytes], members: Iterable[bytes] | None = None, meta: Any = META) -> bytes:
    """An archive with one sound result and these further files."""
    files = {"tvm/ab12/meta.json": json.dumps(meta).encode(), RECORD: b"records", **extra}
    packed = [member(name, content) for name, content in files.items()] if members is None else list(members)
    return manifest(listed(files)) + b"".join(packed) + END


def endless() -> bytes:
    """The header of a manifest that is as long as a header can say."""
    about = tarfile.TarInfo("manifest.json")
    about.size = 8**11 - 1
    return about.tobuf()


SOUND = holding({})
SOUND_META = member("tvm/ab12/meta.json", json.dumps(META).encode())
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
    "a manifest that is a link": lambda: member("manifest.json", b"", **LINKS["symbolic"]) + END,
    "a manifest without end": endless,
    "a large manifest": lambda: member("manifest.json", b" " * (1 << 24) + b"{}") + END,
    "no JSON": lambda: member("manifest.json", b"{") + END,
    "a list": lambda: member("manifest.json", b"[]") + END,
    "JSON of great depth": lambda: member("manifest.json", b"[" * 1_000_000) + END,
    "another format": lambda: manifest([], format=2) + END,
    "no list of files": lambda: manifest(None) + END,
    "files that are no objects": lambda: manifest(["a"]) + END,
    "files of other fields": lambda: manifest([{"path": "a"}]) + END,
    "files of wrong types": lambda: manifest([{"name": 1, "bytes": "2", "hash": None}]) + END,
    "a negative size": lambda: manifest([{"name": RECORD, "bytes": -1, "hash": "0" * 32}]) + END,
    "a hash that is none": lambda: manifest([{"name": RECORD, "bytes": 1, "hash": "../" * 10}]) + END,
    "a file twice": lambda: manifest(listed({RECORD: b""}) * 2) + END,
    "a file twice on some file systems": lambda: manifest(listed({RECORD: b"", RECORD.upper(): b""})) + END,
    "a file that is a folder too": lambda: holding({f"{RECORD}/more.json": b"{}"}),
    "a meta that is a folder": lambda: (
        manifest(listed({"tvm/ab12/meta.json/x.txt": b""})) + member("tvm/ab12/meta.json/x.txt", b"") + END
    ),
    "more than it may unpack to": lambda: (
        manifest([{"name": RECORD, "bytes": transfer.MOST_BYTES + 1, "hash": "0" * 32}]) + END
    ),
    "too few files": lambda: holding({}, [SOUND_META]),
    "too many files": lambda: holding({})[:-1024] + member("tvm/ab12/more.json", b"{}") + END,
    "files in another order": lambda: holding({}, [member(RECORD, b"records"), SOUND_META]),
    "another content": lambda: holding({}, [SOUND_META, member(RECORD, b"RECORDS")]),
    "another size": lambda: holding({}, [SOUND_META, member(RECORD, b"records and more")]),
    "another name": lambda: holding({}, [SOUND_META, member("tvm/ab12/other.json", b"records")]),
    "a library that was changed": lambda: holding({"tvm/ab12/a.so": b"ELF"})[:-2048] + member("tvm/ab12/a.so", b"EVI"),
    "a cut": lambda: SOUND[:-1500],
    "no end": lambda: SOUND[:-1024],
    "a flipped bit in a header": lambda: SOUND.replace(b"tvm/ab12/records.json\0", b"tvm/ab13/records.json\0", 1),
    "a compressed archive that is cut": lambda: gzip.compress(SOUND)[:-20],
    "a compressed archive that is damaged": lambda: (
        gzip.compress(SOUND)[:40] + b"\xff" * 40 + gzip.compress(SOUND)[80:]
    ),
    "no meta": lambda: manifest(listed({RECORD: b"records"})) + member(RECORD, b"records") + END,
    "a meta that is none": lambda: holding({}, meta=[]),
    "a meta without candidates": lambda: holding({}, meta={**META, "candidates": "many"}),
    "a meta of fewer than no candidates": lambda: holding({}, meta={**META, "candidates": -1}),
    "a meta without versions": lambda: holding({}, meta={**META, "versions": None}),
    "a result in two parts": lambda: holding(
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
    return carry_out("import", str(file), "--with-libraries", "--anyway", *words)


def everything(folder: Path) -> set[str]:
    """Every path below a folder, but for those of the lock."""
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if "devices" not in path.parts}


def check_refused(content: bytes, state_dir: Path, tmp_path: Path) -> None:
    """What is refused leaves nothing behind, neither inside of the state folder nor beside it."""
    (state_dir / "tuning" / "cpu").mkdir(parents=True)
    before, beside = everything(state_dir), set(state_dir.parent.iterdir())
    with pytest.raises(UsageError, match=r"hostile\.tar"):
        import_bytes(content, tmp_path)

    assert before == everything(state_dir)
    assert beside == set(state_dir.parent.iterdir())


def test_a_sound_archive_made_by_hand_is_taken(state_dir: Path, tmp_path: Path) -> None:
    """Or what follows would show nothing."""
    import_bytes(SOUND, tmp_path)

    assert "records" == (state_dir / "tuning" / "cpu" / "tvm" / "ab12" / "records.json").read_text()


@pytest.mark.parametrize("name", HOSTILE)
def test_what_was_changed_is_refused(state_dir: Path, tmp_path: Path, name: str) -> None:
    """With a sentence that names the file; nothing is put anywhere."""
    check_refused(HOSTILE[name](), state_dir, tmp_path)


@pytest.mark.parametrize("kind", LINKS)
def test_whatever_is_no_plain_file_is_refused(state_dir: Path, tmp_path: Path, kind: str) -> None:
    """Links, devices, pipes and folders; also headers that stand for others, which may be as long as they like."""
    content = b"" if kind in ("symbolic", "hard", "device", "pipe", "folder") else b"records"
    files = {"tvm/ab12/meta.json": json.dumps(META).encode(), RECORD: content}
    archive = manifest(listed(files)) + SOUND_META + member(RECORD, content, **LINKS[kind]) + END

    check_refused(archive, state_dir, tmp_path)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_name_leads_out_of_its_folder(state_dir: Path, tmp_path: Path, name: str) -> None:
    """Nor hides in it, nor means something on another system."""
    check_refused(manifest(listed({name: b"{}"})) + END, state_dir, tmp_path)


def test_what_unpacks_to_too_much_is_not_unpacked(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small it is packed: no more is read than its manifest says, and that not if it is too much."""
    read = 0
    take = tar.Reader._take

    def counting(self: tar.Reader, size: int) -> bytes:
        nonlocal read
        read += size
        return take(self, size)

    monkeypatch.setattr(tar.Reader, "_take", counting)
    bomb = gzip.compress(holding({}, [SOUND_META, member(RECORD, b"\0" * (1 << 26))]))
    check_refused(bomb, state_dir, tmp_path)

    assert len(bomb) < 1 << 17
    assert read < 1 << 14


def test_a_full_disk_is_told_before_anything_is_written(
    state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what there would have to be."""
    monkeypatch.setattr(transfer.shutil, "disk_usage", lambda path: argparse.Namespace(free=3))

    check_refused(SOUND, state_dir, tmp_path)


def test_what_it_says_of_itself_is_shown_as_text(state_dir: Path, tmp_path: Path) -> None:
    """And never obeyed by a terminal."""
    evil = "\x1b]0;owned\x07\x1b[2J"
    meta = {**META, "network": evil, "target": evil, "versions": {evil: evil}, "seconds": "long", "batch_size": evil}
    file = tmp_path / "hostile.tar"
    file.write_bytes(holding({}, meta=meta))
    with pytest.raises(UsageError) as refused:
        carry_out("import", str(file))
    with pytest.raises(UsageError) as unnamed:
        carry_out("import", str(file), "other")
    imported = carry_out("import", str(file), "--anyway").to_text()

    assert all("\x1b" not in text for text in (str(refused.value), str(unnamed.value), imported))
    assert "\x1b" not in carry_out("list").to_text()


def test_a_file_that_changes_while_it_is_read_is_told(tmp_path: Path) -> None:
    """And the archive that was there before stays."""
    file = tmp_path / "tuned.tar"
    file.write_text("before")
    with (
        pytest.raises(NgbkitError, match="changed while it was read, from 5 bytes to 3"),
        tar.writing(file) as archive,
    ):
        archive.add("a", 5, iter([b"abc"]))

    assert "before" == file.read_text()


def test_a_file_must_be_read_before_the_next(tmp_path: Path) -> None:
    """Whoever forgets that would take content for a header."""
    reader = tar.Reader(name="a", stream=io.BytesIO(member("a", b"abc") + END))
    reader.next()
    with pytest.raises(RuntimeError, match="not read to its end"):
        reader.next()
