"""Adapts the model of a predictor to a few labels: of networks like none of its own, or of another device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.predict.kinds import Adapted, Transferred
from ngbkit.predict.kinds.base import Model, Progress
from ngbkit.predict.kinds.transferred import Approach, TransferChoice, choose_approach, take_runtime
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.labels.rows import Runtime, format_runtimes
from ngbkit.predict.scoring.extrapolation import Extrapolation
from ngbkit.predict.scoring.intervals import Calibration

Fitted = TypeVar("Fitted", bound=Model)

# The fewest labels of a new runtime: each is left out in turn.
_FEWEST = 4


def correct(model: Model, examples: Examples) -> tuple[Model, Calibration]:
    """Correct a model by examples of its runtimes; the errors are those of corrections without each network."""
    return _calibrate(lambda labels: Adapted.build(model, labels), examples)


def _calibrate(build: Callable[[Examples], Fitted], examples: Examples) -> tuple[Fitted, Calibration]:
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
    seconds, label_errors = (np.full((len(examples), len(runtimes)), np.nan) for _ in range(2))
    for column, runtime in enumerate(runtimes):
        if runtime in examples.runtimes:
            place = examples.runtimes.index(runtime)
            seconds[:, column] = examples.seconds[:, place]
            if examples.errors is not None:
                label_errors[:, column] = examples.errors[:, place]
    measured = np.flatnonzero(np.isfinite(seconds).any(axis=1))
    if not len(measured):
        got, expected = map(format_runtimes, (examples.runtimes, runtimes))
        raise UsageError(
            f"no latency to adapt to: got runtimes {got}; expected {expected}. Measure on these, or name a new device "
            "by device=."
        )
    return replace(examples, runtimes=runtimes, seconds=seconds, errors=label_errors, operator_seconds=None).take(
        measured
    )


def select_device(examples: Examples, device: str) -> Examples:
    """Return the labels of networks on one device; labels of a single device, such as a CSV's, are of that one."""
    devices = dict.fromkeys(name for name, _ in examples.runtimes)
    if device not in devices and len(devices) > 1:
        raise UnknownNameError("device of these labels", device, devices)
    columns = [column for column, (name, _) in enumerate(examples.runtimes) if name == device or device not in devices]
    selected = replace(
        examples,
        runtimes=tuple((device, examples.runtimes[column][1]) for column in columns),
        seconds=examples.seconds[:, columns],
        errors=None if examples.errors is None else examples.errors[:, columns],
        operator_seconds=None,
    )
    return selected.take(np.flatnonzero(np.isfinite(selected.seconds).any(axis=1) & ~selected.isolated))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The parts of a predictor of a new device, and the errors by which each of its runtimes is predicted as it is."""

    model: Transferred
    calibration: Calibration
    extrapolation: Extrapolation
    choices: tuple[TransferChoice, ...]


def transfer(
    model: Model, runtimes: Sequence[Runtime], extrapolation: Extrapolation, examples: Examples, report: Progress
) -> Transfer:
    """Build the model of the runtimes of examples from that of `runtimes`, by the approach that leaving out chooses."""
    model = model.base if isinstance(model, Adapted) else model
    prices, names = extrapolation.model, [f"{compiler} on {device}" for device, compiler in runtimes]
    approaches: list[Approach] = []
    choices: list[TransferChoice] = []
    count = len(examples.runtimes)
    for column, (device, compiler) in enumerate(examples.runtimes):
        labels = take_runtime(examples, column)
        networks = len(set(labels.parents))
        if networks < _FEWEST:
            raise UsageError(
                f"too few networks to adapt to {device}: got {networks} of {compiler}; expected at least {_FEWEST}, "
                "better ten. Predictor.suggest names those to measure."
            )

        def report_share(share: float, message: str, column: int = column) -> None:
            report((column + share) / count, message)

        approach, choice = choose_approach(model, prices, labels, names, report_share)
        approaches.append(approach)
        choices.append(choice)
    fitted, calibration = _calibrate(lambda labels: Transferred.build(model, prices, labels, approaches), examples)
    moved = extrapolation.move(fitted.prices, [approach.source for approach in approaches])
    extended = moved.extend(examples)
    return Transfer(model=fitted, calibration=calibration, extrapolation=extended, choices=tuple(choices))
