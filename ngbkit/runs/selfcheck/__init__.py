"""The self-check: whether a machine is fit to measure on.

    check          measures identity against itself and against other compilers, group after group
    noise          estimates the noise of two copies and of different programs, and the coverage of intervals
    report         says what that means
    store          stores the result on this machine for every later run
    history        compares the stored runs of one sweep with each other: how many values differ beyond their intervals

>>> from ngbkit.runs import selfcheck
>>> selfcheck.run(groups=12)  # doctest: +SKIP
"""

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily
from ngbkit.runs.selfcheck.check import run
from ngbkit.runs.selfcheck.store import latest

if TYPE_CHECKING:
    from ngbkit.runs.selfcheck.history import History, compare_runs
    from ngbkit.runs.selfcheck.report import SelfCheck

__all__ = ["History", "SelfCheck", "compare_runs", "latest", "run"]
# They load xarray, which the magics do without.
_EXPORTS = {"History": "history", "compare_runs": "history", "SelfCheck": "report"}
__getattr__, __dir__ = export_lazily(__name__, _EXPORTS)
