"""Eviction from the caches: the least recently used entries, until the rest fits."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path

from ngbkit.cluster.caches import contents
from ngbkit.cluster.caches.contents import CacheItem, DeviceCaches
from ngbkit.errors import NgbkitWarning, UsageError
from ngbkit.files import locate_usable


def choose_evictions(items: Iterable[CacheItem], keep_bytes: int) -> list[CacheItem]:
    """Choose the least recently used items, in order, so that at most `keep_bytes` stay.

    Tuning results took long, so they are evicted after all preparations.
    """
    candidates = sorted(items, key=lambda item: (item.kind == "tuning", item.used_at, item.key))
    evicted = []
    size = sum(item.bytes for item in candidates)
    for item in candidates:
        if size <= keep_bytes:
            break
        size -= item.bytes
        evicted.append(item)
    return evicted


def remove(caches: DeviceCaches, items: Sequence[CacheItem]) -> list[CacheItem]:
    """Remove items of a locked device and the remains of killed removals, and return those that are removed."""
    removed = []
    for item in items:
        if locate_usable(item.folder) != item.folder:
            warnings.warn(f"{item.folder} has files of another user, who can remove it.", NgbkitWarning, stacklevel=2)
            continue
        try:
            for path in item.files:
                path.unlink()
            if not item.files:
                shutil.rmtree(_rename_aside(item.folder))
        except OSError as error:
            raise UsageError(f"cannot remove {item.folder}: {error.strerror}. Check its owner.") from error
        removed.append(item)
    for path in contents.find_leftovers(caches):
        shutil.rmtree(path, ignore_errors=True)
    return removed


def _rename_aside(folder: Path) -> Path:
    """Hide a folder in one step, because a partly removed one would pass for a complete one; return its new path."""
    aside = folder.with_name(f".{folder.name}.out")
    shutil.rmtree(aside, ignore_errors=True)
    return folder.replace(aside)
