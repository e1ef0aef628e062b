"""Files: artifacts named by content hash, and atomic writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ngbkit.errors import DeviceError, UsageError
from ngbkit.files import Store, hash_file, write_atomically


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
    """Nothing is left at its old path."""
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


def test_the_least_recently_used_files_are_evicted(tmp_path: Path) -> None:
    """Files are deleted until the rest is small enough."""
    store = Store(tmp_path / "store")
    digests = []
    for index in range(3):
        (tmp_path / "file").write_bytes(bytes([index]) * 100)
        digests.append(store.add(tmp_path / "file"))
        os.utime(store.locate(digests[-1]), (1000 + index, 1000 + index))
    evicted = store.evict(150)

    assert digests[:2] == evicted
    assert store.contains(digests[2])


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
