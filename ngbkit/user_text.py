"""What users write, read once: a path, and JSON in a label or a value."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError

# Of Linux: a name in a folder, and a whole path.
_LONGEST_NAME, _LONGEST_PATH = 255, 4095


def parse_path(path: str | os.PathLike[str]) -> Path:
    """Read the path of a file or a folder, which need not exist; ``~`` is the home folder of the user.

    Raises
    ------
    UsageError
        There is no such home folder, or no file can have this path.
    """
    text = os.fspath(path)
    shortened = repr(text if len(text) <= 80 else f"{text[:79]}…")
    try:
        parsed = Path(text).expanduser()
    except RuntimeError:
        raise UsageError(
            f"invalid path: got {shortened}, and there is no such home folder. Write it in full."
        ) from None
    if not text:
        raise UsageError("invalid path: got an empty one. Name a file or a folder.")
    if "\0" in text:
        raise UsageError(f"invalid path: got {shortened}, with a zero byte. Check the name.")
    longest = max((len(os.fsencode(part)) for part in parsed.parts), default=0)
    if longest > _LONGEST_NAME or len(os.fsencode(parsed)) > _LONGEST_PATH:
        raise UsageError(
            f"invalid path: got {shortened}, with a name of {longest} bytes; expected at most {_LONGEST_NAME}, and "
            f"{_LONGEST_PATH} in all. Choose a shorter name."
        )
    return parsed


def parse_json(text: str) -> Any:
    """Read JSON; UsageError, with the reason, if it is invalid, nests too deeply, or has a number that is too long."""
    try:
        return json.loads(text)
    except RecursionError:
        raise UsageError("it nests too deeply") from None
    except ValueError as error:
        reason = str(error) if isinstance(error, json.JSONDecodeError) else "a number has too many digits"
        raise UsageError(reason) from None
