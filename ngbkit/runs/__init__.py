"""Runs: start, watch, stop, resume and list executions of a sweep.

lifecycle.py starts and resumes a run, run.py drives it, known.py takes over what earlier ones measured, settle.py plans
what would settle it, folders.py stores it, and recordings.py replays runs that are stored beside a notebook. summary.py
describes a run in one line, run_context.py the cell that started it; run_index.py stores the summaries of all runs, in
which earlier runs are found, and deletion.py deletes runs. progress.py tracks its progress and estimates the time left,
and progress_display.py displays both. capacity.py measures the rate of requests that a network serves; selfcheck/
measures whether a machine is fit to measure on; bisection/ finds the release of a compiler since which a network is
slower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily

if TYPE_CHECKING:
    from ngbkit.runs.folders import find, load_dataset
    from ngbkit.runs.lifecycle import resume, start
    from ngbkit.runs.run import Run
    from ngbkit.runs.run_index import summaries
    from ngbkit.runs.settle import plan_settling

# The module of each name, imported lazily: the magics load without NumPy.
_EXPORTS = {
    "Run": "run",
    "find": "folders",
    "load_dataset": "folders",
    "plan_settling": "settle",
    "resume": "lifecycle",
    "start": "lifecycle",
    "summaries": "run_index",
}

__all__ = ["Run", "find", "load_dataset", "plan_settling", "resume", "start", "summaries"]

__getattr__, __dir__ = export_lazily(__name__, _EXPORTS)
