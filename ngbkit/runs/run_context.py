"""The context of a run: the notebook and the cell that started it, and the user's note."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ngbkit.errors import UsageError
from ngbkit.files import write_atomically
from ngbkit.user_text import clean_line, parse_json, shorten

_FILE = "context.json"
# Names of the file of a notebook in its variables: VS Code's and ipykernel's.
_NOTEBOOK_NAMES = ("__vsc_ipynb_file__", "__session__")
# A cell is recognised by its first line that most cells do not begin with.
_COMMON = ("%", "!", "#", "import ", "from ")
_LONGEST_NOTE, _LONGEST_LINE = 200, 40

CELL: ContextVar[str] = ContextVar("CELL", default="")
"""The text of the cell of a panel, whose callbacks belong to no execution of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The place that a run was started from, and its note."""

    notebook: str = ""  # the file of the notebook or of the script; empty for a shell
    cell: str = ""  # its text; empty outside of notebooks
    note: str = ""  # the user's

    @classmethod
    def capture(cls, note: str = "") -> RunContext:
        """Capture the notebook and the cell that this process executes now."""
        shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
        return cls(notebook=_find_notebook(shell), cell=_find_cell(shell), note=check_note(note))

    @property
    def place(self) -> str:
        """The file's name with the first telling line of the cell: ``"blocks.ipynb: class Block(nn.Module):"``."""
        lines = filter(None, map(str.strip, self.cell.splitlines()))
        line = next((line for line in lines if not line.startswith(_COMMON)), "")
        return ": ".join(filter(None, [Path(self.notebook).name, shorten(line, _LONGEST_LINE)]))

    @property
    def code(self) -> list[str]:
        """The lines of the cell, without those of magics and without empty ones."""
        return [line for line in self.cell.splitlines() if line.strip() and not line.startswith("%")]

    @classmethod
    def load(cls, folder: Path) -> RunContext:
        """Load the context of the run in a folder; an empty one where none was saved."""
        with suppress(OSError, ValueError, TypeError, AttributeError):  # damaged, or of another shape
            return cls.from_json(parse_json((folder / _FILE).read_text(encoding="utf-8")))
        return cls()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunContext:
        return cls(**{name: str(data.get(name, "")) for name in cls.__dataclass_fields__})

    def save(self, folder: Path) -> None:
        """Save it in the folder of a run, where its owner alone reads it."""
        with write_atomically(folder / _FILE) as draft:
            draft.write_text(json.dumps(asdict(self)), encoding="utf-8")


def check_note(note: str) -> str:
    """Return the text of a note as one clean line; UsageError if it is too long."""
    line = clean_line(note).strip()
    if len(line) > _LONGEST_NOTE:
        raise UsageError(f"invalid note: got {len(line)} characters; expected at most {_LONGEST_NOTE}. Shorten it.")
    return line


def _find_notebook(shell: Any) -> str:
    """Find the file of the notebook or of the script that this process executes; empty for a shell."""
    names = {} if shell is None else shell.user_ns
    notebooks = (str(names[name]) for name in _NOTEBOOK_NAMES if names.get(name))
    # Its shell commands inherit the variable of a notebook.
    notebook = next(notebooks, "") or os.environ.get("JPY_SESSION_NAME", "")
    script = getattr(sys.modules["__main__"], "__file__", None) or ""
    return notebook or (script if shell is None and script.endswith(".py") else "")


def _find_cell(shell: Any) -> str:
    """Find the text of the cell that a shell of IPython executes now."""
    if cell := CELL.get():
        return cell
    with suppress(AttributeError, LookupError, TypeError):
        if hasattr(shell, "get_parent"):  # of a kernel, whose history lacks the cells of some clients
            return str(shell.get_parent()["content"]["code"])
        return str(shell.history_manager.input_hist_raw[-1])
    return ""
