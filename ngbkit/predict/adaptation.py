"""Adapts the model of a predictor to a few labels: of networks like none of its own, or of another device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predict.kinds import Adapted
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Model
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.rows import Runtime, format_runtimes
from ngbkit.predict.scoring.extrapolation import Extrapolation
from ngbkit.predict.scoring.intervals import Calibration
from ngbkit.user_text import clean_line, format_share

if TYPE_CHECKING:
    from typing import Self

# The fewest labels of a new runtime: each is left out in turn.
_FEWEST = 4
# Another device has to be better than prices of its own by so many standard errors on labels that were left out: the
# least error of several approaches is smaller by chance, and suggested labels are harder to predict than the rest.
_ERRORS = 2.0
OWN, CORRECTION = "prices of its own", "a correction"


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferChoice:
    """The approach to a new device, and the mean error of each approach on labels that were left out."""

    approach: str
    errors: dict[str, float]

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {format_share(error, '.1f')}" for name, error in self.errors.items())
        return f"{self.approach}; errors on labels that were left out are {listed}"

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Build one from its fields; any exception about others."""
        errors = {clean_line(name): float(error) for name, error in fields["errors"].items()}
        return cls(approach=clean_line(fields["approach"]), errors=errors)


def correct(model: Model, examples: Examples) -> tuple[Model, Calibration]:
    """Correct a model by examples of its runtimes; the errors are those of corrections without each network."""
    return _calibrate(lambda labels: Adapted.build(model, labels), examples)


def _calibrate(build: Callable[[Examples], Model], examples: Examples) -> tuple[Model, Calibration]:
    """Build a model of all examples, and one without each network, whose errors on it are those of the intervals."""
    _, network = np.unique(np.array(examples.parents, dtype=str), return_inverse=True)
    models = [build(examples.take(np.flatnonzero(network != left_out))) for left_out in range(int(network.max()) + 1)]
    errors = np.full(examples.seconds.shape, np.nan)
    for index, graph_ in enumerate(examples.graphs):
        errors[index] = np.abs(np.log(models[network[index]].predict([graph_])[0] / examples.seconds[index]))
    numbers = network.astype(np.int64)
    return build(examples), Calibration(models=tuple(models), errors=errors, fold=numbers, network=numbers)


def align_runtimes(examples: Examples, runtimes: tuple[Runtime, ...]) -> Examples:
    """Return the examples with a label on any of these runtimes, which are then all their columns."""
    places = [examples.runtimes.index(runtime) if runtime in examples.runtimes else None for runtime in runtimes]
    aligned = _take_columns(examples, places, runtimes)
    if not len(aligned):
        got, expected = map(format_runtimes, (examples.runtimes, runtimes))
        raise UsageError(
            f"no latency to adapt to: got runtimes {got}; expected {expected}. Measure on these, or name a new device "
            "by device=."
        )
    return aligned


def select_device(examples: Examples, device: str) -> Examples:
    """Return the labels of networks on one device; labels of a single device, such as a CSV's, are of that one."""
    devices = dict.fromkeys(name for name, _ in examples.runtimes)
    if device not in devices and len(devices) > 1:
        raise UnknownNameError("device of these labels", device, devices)
    columns = [column for column, (name, _) in enumerate(examples.runtimes) if name == device or device not in devices]
    networks = examples.take(np.flatnonzero(~examples.isolated))
    return _take_columns(networks, columns, [(device, examples.runtimes[column][1]) for column in columns])


def _take_columns(examples: Examples, columns: Sequence[int | None], runtimes: Sequence[Runtime]) -> Examples:
    """Return the examples that have a label in any of these columns, of which None is blank."""
    blank = np.full(len(examples), np.nan)
    seconds, errors = (
        np.stack([blank if table is None or column is None else table[:, column] for column in columns], axis=1)
        for table in (examples.seconds, examples.errors)
    )
    selected = replace(examples, runtimes=tuple(runtimes), seconds=seconds, errors=errors, operator_seconds=None)
    return selected.take(np.flatnonzero(np.isfinite(seconds).any(axis=1)))


def transfer(
    model: Model, extrapolation: Extrapolation, examples: Examples
) -> tuple[Model, Calibration, Extrapolation, TransferChoice]:
    """Return the model, the errors and the range of a new device, and the choice that leaving out each label makes."""
    for (device, compiler), column in zip(examples.runtimes, examples.seconds.T, strict=True):
        networks = len({examples.parents[index] for index in np.flatnonzero(np.isfinite(column))})
        if networks < _FEWEST:
            raise UsageError(
                f"too few networks to adapt to {device}: got {networks} of {compiler}; expected at least {_FEWEST}, "
                "better ten. Predictor.suggest names those to measure."
            )
    sources = find_nearest(extrapolation.model, examples)
    fitted = {
        OWN: _calibrate(lambda labels: find_prices(labels, extrapolation.model, sources), examples),
        CORRECTION: _calibrate(lambda labels: Adapted.build(model, labels, sources), examples),
    }
    lead = fitted[OWN][1].errors - fitted[CORRECTION][1].errors
    lead = lead[np.isfinite(lead)]
    is_better = lead.mean() > _ERRORS * lead.std(ddof=1) / np.sqrt(len(lead))
    errors = {name: float(np.nanmean(calibration.errors)) for name, (_, calibration) in fitted.items()}
    choice = TransferChoice(approach=CORRECTION if is_better else OWN, errors=errors)
    moved = extrapolation.move(find_prices(examples, extrapolation.model, sources), sources).extend(examples)
    return (*fitted[choice.approach], moved, choice)


def find_nearest(prices: Linear, examples: Examples) -> list[int]:
    """Return for each runtime of examples the one whose prices, times a factor, are nearest to its labels."""
    sources = np.flatnonzero(np.isfinite(prices.prices).all(axis=1))
    with np.errstate(divide="ignore"):
        logs = np.log(prices.predict(examples.graphs)[:, sources, None] / examples.seconds[:, None])
    distances = np.nanmean(np.abs(logs - np.nanmedian(logs, axis=0)), axis=0)
    return [int(sources[place]) for place in np.argmin(distances, axis=0)]


def find_prices(examples: Examples, prices: Linear, sources: Sequence[int]) -> Linear:
    """Fit prices to the labels of a new device.

    An operator that no label of a runtime has costs what it does on its source, times the factor between both.
    """
    fitted = Linear.find_prices(examples)
    for column, source in enumerate(sources):
        rows = np.flatnonzero(np.isfinite(examples.seconds[:, column]))
        amounts = Linear.build_columns([examples.graphs[index] for index in rows])
        elsewhere = np.maximum(amounts @ prices.prices[source], 1e-12)
        factor = np.exp(np.median(np.log(examples.seconds[rows, column] / elsewhere)))
        is_known = (amounts.max(axis=0) > 0) | (fitted[column] > 0)
        fitted[column] = np.where(is_known, fitted[column], factor * prices.prices[source])
    return Linear.restore({}, {"prices": fitted})
