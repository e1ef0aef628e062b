"""The compile cache of a trial, and the time of the cold compile that filled it.

A compile with an empty cache is cold. The next one, in a new process, finds the cache full and is warm.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from ngbkit.files import write_atomically
from ngbkit.user_text import parse_json


@dataclass(frozen=True, slots=True)
class CompileCache:
    """The folder of one compiler with its options, at one batch size, threads and memory, of a prepared workload."""

    folder: Path

    @classmethod
    def locate(cls, prepared: Path, compiler: str, batch_size: int, threads: int, memory: str) -> CompileCache:
        """Locate the cache of a trial within the folder of its prepared workload."""
        name = hashlib.blake2b(f"{compiler}\0{batch_size}\0{threads}\0{memory}".encode(), digest_size=12).hexdigest()
        return cls(prepared / "compiled" / name)

    def read_cold_s(self) -> float | None:
        """Read how many seconds the cold compile took; None if the cache is not full."""
        try:
            return float(parse_json((self.folder / "cold.json").read_text())["compile_time_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def clear(self) -> None:
        """Clear the cache, so that the remains of an aborted compile do not make the next one warm."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def mark_full(self, compile_time_s: float) -> None:
        """Record that a cold compile has filled the cache, and its time."""
        with write_atomically(self.folder / "cold.json") as temporary:
            temporary.write_text(json.dumps({"compile_time_s": compile_time_s, "at": time.time()}))
