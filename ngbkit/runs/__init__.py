"""One execution of a sweep: start it, watch it, stop it, resume it, list those there were.

lifecycle.py starts and resumes, run.py has the live run, folders.py what is kept of every run, recordings.py those that
are kept beside a notebook, so that it can be executed again without measuring. progress.py counts what is done,
time_left.py estimates the rest, progress_display.py shows both; selfcheck/ measures what can be told on this machine.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngbkit.runs.folders import FORMAT, Summary, find, load_dataset, read_sweep, summaries
    from ngbkit.runs.lifecycle import resume, start
    from ngbkit.runs.progress import Progress
    from ngbkit.runs.run import Guide, Run, State, live

# Where each name lives: the magics are loaded without NumPy.
_EXPORTS = {
    "FORMAT": "folders",
    "Guide": "run",
    "Progress": "progress",
    "Run": "run",
    "State": "run",
    "Summary": "folders",
    "find": "folders",
    "live": "run",
    "load_dataset": "folders",
    "read_sweep": "folders",
    "resume": "lifecycle",
    "start": "lifecycle",
    "summaries": "folders",
}

__all__ = [
    "FORMAT",
    "Guide",
    "Progress",
    "Run",
    "State",
    "Summary",
    "find",
    "live",
    "load_dataset",
    "read_sweep",
    "resume",
    "start",
    "summaries",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
