"""The sweep that users call, with estimate, start and run; what its networks take; and the gate between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from ngbkit import runs, validation
from ngbkit.errors import UsageError
from ngbkit.runs.folders import read_sweep
from ngbkit.runs.run_guide import load_forecast
from ngbkit.sweep.column import Column
from ngbkit.sweep.conversion import to_workloads
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.option import format_parameters
from ngbkit.user_text import read_docstring

if TYPE_CHECKING:
    import os

    import pandas as pd
    import xarray as xr
    from typing_extensions import Self

    from ngbkit.dataset.storage import Data
    from ngbkit.metrics.gates.gate import Gate
    from ngbkit.runs.run_guide import Outlook, RunGuide
    from ngbkit.workloads.base import FactorValue, Workload


@frozen
class Sweep(Grid):
    """The grid of trials to measure."""

    def estimate(self, predictor: Any = None, *, earlier: Data | str | os.PathLike[str] | None = None) -> Outlook:
        """Estimate the time of the sweep, and its likely results, from earlier measurements and from a predictor.

        Parameters
        ----------
        predictor
            A predictor of `ngbkit.predict.fit`, or the file that it was saved to.
        earlier
            A dataset with measurements of these devices or of ones like them, under the same labels, or its file;
            beside the latest runs that are stored here.

        Raises
        ------
        UsageError
            The file holds no predictor, or `earlier` is not a dataset of runs.

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> print(Sweep("resnet18", ["identity", "openvino"]).estimate())  # doctest: +SKIP
        2 trials in 1 group, about 24 s
        """
        return load_forecast().estimate(self, predictor, earlier)

    def beside(self, data: Data, label: str = "before") -> Self:
        """Return this sweep with the networks of an earlier dataset, which take turns with its own in the same rounds.

        They are measured with the compilers, batch sizes and factors of this sweep, so that a comparison with them
        needs no allowance for the drift of the machine between two runs: ``ds.ngb.compare(label)``.

        Parameters
        ----------
        data
            The dataset of an earlier run, whose attributes describe its networks: a cell by its source, a file by its
            content in the state folder.
        label
            Added to the names of its networks: ``"resnet18 (it2)"``. Networks are matched by name, or else by place.

        Raises
        ------
        UsageError
            The sweep does not interleave; the dataset is of no run or of several; it has no network of that name, and
            not as many; or a network cannot be built as it was.

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> ds = Sweep("net.onnx").beside(it2, "it2").run()  # doctest: +SKIP
        >>> ds.ngb.compare("it2")  # doctest: +SKIP
        """
        from ngbkit.runs.earlier_networks import list_earlier

        if not self.interleave:
            raise UsageError(
                "invalid sweep: got interleave=False beside an earlier run; compilers that are measured one after the "
                "other take no turns. Leave one of the two out."
            )
        earlier = list_earlier(data, label, self.workloads)
        # The factors that this sweep varies have its values.
        varied = [
            replace(each, factors={name: values for name, values in each.factors.items() if name not in self.factors})
            for each in earlier
        ]
        return evolve(self, workloads=(*self.workloads, *varied), together=True)

    def start(
        self,
        *,
        budget: str | float | None = None,
        predictor: Any = None,
        earlier: Data | str | os.PathLike[str] | None = None,
        again: bool = False,
        **keywords: Any,
    ) -> runs.Run:
        """Start measuring in the background; the live `Run`.

        What earlier runs of a device measured is taken over: trials of the same network, by its code and the modules it
        imports, its files or its module, with the same compiler, options and libraries, on the unchanged device. Each
        keeps its `origin`.

        Parameters
        ----------
        budget
            Seconds, a time such as ``"20min"``, or a share of the trials such as ``"10%"``: the trials that tell most
            about the best compiler of each group are measured, and the others are ``predicted`` in the dataset
            (`ngbkit.predict.forecast.best`). Default: all are measured.
        predictor, earlier
            As for `estimate`; only with a budget.
        again
            Measure every trial, whatever earlier runs know.
        **keywords
            As for `ngbkit.runs.start`; but the run of this cell that a kernel left when it ended is resumed
            (``resumes=False`` begins another).

        Raises
        ------
        UsageError
            An invalid budget; or a predictor or earlier measurements without a budget.
        """
        guide = _build_guide(self, budget, predictor, earlier)
        return runs.start(self, guide=guide, reuses=not again, **keywords)

    def run(self, **keywords: Any) -> xr.Dataset | xr.DataTree:
        """Measure, wait for the end and return the dataset; the arguments are those of `start`.

        Ctrl-C stops the run cleanly; its journal keeps the measurements (`ngbkit.runs.resume`).

        Examples
        --------
        >>> from ngbkit import Sweep
        >>> ds = Sweep("resnet18", ["identity", "openvino"], [1, 2, 4, 8]).run(budget="2min")  # doctest: +SKIP
        """
        return self.start(**keywords).result()


Sweep.__doc__ = f"""{read_docstring(Sweep)}

{format_parameters(Sweep)}

