"""The folder that tuning keeps: named by all that its outcome depends on, written by one process at a time.

    <tuning folder>/tvm/<key>/meta.json       what it is, for people and for ``ngbkit cache``
                              records.jsonl   what became of each candidate
                              library/        the code of the best of them, and the weights

Nothing in it names a path or a machine, so that a copy works wherever the key is the same.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# Of what is kept, and of how a network is lowered before it is tuned: what an older one made is of no use then.
FORMAT = 1
_META, _RECORDS, _LIBRARY, _LOCK = "meta.json", "records.jsonl", "library", ".lock"
_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """All that compiled code depends on.

    Parameters
    ----------
    network
        A hash of what it computes.
    batch_size
        Samples in a call.
    target
        What it is compiled for, with the instruction set and the threads.
    versions
        Of TVM's packages.
    budget
        The options that say how long to tune; empty where it is not tuned.
    """

    network: str
    batch_size: int
    target: str
    versions: Mapping[str, str]
    budget: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "format": FORMAT,
            "network": self.network,
            "batch_size": self.batch_size,
            "target": self.target,
            "versions": dict(self.versions),
            "options": dict(self.budget),
        }

    @property
    def key(self) -> str:
        """A name for it, of 32 hex digits."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Store:
    """What tuning keeps of one subject.

    Parameters
    ----------
    home
        The folder of all subjects.
    subject
        Whose.
    """

    home: Path
    subject: Subject

    @property
    def folder(self) -> Path:
        """Where it is kept."""
        return self.home / self.subject.key

    @property
    def records(self) -> Path:
        """The file of the candidates."""
        return self.folder / _RECORDS

    @property
    def library(self) -> Path:
        """The folder of the code."""
        return self.folder / _LIBRARY

    @contextmanager
    def held(self, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the folder against other processes; `waiting` is called every second while another one holds it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waiting()
                    time.sleep(_LOOK_AGAIN_S)
            yield

    def meta(self) -> dict[str, Any]:
        """What the folder says of itself; empty where it says nothing."""
        return _read(self.folder / _META)

    def note(self, found: Mapping[str, Any]) -> None:
        """Write down what it is, and what has been found so far."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        text = json.dumps({"compiler": "tvm", **self.subject.to_json(), **found, "date": now}, indent=1)
        draft = self.folder / f"{_META}.{os.getpid()}.draft"
        draft.write_text(text)
        draft.replace(self.folder / _META)

    def smaller(self) -> Path | None:
        """The records of a smaller budget that has got furthest, of the same subject but for that; None without one."""
        mine = {**self.subject.to_json(), "options": None}
        best: tuple[int, Path] | None = None
        for path in self.home.glob(f"*/{_META}"):
            meta, records = _read(path), path.with_name(_RECORDS)
            other = {name: meta.get(name) for name in mine}
            if other | {"options": None} != mine or path.parent == self.folder or not records.is_file():
                continue
            tried = meta.get("candidates", 0)
            if _is_within(meta["options"], self.subject.budget) and (best is None or tried > best[0]):
                best = tried, records
        return best and best[1]


def _is_within(smaller: Mapping[str, float], larger: Mapping[str, float]) -> bool:
    """Whether no limit of the first is above that of the second; 0 is no limit."""
    return all((smaller.get(name) or float("inf")) <= (limit or float("inf")) for name, limit in larger.items())


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
