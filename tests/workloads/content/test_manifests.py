"""Manifests: a network is known by its files as long as all of them are unchanged."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ngbkit.workloads.content import manifests as manifests_module
from ngbkit.workloads.content.manifests import BuildManifest, FileSet, Manifests, find_module, hash_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a module, a file beside it, and a place that is searched before it."""
    (tmp_path / "first").mkdir()
    (tmp_path / "helper.py").write_text("WIDTH = 4\n")
    (tmp_path / "weights.bin").write_bytes(b"1234")
    return tmp_path


def store(folder: Path, problems: tuple[str, ...] = ()) -> Manifests:
    """Store the manifest of a build that loaded all of a folder."""
    places = [str(folder / "first"), str(folder)]
    manifest = BuildManifest(
        files=FileSet.read(str(folder / name) for name in ("helper.py", "weights.bin", "missing.json")),
        folders={str(folder / "first"): hash_folder(str(folder / "first"))},
        modules={name: (places, find_module(name, places)) for name in ("helper", "absent")},
        problems=problems,
    )
    manifests = Manifests(folder / "manifests")
    packages, _ = manifests.add_packages([str(folder / "weights.bin")])
    manifests.add("recipe", "content", manifest, packages)
    return Manifests(manifests.folder)


def keep_times(path: Path, content: bytes) -> None:
    """Write other content of the same size and time."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda folder: (folder / "helper.py").write_text("WIDTH = 8\n"), "helper.py has changed"),
        (lambda folder: keep_times(folder / "weights.bin", b"5678"), "weights.bin has changed"),
        (lambda folder: (folder / "weights.bin").unlink(), "weights.bin has changed"),
        (lambda folder: (folder / "missing.json").write_text("{}"), "missing.json has changed"),
        (lambda folder: (folder / "first" / "notes").write_text(""), "the files in .*first are others"),
        (lambda folder: (folder / "absent.py").write_text(""), "there is a module absent now"),
        (
            lambda folder: os.mkfifo(folder / "fifo") or (folder / "fifo").replace(folder / "helper.py"),
            "another module is helper",
        ),
    ],
)
def test_each_change_is_seen(folder: Path, change: Callable[[Path], object], reason: str) -> None:
    """A network with something changed is not known, and the reason names it; with all as before, it is."""
    before = store(folder).find("recipe")
    change(folder)
    content, why = Manifests(folder / "manifests").find("recipe")

    assert (("content", ""), "") == (before, content)
    assert re.search(reason, why)
    assert Manifests(folder / "manifests").find_change("content")


def test_a_module_that_comes_first_is_another(folder: Path) -> None:
    """A module in a place that is searched earlier takes the place of the one that was loaded."""
    store(folder)
    (folder / "first" / "helper.py").write_text("WIDTH = 4\n")

    assert ("", "another module is helper now") == Manifests(folder / "manifests").find("recipe")


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "helper.py").touch(),
        lambda folder: (folder / "helper.py").write_text("WIDTH = 4\n"),
        lambda folder: (folder / "unrelated.py").write_text("WIDTH = 4\n"),
        lambda folder: (folder / "first" / "__pycache__").mkdir(),
    ],
)
def test_what_was_not_loaded_changes_nothing(folder: Path, change: Callable[[Path], object]) -> None:
    """Other times, other files and byte code leave a network known."""
    store(folder)
    change(folder)

    assert ("content", "") == Manifests(folder / "manifests").find("recipe")


def test_what_no_file_shows_is_built_again(folder: Path) -> None:
    """A build that ran a program is not known by its files; that is no change of its network."""
    manifests = store(folder, ("it runs /bin/date",))

    assert ("", "it runs /bin/date") == manifests.find("recipe")
    assert "" == manifests.find_change("content")
    assert None is manifests.find_change("another")


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"packages": "packages-none"}', '{"packages": 3, "files": 4}'])
def test_a_damaged_manifest_is_none(folder: Path, damage: str) -> None:
    """A damaged file costs a build."""
    manifests = store(folder)
    (folder / "manifests" / "recipe-content.json").write_text(damage)

    assert "" == manifests.find("recipe")[0]


def test_the_latest_versions_are_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone who goes back to an earlier version finds it, unless there were many since."""
    monkeypatch.setattr(manifests_module, "_MOST_VERSIONS", 2)
    manifests = Manifests(folder / "manifests")
    for number in range(3):
        manifests.add("recipe", f"content{number}", BuildManifest(), manifests.add_packages([])[0])
        os.utime(folder / "manifests" / f"recipe-content{number}.json", (number, number))

    assert "content2" == manifests.find("recipe")[0]
    assert [None, ""] == [manifests.find_change(name) for name in ("content0", "content1")]
