"""Is this machine fit to measure on? The network against itself, and ngbkit against the vendors' own tools.

    noise   identity against identity, group after group -> what an interval is worth here
    bias    ngbkit beside each vendor's tool, round after round -> our median latency over theirs
    disturbances  one thing undone at a time -> what it would have done to the numbers
    store   the outcome, kept on this machine for every later run

>>> from ngbkit import selfcheck
>>> selfcheck.run(groups=12)  # doctest: +SKIP
"""

from ngbkit.runs.selfcheck.check import run
from ngbkit.runs.selfcheck.record import Bias, Noise, SelfCheck
from ngbkit.runs.selfcheck.store import latest

__all__ = ["Bias", "Noise", "SelfCheck", "latest", "run"]
