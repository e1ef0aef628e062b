"""What of the kept things goes, and what stays whatever happens."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest
from keeping import carry_out, keys, prepare, tune

from ngbkit.cluster.caches import cleaning
from ngbkit.cluster.caches.contents import Kept, Place
from ngbkit.device.plan import lock_path
from ngbkit.errors import DeviceError, UsageError


def kept(key: str, size: int, used: float, kind: Any = "preparation") -> Kept:
    return Kept(kind=kind, key=key, folder=Path(key), bytes=size, used=used, about={})


SOME = [kept("old", 10, 100.0), kept("tuned", 10, 50.0, "tuning"), kept("new", 10, 300.0), kept("middle", 10, 200.0)]


@pytest.mark.parametrize(
    ("keep_bytes", "older_than_s", "gone"),
    [
        (40, None, []),
        (39, None, ["old"]),
        (20, None, ["old", "middle"]),
        (19, None, ["old", "middle", "new"]),
        (0, None, ["old", "middle", "new", "tuned"]),
        (None, 150.0, ["old", "tuned"]),
        (None, 1000.0, []),
        (15, 150.0, ["old", "tuned", "middle"]),
        (20, 150.0, ["old", "tuned"]),
    ],
)
def test_what_was_used_longest_ago_goes_first(
    keep_bytes: int | None, older_than_s: float | None, gone: list[str]
) -> None:
    """And what tuning found, which took long, after all else."""
    found = cleaning.choose(SOME, keep_bytes=keep_bytes, older_than_s=older_than_s, now=310.0)

    assert gone == [one.key for one in found]


def test_clean_keeps_the_newest_that_fit(state_dir: Path, place: Place) -> None:
    """And results of tuning, unless they are asked for."""
    for days in range(4):
        prepare(state_dir, f"days{days}", size=1000, days=days)
    tune(state_dir, "tuned")
    answer = carry_out("clean", "--keep", "2kB")

    assert ["days3", "days2"] == [one["key"] for one in answer.json["kept"]]
    assert ["removed"] * 3 == [row["done"] for row in answer.rows]
    assert ["days0", "days1", "tuned"] == keys(place)
    carry_out("clean", "--keep", "0", "--tuning")
    assert [] == keys(place)


def test_clean_removes_what_is_old(state_dir: Path, place: Place) -> None:
    """By when it was used, and not when it was made."""
    prepare(state_dir, "old", days=31)
    prepare(state_dir, "young", days=29)
    carry_out("clean", "--older-than", "30d")

    assert ["young"] == keys(place)


def test_clean_removes_what_is_named(state_dir: Path, place: Place) -> None:
    """A result of tuning only where that is said twice."""
    prepare(state_dir, "one")
    prepare(state_dir, "two")
    tune(state_dir, "tuned")
    carry_out("clean", "one")
    after = keys(place)
    with pytest.raises(UsageError, match="add --tuning"):
        carry_out("clean", "tuned")
    carry_out("clean", "tuned", "--tuning")

    assert (["two", "tuned"], ["two"]) == (after, keys(place))


def test_a_dry_run_removes_nothing(state_dir: Path, place: Place) -> None:
    """It says what would go."""
    prepare(state_dir, "one")
    answer = carry_out("clean", "--keep", "0", "--dry-run")

    assert (["one"], False) == ([one["key"] for one in answer.json["kept"]], answer.json["removed"])
    assert "would be removed" == answer.rows[0]["done"]
    assert ["one"] == keys(place)


@pytest.mark.parametrize("words", [("clean", "--keep", "0"), ("export", "out.tar"), ("import", "out.tar")])
def test_what_a_plan_uses_is_left_alone(state_dir: Path, place: Place, words: tuple[str, ...]) -> None:
    """While one runs the device is its own, and the message names the run."""
    prepare(state_dir, "one")
    tune(state_dir, "tuned")
    lock = lock_path(state_dir, "cpu")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with open(lock, "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write("run 20300101-000000-abcd (process 17)")
        held.flush()
        with pytest.raises(DeviceError, match="cpu is taken by run 20300101-000000-abcd"):
            carry_out(*words)

    assert ["one", "tuned"] == keys(place)


def test_what_a_killed_clean_left_behind_goes_with_the_next(state_dir: Path, place: Place) -> None:
    """It is not listed, for nobody would use half of a preparation."""
    half, came = state_dir / "cache" / "cpu" / ".key.out", state_dir / "tuning" / "cpu" / ".abc.in"
    for folder in (half, came):
        (folder / "compiled").mkdir(parents=True)
    prepare(state_dir, "one")
    listed = keys(place)
    carry_out("clean", "--keep", "1GB")

    assert ["one"] == listed == keys(place)
    assert not half.exists()
    assert not came.exists()
