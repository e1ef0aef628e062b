"""The sweep that users call, with estimate, start and run; and the gate between two versions of its networks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ngbkit import runs
from ngbkit.errors import UsageError
from ngbkit.sweep import validation
from ngbkit.sweep.conversion import to_workloads
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.option import format_parameters

if TYPE_CHECKING:
    import xarray as xr

    from ngbkit.metrics.gates.gate import Gate
    from ngbkit.predictor import Predictor
    from ngbkit.predictor.forecast import Estimate
    from ngbkit.workloads.base import Workload


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


def gate(
    before: str | Workload | Iterable[str | Workload],
    after: str | Workload | Iterable[str | Workload],
    *,
    margin: float | str | None = None,
    before_python: str | None = None,
    after_python: str | None = None,
    **keywords: Any,
) -> Gate:
    """Measure two versions of networks in turns on one machine, and judge which trials became slower.

    Parameters
    ----------
    before, after
        The networks of either side, in pairs.
    margin
        The slowdown that is accepted: 0.02, or ``"2%"``, the default.
    before_python, after_python
        The interpreters of either side, on the device, each with ngbkit and other packages: for two versions of a
        library. Default: that of the device.
    **keywords
        The compilers, batch sizes and other options of a `Sweep`.

    Raises
    ------
    UsageError
        The sides have not as many networks; or an option is invalid.

    Examples
    --------
    >>> import ngbkit
    >>> result = ngbkit.gate("before.onnx", "after.onnx", compilers=["onnxruntime"])  # doctest: +SKIP
    >>> assert result.passes(), result  # doctest: +SKIP
    """
    from ngbkit.metrics.gates.regressions import MARGIN
    from ngbkit.metrics.gates.sides import judge_sides

    share = validation.margin(MARGIN if margin is None else margin)
    pythons = {"before_python": before_python, "after_python": after_python}
    return judge_sides(build_gate_sweep(before, after, **pythons, **keywords).run(), share)


def build_gate_sweep(
    before: str | Workload | Iterable[str | Workload],
    after: str | Workload | Iterable[str | Workload],
    *,
    before_python: str | None = None,
    after_python: str | None = None,
    **keywords: Any,
) -> Sweep:
    """Build the sweep of a gate, whose sides take turns: the arguments are those of `gate`."""
    from ngbkit.metrics.gates.sides import name_sides

    sides = [
        [replace(workload, python=python or "") for workload in to_workloads(networks)]
        for networks, python in ((before, before_python), (after, after_python))
    ]
    return Sweep(**{**keywords, "workloads": name_sides(*sides), "together": True})
