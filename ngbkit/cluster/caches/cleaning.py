"""What of the kept things goes: what was not used for long, and then what was used longest ago, until the rest fits."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from ngbkit.cluster.caches import contents
from ngbkit.cluster.caches.contents import Kept, Place
from ngbkit.errors import UsageError


def choose(
    kept: Iterable[Kept], *, keep_bytes: int | None, older_than_s: float | None, now: float | None = None
) -> list[Kept]:
    """What is to go, the first to go first.

    Parameters
    ----------
    kept
        What may go.
    keep_bytes
        How much of it may stay: what was used longest ago goes first, and results of tuning, which took long, only when
        all preparations have gone. None: as much as there is.
    older_than_s
        What was not used for so many seconds goes in any case. None: nothing does.
    now
        Seconds since the epoch. Default: the time.
    """
    now = time.time() if now is None else now
    candidates = sorted(kept, key=lambda one: (one.kind == "tuning", one.used, one.key))
    old = [one for one in candidates if older_than_s is not None and now - one.used > older_than_s]
    young = [one for one in candidates if one not in old]
    left = sum(one.bytes for one in young)
    going = []
    for one in young:
        if keep_bytes is None or left <= keep_bytes:
            break
        left -= one.bytes
        going.append(one)
    return [*old, *going]


def remove(place: Place, going: Sequence[Kept]) -> None:
    """Remove them, and what earlier removals left behind when they were killed. To be called with the device held."""
    for one in going:
        discard(one.folder)
    for path in contents.leftovers(place):
        shutil.rmtree(path, ignore_errors=True)


def discard(folder: Path) -> None:
    """Remove a folder in one step as far as anybody sees: half of one would be taken for a whole one.

    Raises
    ------
    UsageError
        It cannot be removed.
    """
    try:
        shutil.rmtree(set_aside(folder))
    except OSError as error:
        raise UsageError(f"{folder} cannot be removed: {error.strerror}. Look whose it is.") from error


def set_aside(folder: Path) -> Path:
    """Rename a folder to one that nobody looks into; what it is called then."""
    away = folder.with_name(f".{folder.name}.out")
    shutil.rmtree(away, ignore_errors=True)
    return folder.replace(away)
