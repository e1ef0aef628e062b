"""The folder of tuning results, named by everything they depend on and written by one process at a time.

    <tuning folder>/tvm/<key>/meta.json       a description, for people and for ``ngbkit cache``
                              records.jsonl   the result of each candidate

No file contains a program, a path or a machine's name, so a copy is safe and valid wherever the key is the same. The
library of the best candidates is in the compiler's cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ngbkit.files import write_atomically
from ngbkit.user_text import parse_json

# The version of the files, and of the lowering before tuning: results of another version are unusable.
FORMAT = 1
_META, _RECORDS, _LOCK = "meta.json", "records.jsonl", ".lock"
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything that compiled code depends on."""

    network: str  # hash of its content
    batch_size: int
    target: str  # with the instruction set and the threads
    versions: Mapping[str, str]  # of TVM's packages
    budget: Mapping[str, float]  # the options that limit tuning; empty if untuned

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON."""
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
        """Its name, 32 hex digits."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class TuningStore:
    """The tuning results of one subject, in the `home` folder of all subjects."""

    home: Path
    subject: Subject

    @property
    def folder(self) -> Path:
        """The folder of this subject."""
        return self.home / self.subject.key

    @property
    def records(self) -> Path:
        """The file of candidates."""
        return self.folder / _RECORDS

    @contextmanager
    def lock(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """Lock the folder against other processes, calling `on_wait` every second while another holds the lock."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / _LOCK).open("w") as file:
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    on_wait()
                    time.sleep(_RETRY_S)
            yield

    def read_meta(self) -> dict[str, Any]:
        """Read the description of the folder; return an empty dict if there is none."""
        return _read(self.folder / _META)

    def write_meta(self, results: Mapping[str, Any]) -> None:
        """Write the description of the folder, with the results so far."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        text = json.dumps({"compiler": "tvm", **self.subject.to_json(), **results, "date": now}, indent=1)
        with write_atomically(self.folder / _META) as draft:
            draft.write_text(text)

    def find_smaller_records(self) -> Path | None:
        """Find the records with most candidates, of the same subject with a smaller budget."""
        description = {**self.subject.to_json(), "options": None}
        best: tuple[int, Path] | None = None
        for path in self.home.glob(f"*/{_META}"):
            meta, records = _read(path), path.with_name(_RECORDS)
            other = {name: meta.get(name) for name in description}
            if other | {"options": None} != description or path.parent == self.folder or not records.is_file():
                continue
            count = meta.get("candidates", 0)
            if _is_within(meta["options"], self.subject.budget) and (best is None or count > best[0]):
                best = count, records
        return best and best[1]


def _is_within(smaller: Mapping[str, float], larger: Mapping[str, float]) -> bool:
    """Return whether the first budget exceeds no limit of the second; 0 means no limit."""
    return all((smaller.get(name) or float("inf")) <= (limit or float("inf")) for name, limit in larger.items())


def _read(path: Path) -> dict[str, Any]:
    try:
        meta = parse_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return meta if isinstance(meta, dict) else {}
