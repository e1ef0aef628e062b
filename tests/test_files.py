"""Files: artifacts named by content hash, and atomic writes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ngbkit.errors import DeviceError, DiskError, MissingDependencyError, UsageError
from ngbkit.files import (
    Store,
    check_disk,
    describe_disk_fault,
    explain,
    explain_errors,
    hash_file,
    locate_usable,
    write_atomically,
)
from ngbkit.options import STATE_DIR


def test_a_file_is_stored_once_under_its_hash(tmp_path: Path) -> None:
    """The same content under another name is the same artifact."""
    store = Store(tmp_path / "store")
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"content")
    first, second = store.add(tmp_path / "a"), store.add(tmp_path / "b")

    assert first == second == hash_file(tmp_path / "a")
    assert store.contains(first)
    assert b"content" == store.locate(first).read_bytes()


def test_a_file_is_moved_into_the_store(tmp_path: Path) -> None:
    """The store moves a file and leaves nothing at its old path."""
    store, source = Store(tmp_path / "store"), tmp_path / "file"
    source.write_bytes(b"content")
    source.chmod(0o644)
    digest = store.move(source)

    assert 0o600 == store.locate(digest).stat().st_mode & 0o777
    assert b"content" == store.locate(digest).read_bytes()
    assert not source.exists()


def test_a_corrupt_artifact_is_rejected(tmp_path: Path) -> None:
    """A file with another hash than announced leaves nothing in the store."""
    store = Store(tmp_path / "store")
    with pytest.raises(DeviceError, match=f"corrupt artifact: got hash .*; expected {'0' * 32}. Send it again"):
        store.receive("0" * 32, iter([b"cut"]))

    assert not store.contains("0" * 32)
    assert [] == [file for file in store.root.rglob("*") if file.is_file()]


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 31, "G" * 32, "0" * 31 + "/"])
def test_an_invalid_hash_has_no_path(tmp_path: Path, digest: str) -> None:
    """No path leads out of the store."""
    with pytest.raises(UsageError, match="invalid content hash"):
        Store(tmp_path).locate(digest)


def test_a_copy_that_was_killed_belongs_to_its_content(tmp_path: Path) -> None:
    """Drafts and graphs that read a file are listed with it, and no file of another hash is."""
    store = Store(tmp_path / "store")
    (tmp_path / "file").write_bytes(b"weights")
    digest, other = store.add(tmp_path / "file"), "0" * 32
    path = store.locate(digest)
    files = [
        store.root / f".{digest}-1.onnx.x1",
        store.root / f"{digest}-1.onnx",
        path.with_name(f".{digest}.x1"),
        path,
    ]
    strangers = [store.root / f"{other}-1.onnx", path.with_name("0.x")]
    for file in (*files[:-1], *strangers):
        file.touch()

    assert {digest: set(files), other: set(strangers[:1])} == {
        key: set(paths) for key, paths in store.list_files().items()
    }


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """No draft is left either."""
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with write_atomically(path) as draft:
            draft.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "{}/runs/a"),
            "there is no room on its disk. Set NGBKIT_STATE",
        ),
        (OSError(errno.EROFS, "Read-only file system", "{}/runs"), "a folder that you can write."),
        (
            OSError(errno.ENOLCK, "No locks available", "{}/cores/a"),
            "its file system has no locks. Set NGBKIT_STATE_DIR",
        ),
        (OSError(errno.EROFS, "Read-only file system", "/a/b"), "/a/b cannot be used: its disk is read-only. Check"),
        (OSError(errno.ENOSPC, "No space left on device"), "a file cannot be used: there is no room on its disk. Set"),
        (OSError(errno.EMFILE, "Too many open files"), "Raise the limit of open files"),
        (OSError(errno.EAGAIN, "Resource temporarily unavailable"), "no further process or thread can start"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out of memory: "),
        (OSError(errno.EFBIG, "File too large", "{}/a"), "it is larger than a file may be on its disk. Set NGBKIT"),
        (OSError(errno.ECONNREFUSED, "Connection refused"), "the system reports: Connection refused."),
        (OSError("odd"), "the system reports: odd."),
    ],
)
def test_an_error_of_the_system_is_a_sentence(
    error: OSError, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the system is a sentence with the file, and a remedy for ngbkit's own files."""
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
    if error.filename:
        error.filename = error.filename.format(tmp_path)
    message = str(explain(error))

    assert text in message
    assert not error.filename or message.startswith(f"{error.filename} cannot be used: ")


