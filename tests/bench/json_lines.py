"""Results as lines of JSON, from which a script that was stopped goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(file: Path) -> list[dict[str, Any]]:
    """Read the finished results; a last line that was cut short is measured again."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def append(file: Path, result: dict[str, Any], *, prints: bool = True) -> None:
    """Add a result to its file, and print it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(result) + "\n")
    if prints:
        print(json.dumps(result), flush=True)
