"""A fitted model with the intervals of its predictions: predict, adapt and save."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ngbkit import validation
from ngbkit.errors import NgbkitWarning, UnknownNameError, UsageError
from ngbkit.predict import adaptation, predictor_storage
from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.base import Floats, Model, Progress, log_progress
from ngbkit.predict.labels.loading import load_similar
from ngbkit.predict.labels.rows import Runtime, format_runtimes
from ngbkit.predict.predicted_networks import PredictedNetwork, list_networks
from ngbkit.predict.predictor_storage import Choice
from ngbkit.predict.scoring.design import choose_informative
from ngbkit.predict.scoring.extrapolation import Beyond, Extrapolation
from ngbkit.predict.scoring.intervals import FEWEST, Calibration
from ngbkit.user_text import clean_line
from ngbkit.workloads.base import FactorValue

if TYPE_CHECKING:
    import pandas as pd

# Those of predictions, after the network and its factors.
_COLUMNS = ("device", "compiler", "batch_size", "latency", "ci_low", "ci_high", "throughput", "beyond")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Predictor:
    """Predicts the latency of networks on the runtimes that it was fitted to.

    Parameters
    ----------
    model
        The fitted model.
    runtimes
        A device and a compiler per column.
    calibration
        The errors that determine the intervals.
    lowering
        That of the graphs it was fitted to, and predicts: see `Graph.lowering`.
    extrapolation
        The range of the networks that it was fitted to, and the errors beyond it; None: each network is within it.
    choice
        The errors by which its kind was chosen, if it was left to the labels, or the approach to a new device.
    """

    model: Model
    runtimes: tuple[Runtime, ...]
    calibration: Calibration
    lowering: str = ""
    extrapolation: Extrapolation | None = None
    choice: Choice = None

    def __repr__(self) -> str:
        networks = len(np.unique(self.calibration.network))
        held_out = f"{networks} networks held out" if networks else "none held out"
        return f"<Predictor: {self.model.kind} for {format_runtimes(self.runtimes)}; {held_out}>"

    def seconds(self, networks: Any, ci: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """The latencies of calls and both ends of their intervals: each of shape ``(graphs, runtimes)``.

        Parameters
        ----------
        networks
            As for `predict`; each at its batch size, 1 if it is open. Graphs have the `lowering` of the predictor.
        ci
            The share of networks whose latency is inside the interval, for networks drawn like those of the fit. The
            interval of a network beyond these is wider: see `predict`.

        Warns
        -----
        NgbkitWarning
            There are too few networks for such an interval: it is infinite. Or a network is beyond the labels.

        Raises
        ------
        UsageError
            `ci` is not a probability, or a graph has another lowering.

        Notes
        -----
        The interval is CV+ with folds of whole networks, each of which counts the same however many variants it has.
        Whatever the model, it contains at least ``1 - 2 * (1 - ci) - sqrt(2 / networks)`` of networks that are
        exchangeable with those of the fit, and as a rule about `ci`: theorem 4 of R. F. Barber, E. J. Candès,
        A. Ramdas and R. J. Tibshirani, "Predictive inference with the jackknife+", The Annals of Statistics 49(1),
        2021, https://arxiv.org/abs/1905.02928. A predictor of ngbkit 0.1 has a split conformal interval, which contains
        at least `ci`.
        """
        seconds, low, high, _ = self._predict(list_networks(networks, (1,), None, self.lowering), ci)
        return seconds, low, high

    def _predict(
        self, networks: Sequence[PredictedNetwork], ci: float
    ) -> tuple[Floats, Floats, Floats, list[list[str]]]:
        """Return the latencies, both ends of their intervals, and the reason of each that is beyond the labels."""
        graphs = [network.graph for network in networks]
        seconds, low, high, beyond = self.compute_intervals(graphs, ci)
        self._warn_of_infinite(seconds, high, ci)
        if beyond is not None:
            self._warn_of_range([network.name for network in networks], beyond)
        return seconds, low, high, beyond.reasons if beyond else [[""] * len(self.runtimes) for _ in graphs]

    def compute_intervals(self, graphs: Sequence[Graph], ci: float) -> tuple[Floats, Floats, Floats, Beyond | None]:
        """As `seconds`, of graphs and without a warning; and what is beyond the labels, None if that is unknown."""
        validation.check("ci", validation.Probability, ci)
        self.check_lowering(graphs)
        seconds = np.array(self.model.predict(graphs), np.float64)
        low, high = self.calibration.predict(graphs, ci)
        beyond = None
        if self.extrapolation is not None and graphs:
            beyond = self.extrapolation.widen(graphs, seconds, low, high, ci)
        # A latency that is not predicted has no interval. Other models predict the ends, but these enclose the latency.
        predicted = np.isfinite(seconds)
        low, high = np.minimum(low, seconds), np.maximum(high, seconds)
        return seconds, np.where(predicted, low, np.nan), np.where(predicted, high, np.nan), beyond

    def find_beyond(self, graphs: Sequence[Graph]) -> NDArray[np.bool_]:
        """Return whether each graph is beyond the labels of each runtime: of shape ``(graphs, runtimes)``.

        Parameters
        ----------
        graphs
            Each at its batch size, with the `lowering` of the predictor.
        """
        if self.extrapolation is None or not graphs:
            return np.zeros((len(graphs), len(self.runtimes)), dtype=bool)
        return self.extrapolation.find_beyond(self.extrapolation.measure(graphs))[0]

    def check_lowering(self, graphs: Sequence[Graph]) -> None:
        """Raise a UsageError about graphs of another lowering: a model of executed operators misreads exported ones."""
        for graph_ in graphs:
            if graph_.lowering != self.lowering:
                got, expected = (name or "the export" for name in (graph_.lowering, self.lowering))
                argument = f"lowering={self.lowering!r}" if self.lowering else "no lowering"
                raise UsageError(
                    f"invalid graph: got that of {got}; expected that of {expected}, which this predictor was fitted "
                    f"to. Build it by ngbkit.predict.graph() with {argument}."
                )

    def _warn_of_range(self, names: Sequence[str], beyond: Beyond) -> None:
        """Warn of the networks beyond the labels, by the reasons of the first, and of those without a prediction."""
        rows = zip(names, beyond.reasons, map(any, beyond.refused), strict=True)
        reasons = [(name, is_refused, next(filter(None, texts))) for name, texts, is_refused in rows if any(texts)]
        for refused, title, hint in (
            (True, "no prediction of ", "Measure"),
            (False, "beyond the labels of this predictor: ", "Their intervals are wider. Measure"),
        ):
            listed = [(name, reason) for name, is_refused, reason in reasons if is_refused == refused]
            if listed:
                (name, reason), more = listed[0], f" and {len(listed) - 1} more" if len(listed) > 1 else ""
                advice = f"{hint} such networks, and adapt() to them or fit again."
                warnings.warn(f"{title}{name}{more}: {reason}. {advice}", NgbkitWarning, stacklevel=4)

    def _warn_of_infinite(self, seconds: Floats, high: Floats, ci: float) -> None:
        infinite = np.flatnonzero((np.isfinite(seconds) & np.isinf(high)).any(axis=0))
        if not len(infinite):
            return
        counts = {self.runtimes[column]: self.calibration.count_networks(int(column)) for column in infinite}
        runtimes = ", ".join(f"{compiler} on {device}: {count}" for (device, compiler), count in counts.items())
        most = max(counts.values())
        hint = f"Pass a lower ci=, at most {most / (most + 1):.3f}, or measure" if most else "Measure"
        warnings.warn(
            f"too few networks for intervals of {ci=:g}: got {runtimes}; expected at least {FEWEST}. These intervals "
            f"are infinite. {hint} more networks.",
            NgbkitWarning,
            stacklevel=4,
        )

    def costs(self, graph: Graph, compiler: str, device: str | None = None) -> NDArray[np.float64]:
        """The milliseconds that each of the operators of a graph adds on one runtime.

        Parameters
        ----------
        graph
            A network at one batch size.
        compiler, device
            One of the runtimes: see `column`.

        Raises
        ------
        UnknownNameError, UsageError
            As `column`.
        """
        self.check_lowering([graph])
        return np.asarray(1e3 * self.model.compute_contributions(graph)[:, self.column(compiler, device)])

    def column(self, compiler: str, device: str | None = None) -> int:
        """The index of a runtime in `runtimes`.

        Parameters
        ----------
        compiler, device
            The names of the runtime; the device is optional if there is only one.

        Raises
        ------
        UnknownNameError
            The predictor was not fitted to such a runtime.
        UsageError
            The predictor was fitted to several devices, and `device` is None.
        """
        columns = [column for column, (_, name) in enumerate(self.runtimes) if name == compiler]
        if not columns:
            raise UnknownNameError("compiler of this predictor", compiler, {name for _, name in self.runtimes})
        if device is not None:
            columns = [column for column in columns if self.runtimes[column][0] == device]
            if not columns:
                raise UnknownNameError("device of this predictor", device, {name for name, _ in self.runtimes})
        if len(columns) > 1:
            devices = ", ".join(self.runtimes[column][0] for column in columns)
            raise UsageError(
                f"ambiguous compiler {compiler}: this predictor has several devices; expected device= one of {devices}."
            )
        return columns[0]

    def predict(
        self,
        workloads: Any,
        batch_sizes: Iterable[int] = (1,),
        *,
        factors: Mapping[str, Iterable[FactorValue]] | None = None,
        ci: float = 0.95,
    ) -> pd.DataFrame:
        """A table of latencies, a row per network, factors, batch size and runtime.

        Parameters
        ----------
        workloads
            As for `Sweep`: names, workloads, files; a `Sweep`, whose batch sizes and factors then apply; a `Graph` or
            an `onnx.ModelProto`; or labels, as for `ngbkit.predict.fit`, whose networks are then predicted. Graphs,
            and the networks of labels, are predicted at their own batch size.
        batch_sizes
            Samples in a call.
        factors
            The values of factors that the networks take, such as of an open dimension of an ONNX file:
            ``{"time": [5, 50]}``.
        ci
            As for `seconds`.

        Returns
        -------
        pandas.DataFrame
            ``workload``, a column per factor (NaN for a network that does not take it), ``device``, ``compiler``,
            ``batch_size``, ``latency``, ``ci_low``, ``ci_high`` (seconds), ``throughput`` (samples/s), and ``beyond``:
            the reasons for which the labels do not span the network, empty if they do. Its interval is wider, by the
            errors on families, operators and sizes that were left out; NaN where no prediction would be sensible.

        Raises
        ------
        UsageError
            As `Sweep` and `seconds`; or `factors` are given beside a `Sweep`.
        UnsupportedError
            A network has no ONNX form.
        """
        import pandas as pd

        networks = list_networks(workloads, batch_sizes, factors, self.lowering)
        latency, low, high, reasons = self._predict(networks, ci)
        rows = [
            {
                **{"workload": network.name, **network.factors, "device": device, "compiler": compiler},
                **{"batch_size": network.batch_size, "latency": latency[index, column]},
                **{"ci_low": low[index, column], "ci_high": high[index, column]},
                **{"throughput": network.batch_size / latency[index, column], "beyond": reasons[index][column]},
            }
            for index, network in enumerate(networks)
            for column, (device, compiler) in enumerate(self.runtimes)
        ]
        names = dict.fromkeys(name for network in networks for name in network.factors)
        return pd.DataFrame(rows, columns=["workload", *names, *_COLUMNS])

    def adapt(self, data: Any, *, device: str | None = None, report: Progress | None = None) -> Predictor:
        """A predictor for networks like these, such as a family that this one was not fitted to, or for a new device.

        Of a family, its predictions are corrected by how far those of this one are from the latencies of `data`: by
        what all of them share, and by what similar ones share. Ten networks of a new family are worth measuring: see
        ``adapt`` of `ngbkit.predict.evaluate`. A new device has prices of its own, or corrected predictions of the most
        similar runtimes of this predictor: see the notes. `suggest` names the networks to measure there.

        Parameters
        ----------
        data
            Measurements of a few networks, as for `ngbkit.predict.fit`; without `device`, on runtimes of this
            predictor.
        device
            A new device, which the result is for. Labels of a single device are of this one, such as those of a CSV
            that names none.
        report
            Called with the share that is complete and a message. Default: a line every ten seconds.

        Returns
        -------
        Predictor
            Its intervals are by the errors of leaving out each of these networks in turn: see `seconds`. A runtime
            without a measurement is predicted as before, and has no interval. Of a new device, `choice` has the errors
            that chose.

        Raises
        ------
        UsageError
            No network has a latency on a runtime of this predictor, or too few on `device`; the graphs have another
            lowering, or this predictor knows no range of its labels.

        Notes
        -----
        Each label of a new device is left out in turn. Prices of its own are kept unless the error of corrections is
        smaller by two standard errors of their difference. An operator that no label has costs what it does on the most
        similar runtime, times the factor between both.
        """
        report = log_progress() if report is None else report
        examples = load_similar(data, self.lowering, report=report)
        self.check_lowering(examples.graphs)
        if device is None:
            examples = adaptation.align_runtimes(examples, self.runtimes)
            model, calibration = adaptation.correct(self.model, examples)
            extrapolation = None if self.extrapolation is None else self.extrapolation.extend(examples)
            return replace(self, model=model, calibration=calibration, extrapolation=extrapolation)
        if self.extrapolation is None:
            raise UsageError("this predictor is of a release that kept no prices for another device. Fit it again.")
        selected = adaptation.select_device(examples, clean_line(device))
        model, calibration, extrapolation, choice = adaptation.transfer(self.model, self.extrapolation, selected)
        report(1.0, str(choice))
        return Predictor(
            model=model,
            runtimes=selected.runtimes,
            calibration=calibration,
            lowering=self.lowering,
            extrapolation=extrapolation,
            choice=choice,
        )

    def suggest(
        self,
        networks: Any,
        count: int = 10,
        *,
        batch_sizes: Iterable[int] = (1,),
        factors: Mapping[str, Iterable[FactorValue]] | None = None,
    ) -> pd.DataFrame:
        """The networks to measure next on a new device: those whose latencies tell most about all the others.

        Parameters
        ----------
        networks, batch_sizes, factors
            As for `predict`: the networks to choose from.
        count
            The number of networks.

        Returns
        -------
        pandas.DataFrame
            The most informative first: ``workload``, a column per factor, ``batch_size``, and ``left``, the share of
            the variance of all latencies that is left once this network and those before it are measured.

        Raises
        ------
        UsageError
            As `predict`; or `count` is no positive integer.

        Notes
        -----
        The latency of each is a sum of amounts of work at unknown prices; so each measurement reduces the variance of
        the networks that have the same operators. They are chosen one after the other.
        """
        import pandas as pd

        if not isinstance(count, int) or count < 1:
            raise UsageError(f"invalid {count=}; expected the number of networks, an integer >= 1, such as 10.")
        listed = list_networks(networks, batch_sizes, factors, self.lowering)
        graphs = [network.graph for network in listed]
        self.check_lowering(graphs)
        seconds = np.nanmedian(self.model.predict(graphs), axis=1) if graphs else np.empty(0)
        chosen, left = choose_informative(graphs, seconds, count)
        rows = [
            {"workload": network.name, **network.factors, "batch_size": network.batch_size, "left": share}
            for network, share in zip([listed[index] for index in chosen], left, strict=True)
        ]
        names = dict.fromkeys(name for network in listed for name in network.factors)
        return pd.DataFrame(rows, columns=["workload", *names, "batch_size", "left"])

    def save(self, path: str | Path) -> Path:
        """Write one ``.safetensors`` file: arrays, and JSON in its header; loading it never executes code."""
        return predictor_storage.save(path, **{field.name: getattr(self, field.name) for field in fields(self)})
