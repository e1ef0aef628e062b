"""Reads notebooks: their cells, those that measure without a recording, and the modules that they import."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError
from ngbkit.user_text import parse_json

MEASURING_TAG = "measures"
"""The tag of a cell whose measurement cannot be recorded; it is not executed where measuring is forbidden."""

NOTE = "*This cell measures. It was not executed here; `ngbkit publish --measure missing` executes it.*"

_IMPORT = re.compile(r"^\s*(?:from|import)\s+(\w+)", re.MULTILINE)


def read_notebook(path: Path) -> dict[str, Any]:
    """Read the file of a notebook; `UsageError` if it is none."""
    try:
        notebook = parse_json(path.read_text(encoding="utf-8"))
        return {**notebook, "cells": [{**cell, "source": cell["source"]} for cell in notebook["cells"]]}
    except (OSError, UnicodeDecodeError, UsageError, TypeError, LookupError) as error:
        raise UsageError(f"{path} cannot be read as a notebook: {error}. Save it again in JupyterLab.") from None


def read_code(path: Path) -> str:
    """Read the code of a notebook: the sources of all its cells of code."""
    cells = read_notebook(path)["cells"]
    return "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def replace_measuring_cells(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """Return the notebook with text in place of each cell whose measurement cannot be recorded."""
    return {**notebook, "cells": [_to_text(cell) if is_measuring(cell) else cell for cell in notebook["cells"]]}


def is_measuring(cell: Mapping[str, Any]) -> bool:
    """Return whether a cell measures what cannot be recorded."""
    return cell["cell_type"] == "code" and MEASURING_TAG in cell.get("metadata", {}).get("tags", [])


def _to_text(cell: Mapping[str, Any]) -> dict[str, Any]:
    code = "".join(cell["source"]).rstrip()
    source = f"```python\n{code}\n```\n\n{NOTE}"
    return {"cell_type": "markdown", "id": cell.get("id", ""), "metadata": {}, "source": source}


def find_modules(notebook: Path) -> list[Path]:
    """Find the Python files beside a notebook that its cells import, and those that these files import."""
    texts = [read_code(notebook)]
    files: set[Path] = set()
    while texts:
        for name in _IMPORT.findall(texts.pop()):
            module = notebook.parent / f"{name}.py"
            new = {*([module] if module.is_file() else []), *(notebook.parent / name).rglob("*.py")} - files
            files |= new
            texts += [file.read_text(encoding="utf-8", errors="replace") for file in new]
    return sorted(files)