def test_an_error_that_cannot_be_explained_stays_as_it_is() -> None:
    """A fault of a program keeps its type, and so does a reader that has left."""
    errors = (ZeroDivisionError(), BrokenPipeError(errno.EPIPE, "Broken pipe"))

    for error in errors:
        assert explain(error) is None
        with pytest.raises(type(error)), explain_errors():
            raise error


@pytest.mark.parametrize(
    ("name", "content", "program"),
    [
        ("onnx", "", "import onnx; onnx.load"),
        ("secrets", "", "from secrets import token_hex"),
        ("graphlib", "raise RuntimeError('a script of the user')", "import graphlib"),
        ("onnx", "", "from onnx.helper import make_node"),
    ],
)
def test_a_file_that_hides_a_module_is_named(name: str, content: str, program: str, tmp_path: Path) -> None:
    """The error names the file that hides a module, whatever exception Python raises."""
    file = tmp_path / f"{name}.py"
    file.write_text(content)
    program = f"from ngbkit.files import explain_errors\nwith explain_errors():\n    {program}"
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert f"{file}, which hides the module {name}. Rename it" in process.stderr.splitlines()[-1]


def test_a_hidden_package_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a hidden package names the hiding file and proposes no installation."""
    (tmp_path / "onnx.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    assert f"{tmp_path / 'onnx.py'}, which hides the module onnx" in str(MissingDependencyError("onnx", "onnxruntime"))


def test_a_file_of_another_user_is_left_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store writes beside folders of another user, to the same path each time."""
    store = Store(tmp_path)
    digests = [f"{number:02x}" * 16 for number in range(3)]
    for digest in digests:
        store.locate(digest).parent.mkdir()
        store.locate(digest).touch()
    foreign = {store.locate(digests[0]).parent, store.locate(digests[1])}
    monkeypatch.setattr(os, "access", lambda path, _: Path(path).exists() and not {path, path.parent} & foreign)
    folders = [store.locate(digest).parent.name for digest in digests]

    assert [f"00.{os.getuid()}", f"01.{os.getuid()}", "02"] == folders
    assert [tmp_path / "02", tmp_path / f"01.{os.getuid()}"] == [
        locate_usable(tmp_path / name) for name in ("02", "01")
    ]


def test_a_file_that_is_read_only_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO writes such ones to its cache; only a folder must be writable."""
    (tmp_path / "blob").touch()
    access = {(tmp_path, 7): True, (tmp_path / "blob", os.R_OK): True}
    monkeypatch.setattr(os, "access", lambda path, mode: access.get((path, mode), False))

    assert tmp_path == locate_usable(tmp_path)


def test_a_fault_of_the_state_folder_is_one_of_its_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full or read-only disk is told from other errors, also by the text of a library, and not of a user's folder."""
    monkeypatch.setenv(STATE_DIR, str(tmp_path))
    faults = [
        OSError(errno.EROFS, "Read-only file system", str(tmp_path / "cache")),
        RuntimeError("protobuf: No space left on device"),
    ]
    others = [OSError(errno.EROFS, "Read-only file system", "/user"), OSError(errno.ENOENT, "missing"), ValueError("x")]

    assert ["read-only", "no room"] == [
        next(word for word in ("read-only", "no room") if word in describe_disk_fault(error)) for error in faults
    ]
    assert [""] * 3 == [describe_disk_fault(error) for error in others]


def test_a_folder_that_cannot_be_written_is_a_fault_of_its_disk(tmp_path: Path) -> None:
    """The error names the folder, and nothing stays in one that can be written."""
    check_disk(tmp_path)

    assert [] == list(tmp_path.iterdir())
    with pytest.raises(DiskError, match=r"^/proc/fs cannot be used: "):
        check_disk(Path("/proc/fs"))
