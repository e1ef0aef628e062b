"""Artifacts: files by content hash, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ngbkit.errors import DeviceError, UsageError
from ngbkit.files import Store, hash_file, replacing


def test_a_file_is_found_under_its_hash_and_stored_once(tmp_path: Path) -> None:
    """The same content under another name is the same artifact."""
    store = Store(tmp_path / "store")
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"content")
    first, second = store.push(tmp_path / "a"), store.push(tmp_path / "b")

    assert first == second == hash_file(tmp_path / "a")
    assert store.have(first)
    assert b"content" == store.path(first).read_bytes()


def test_what_comes_with_another_hash_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    """Cut on the way, or changed."""
    store = Store(tmp_path / "store")
    with pytest.raises(DeviceError, match="send it again"):
        store.receive("0" * 32, iter([b"cut"]))

    assert not store.have("0" * 32)
    assert [] == [file for file in store.root.rglob("*") if file.is_file()]


@pytest.mark.parametrize("digest", ["../../etc/passwd", "", "0" * 31, "G" * 32, "0" * 31 + "/"])
def test_what_is_no_hash_is_no_path(tmp_path: Path, digest: str) -> None:
    """No name of a stranger's leads out of the store."""
    with pytest.raises(UsageError, match="is not a content hash"):
        Store(tmp_path).path(digest)


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    """Until no more is kept than asked."""
    store = Store(tmp_path / "store")
    digests = []
    for index in range(3):
        (tmp_path / "file").write_bytes(bytes([index]) * 100)
        digests.append(store.push(tmp_path / "file"))
        os.utime(store.path(digests[-1]), (1000 + index, 1000 + index))
    gone = store.evict(150)

    assert digests[:2] == gone
    assert store.have(digests[2])


def test_a_file_that_is_replaced_is_the_old_one_or_the_new_one(tmp_path: Path) -> None:
    """A writer that fails leaves the old one and no draft."""
    path = tmp_path / "file"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as draft:
            draft.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert "old" == path.read_text()
    assert [path] == list(tmp_path.iterdir())
