"""What a compiler keeps of a trial between runs, and how long the compile took that it is from.

A compile with an empty folder is cold. What it left makes the next one, in a new process, a warm one.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from ngbkit.files import replacing


@dataclass(frozen=True, slots=True)
class Compiled:
    """The folder of one compiler with its options, at one batch size and number of threads, of a prepared workload."""

    folder: Path

    @classmethod
    def of(cls, prepared: Path, compiler: str, batch_size: int, threads: int) -> Compiled:
        """The one of that trial, within the folder of its prepared workload."""
        name = hashlib.blake2b(f"{compiler}\0{batch_size}\0{threads}".encode(), digest_size=12).hexdigest()
        return cls(prepared / "compiled" / name)

    def cold_s(self) -> float | None:
        """How many seconds the cold compile took that filled it; None where none has."""
        try:
            seconds = json.loads((self.folder / "cold.json").read_text())["compile_time_s"]
        except (OSError, ValueError, KeyError):
            return None
        return float(seconds)

    def empty(self) -> None:
        """Whatever is left of a compile that did not come to its end does not make the next one warm."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def filled(self, compile_time_s: float) -> None:
        """A cold compile has come to its end."""
        with replacing(self.folder / "cold.json") as temporary:
            temporary.write_text(json.dumps({"compile_time_s": compile_time_s, "at": time.time()}))