Examples
--------
>>> from ngbkit import Sweep
>>> sweep = Sweep(workloads=["resnet18"], compilers=["identity", "openvino"], batch_sizes=[1, 4])
>>> len(sweep.trials())
4
"""


def resume(
    run_id: str,
    *,
    budget: str | float | None = None,
    predictor: Any = None,
    earlier: Data | str | os.PathLike[str] | None = None,
    **keywords: Any,
) -> runs.Run:
    """Resume a run: only its missing trials are measured; with a budget, those that tell most, as `Sweep.start` does.

    Parameters
    ----------
    run_id
        The run's id, or a prefix of it that no other run shares.
    budget
        From now on: seconds, or a time such as ``"20min"``; or a share of all trials of the run, ``"10%"``, with those
        that it has. Default: all missing trials are measured, also those of a run that had a budget.
    predictor, earlier
        As for `Sweep.start`; only with a budget.
    **keywords
        As for `ngbkit.runs.resume`: trials to retry, engines.

    Raises
    ------
    RunNotFoundError, UsageError, FencedError
        No run has that id; an option is invalid; another process still drives the run.

    Examples
    --------
    >>> import ngbkit
    >>> ds = ngbkit.resume("20300101", budget="20min").result()  # doctest: +SKIP
    """
    folder = runs.find(run_id)
    guide = _build_guide(read_sweep(folder), budget, predictor, earlier, folder.name)
    return runs.resume(folder.name, guide=guide, **keywords)


def _build_guide(
    sweep: Grid,
    budget: str | float | None,
    predictor: Any,
    earlier: Data | str | os.PathLike[str] | None,
    run_id: str | None = None,
) -> RunGuide | None:
    """Build the guide of a budget; return None without one."""
    if budget is not None:
        return load_forecast().guide_of(sweep, budget, predictor, earlier, run_id)
    for basis, name in ((predictor, "a predictor"), (earlier, "earlier measurements")):
        if basis is not None:
            raise UsageError(
                f"invalid call: got {name} without a budget; a run that measures every trial predicts none. "
                f"Add a budget, or leave out {name}."
            )
    return None


def describe(
    networks: str | Workload | Iterable[str | Workload],
    *,
    factors: Mapping[str, FactorValue | Iterable[FactorValue]] | None = None,
    inputs: Any = None,
    batch_axis: Mapping[str, int | None] | None = None,
) -> pd.DataFrame:
    """Describe what networks take, before anything is measured.

    Parameters
    ----------
    networks
        Names, paths, or `Workload` objects, as for a `Sweep`. The inputs of an ONNX file are those of its graph; other
        networks are built here, at the first value of each factor.
    factors, inputs, batch_axis
        As for a `Sweep`; factors and values may be missing.

    Returns
    -------
    pandas.DataFrame
        A row per input: ``network``, ``input``, ``dtype``, ``shape`` (numbers, the batch, factors, and expressions of
        these), ``batch`` (its dimension) and ``values`` (what the input is fed). ``attrs["notes"]`` lists sentences on
        valid batch sizes, on the factors that need values, and on inputs whose values must be given.

    Raises
    ------
    UsageError, WorkloadError
        An option is invalid, or a network cannot be built.

    Examples
    --------
    >>> import ngbkit
    >>> ngbkit.describe("decoder.onnx").attrs["notes"]  # doctest: +SKIP
    ['decoder: batch: any size.', 'decoder: 1 factor without a value: --factor sequence_length=….']
    """
    import pandas as pd

    from ngbkit.sweep.description import COLUMNS, describe_networks

    described = describe_networks(networks, factors, inputs, batch_axis)
    table = pd.DataFrame([row for network in described for row in network.list_rows()], columns=list(COLUMNS))
    table.attrs["notes"] = [note for network in described for note in network.list_notes()]
    return table


def gate(
    before: str | Workload | Iterable[str | Workload],
    after: str | Workload | Iterable[str | Workload] | None = None,
    *,
    margin: float | str | None = None,
    before_python: str | None = None,
    after_python: str | None = None,
    **keywords: Any,
) -> Gate:
    """Measure two versions of networks, or two releases of a compiler, in turns, and judge which trials became slower.

    Parameters
    ----------
    before, after
        The networks of either side, in pairs. Without `after`, the sides are the two columns of `compilers`, such as
        ``["onnxruntime@1.22.1", "onnxruntime@1.23.2"]``.
    margin
        The slowdown that is accepted: 0.01, or ``"1%"``, the default.
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
    from ngbkit.metrics.gates.gate import MARGIN
    from ngbkit.metrics.gates.sides import judge_sides

    share = validation.check("margin", validation.Margin, MARGIN if margin is None else margin)
    pythons = {"before_python": before_python, "after_python": after_python}
    return judge_sides(build_gate_sweep(before, after, **pythons, **keywords).run(again=True), share)


def build_gate_sweep(
    before: str | Workload | Iterable[str | Workload],
    after: str | Workload | Iterable[str | Workload] | None = None,
    *,
    before_python: str | None = None,
    after_python: str | None = None,
    **keywords: Any,
) -> Sweep:
    """Build the sweep of a gate, whose sides take turns; it takes the arguments of `gate`."""
    from ngbkit.metrics.gates.sides import name_sides

    if after is None:
        if before_python or after_python:
            raise UsageError("invalid gate: got an interpreter and one side of networks; expected two sides.")
        sweep = Sweep(**{**keywords, "workloads": before})
        if len(sweep.compilers) != 2 or len({Column.read(label).compiler for label in sweep.compilers}) != 1:
            raise UsageError(
                f"invalid gate: got one side, and the compilers {', '.join(sweep.compilers)}; expected two sides, or "
                "two columns of one compiler, such as onnxruntime@1.22.1,onnxruntime@1.23.2."
            )
        return sweep
    sides = [
        [replace(workload, python=python or "") for workload in to_workloads(networks)]
        for networks, python in ((before, before_python), (after, after_python))
    ]
    return Sweep(**{**keywords, "workloads": name_sides(*sides), "together": True})
