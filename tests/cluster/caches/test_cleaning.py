"""Which cache items are evicted, and which never are."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from answers import list_rows
from keeping import list_keys, prepare, run_cache, tune

from ngbkit.cluster.caches import CacheItem, DeviceCaches, choose_evictions, list_items, remove
from ngbkit.device.plan import locate_lock
from ngbkit.errors import DeviceError, NgbkitWarning, UsageError
from ngbkit.files import Store
from ngbkit.runs import deletion


def build_item(key: str, used_at: float, kind: Any = "preparation") -> CacheItem:
    """Build an item of ten bytes."""
    return CacheItem(kind=kind, key=key, folder=Path(key), bytes=10, used_at=used_at, metadata={})


ITEMS = [
    build_item("old", 100.0),
    build_item("tuned", 50.0, "tuning"),
    build_item("new", 300.0),
    build_item("middle", 200.0),
]


@pytest.mark.parametrize(
    ("keep_bytes", "evicted"),
    [
        (40, []),
        (39, ["old"]),
        (20, ["old", "middle"]),
        (19, ["old", "middle", "new"]),
        (0, ["old", "middle", "new", "tuned"]),
    ],
)
def test_the_least_recently_used_items_are_evicted_first(keep_bytes: int, evicted: list[str]) -> None:
    """Tuning results, which took long, are evicted last."""
    assert evicted == [item.key for item in choose_evictions(ITEMS, keep_bytes)]


def test_clean_keeps_the_newest_that_fit(state_dir: Path, caches: DeviceCaches) -> None:
    """Tuning results stay too, unless their compiler is named."""
    for days in range(4):
        prepare(state_dir, f"days{days}", size=1000, days=days)
    tune(state_dir, "tuned")
    answer = run_cache("clean", "--keep", "2kB")

    assert ["days3", "days2"] == [item["key"] for item in answer.json["kept"]]
    assert ["removed"] * 3 == [row["done"] for row in list_rows(answer)]
    assert ["days0", "days1", "tuned"] == list_keys(caches)
    run_cache("clean", "--keep", "0")
    run_cache("clean", "tvm")
    assert [] == list_keys(caches)


def test_clean_removes_named_items(state_dir: Path, caches: DeviceCaches) -> None:
    """A tuning result is named by its compiler or its key: the name of a network removes none."""
    prepare(state_dir, "one")
    prepare(state_dir, "two")
    tune(state_dir, "tuned")
    run_cache("clean", "one")
    after = list_keys(caches)
    with pytest.raises(UsageError, match="name their compiler or a key"):
        run_cache("clean", "resnet18")
    run_cache("clean", "tuned")

    assert (["two", "tuned"], ["two"]) == (after, list_keys(caches))


def test_caches_in_use_are_left_alone(state_dir: Path, caches: DeviceCaches) -> None:
    """While a plan runs the device is locked, and the error names the run."""
    prepare(state_dir, "one")
    tune(state_dir, "tuned")
    lock = locate_lock(state_dir, "cpu")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("run 20300101-000000-abcd (process 17)")
        file.flush()
        with pytest.raises(DeviceError, match="cpu is in use by run 20300101-000000-abcd"):
            run_cache("clean", "--keep", "0")

    assert ["one", "tuned"] == list_keys(caches)


def test_artifacts_that_no_run_needs_are_removed(
    state_dir: Path, tmp_path: Path, caches: DeviceCaches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a run, and new ones, which a notebook may have, stay; a folder of a former version is removed."""
    store, digests = Store(state_dir / "artifacts"), []
    for name in ("needed", "new", "old"):
        (tmp_path / name).write_text(name)
        digests.append(store.add(tmp_path / name))
    needed, new, old = digests
    graph = store.root / f"{old}-0.onnx"
    graph.touch()
    layout = store.locate(needed).with_name("onnx-0")
    layout.mkdir()
    (layout / "net.onnx").hardlink_to(store.locate(needed))
    for path in (graph, store.locate(old), layout):
        os.utime(path, (0, 0))
    monkeypatch.setattr(deletion, "list_artifacts", lambda: {needed: {"20300101-a": "net"}})
    rows = {row["key"]: (row["what"], row["note"], row["size"]) for row in list_rows(run_cache("list"))[:-1]}
    with pytest.raises(
        UsageError, match=r"net names only artifacts of runs, .* `ngbkit runs --delete ID` deletes a run's"
    ):
        run_cache("clean", "net")
    run_cache("clean", "--keep", "0")

    assert {
        needed[:12]: ("net", "of 1 run", "6 B"),
        new[:12]: ("", "of no run, kept for a day", "3 B"),
        old[:12]: ("", "of no run", "3 B"),
        "onnx-0": ("laid out by a former version", "of no run", "6 B"),
    } == rows
    assert {needed, new} == set(list_keys(caches))
    assert {store.locate(needed), store.locate(new)} == {path for path in store.root.rglob("*") if path.is_file()}


def test_the_next_clean_removes_the_remains_of_a_killed_one(state_dir: Path, caches: DeviceCaches) -> None:
    """A clean removes the remains of a killed one, which are not listed."""
    removed = state_dir / "cache" / "cpu" / ".key.out"
    (removed / "compiled").mkdir(parents=True)
    prepare(state_dir, "one")
    keys = list_keys(caches)
    run_cache("clean", "--keep", "1GB")

    assert ["one"] == keys == list_keys(caches)
    assert not removed.exists()


def test_the_files_of_another_user_are_listed_and_left(caches: DeviceCaches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cleaning leaves the files of another user, with a warning, and removes the rest."""
    for name in ("old", "foreign"):
        (caches.cache / name / "compiled").mkdir(parents=True)
    foreign = caches.cache / "foreign" / "compiled"
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != foreign)
    items = list_items(caches)
    with pytest.warns(NgbkitWarning, match="foreign has files of another user"):
        removed = remove(caches, items)

    assert {"old": "", "foreign": "of another user"} == {item.key: item.metadata["network"] for item in items}
    assert ["old"] == [item.key for item in removed]
    assert ["foreign"] == [path.name for path in caches.cache.iterdir()]
