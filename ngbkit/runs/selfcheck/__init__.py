"""The self-check: whether a machine is fit to measure on.

    noise          measures identity against identity, group after group: the noise, and the coverage of intervals
    pairs          compares identity with other compilers in the same groups: what can be told of different programs
    disturbances   leaves out one precaution of ngbkit at a time: the effect of each on the numbers
    store          stores the result on this machine for every later run
    history        compares the stored runs of one sweep with each other: how many values differ beyond their intervals

>>> from ngbkit.runs import selfcheck
>>> selfcheck.run(groups=12)  # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ngbkit.runs.selfcheck.check import run
from ngbkit.runs.selfcheck.record import Noise, Pair
from ngbkit.runs.selfcheck.store import latest

if TYPE_CHECKING:
    from ngbkit.runs.selfcheck.history import History, compare_runs
    from ngbkit.runs.selfcheck.report import SelfCheck

__all__ = ["History", "Noise", "Pair", "SelfCheck", "compare_runs", "latest", "run"]
_ROOMS = {"History": "history", "compare_runs": "history", "SelfCheck": "report"}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:  # they load xarray, which the magics do without
        return getattr(import_module(f"ngbkit.runs.selfcheck.{_ROOMS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
