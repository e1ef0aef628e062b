"""The sweep that users call: the grid of trials, with estimate, start and run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

from ngbkit import runs
from ngbkit.errors import UsageError
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.option import format_parameters

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.predictor import Predictor
    from ngbkit.predictor.forecast import Estimate


@frozen
class Sweep(Grid):
    """The grid of trials to measure."""

    def estimate(self, predictor: Predictor | str | None = None) -> Estimate:
        """How long the sweep would take, and its likely results: from earlier runs, and from a predictor.

        Parameters
        ----------
        predictor
            A predictor of `ngbkit.predictor.fit`, or the file that it was saved to.

        Raises
        ------
        UsageError
            The file holds no predictor.

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> print(Sweep("resnet18", ["identity", "openvino"]).estimate())  # doctest: +SKIP
        2 trials in 1 group, about 24 s
        """
        from ngbkit.predictor.forecast import estimate

        return estimate(self, predictor)

    def start(
        self, *, budget: str | float | None = None, predictor: Predictor | str | None = None, **keywords: Any
    ) -> runs.Run:
        """Start measuring in the background; the live `Run`.

        Parameters
        ----------
        budget
            Seconds, a time such as ``"20min"``, or a share of the trials such as ``"10%"``: the trials that tell most
            about the best compiler of each group are measured, and the others are ``predicted`` in the dataset
            (`ngbkit.forecast.best`). Default: all are measured.
        predictor
            As for `estimate`; only with a budget.
        **keywords
            As for `ngbkit.runs.start`.

        Raises
        ------
        UsageError
            An invalid budget, or a predictor without a budget.
        """
        if budget is not None:
            from ngbkit.predictor.forecast import guide_of

            return runs.start(self, guide=guide_of(self, budget, predictor), **keywords)
        if predictor is not None:
            raise UsageError(
                "invalid call: got a predictor without a budget; a run that measures every trial predicts none. "
                "Add a budget, or leave the predictor out."
            )
        return runs.start(self, **keywords)

    def run(self, **keywords: Any) -> xr.Dataset | xr.DataTree:
        """Measure, wait for the end and return the dataset; the arguments are those of `start`.

        Ctrl-C stops the run cleanly; its journal keeps the measurements (`ngbkit.runs.resume`).

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> ds = Sweep("resnet18", ["identity", "openvino"], [1, 2, 4, 8]).run(budget="2min")  # doctest: +SKIP
        """
        return self.start(**keywords).result()


Sweep.__doc__ = f"""{Sweep.__doc__}

{format_parameters(Sweep)}

Examples
--------
>>> from ngbkit import Sweep
>>> sweep = Sweep(workloads=["resnet18"], compilers=["identity", "openvino"], batch_sizes=[1, 4])
>>> len(sweep.trials())
4
"""
