"""The inputs of networks as a sweep's options give them: values from files or arrays, and where the batch is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.sweep.option import option
from ngbkit.user_text import parse_path
from ngbkit.workloads.base import Workload

ALL = ""
"""Stands for every network whose inputs some values fit."""

_NO_BATCH = ("none", "null", "-")
_AXIS = re.compile(r"[0-9]{1,3}")


def to_inputs(value: Any) -> dict[str, str] | None:
    """The files of values by network; `ALL` for values of no network in particular. Arrays become a stored file."""
    if value is None or (isinstance(value, Mapping) and not value):
        return None
    if isinstance(value, (str, Path)):
        return {ALL: str(parse_path(value).absolute())}
    if isinstance(value, Mapping) and all(isinstance(item, (str, Path)) for item in value.values()):
        return {str(name): str(parse_path(item).absolute()) for name, item in value.items()}
    return {ALL: str(_store(value))}


def parse_inputs(texts: Iterable[str]) -> dict[str, str]:
    """The files in the texts ``FILE`` and ``NETWORK=FILE``."""
    # Path.exists raises an error for a name that is too long.
    pairs = [("", "", text) if os.path.exists(text) else text.rpartition("=") for text in texts]  # noqa: PTH110
    return {name: file for name, _, file in pairs}


def format_inputs(inputs: Mapping[str, str]) -> list[str]:
    """The texts that `parse_inputs` parses."""
    return [f"{name}={file}" if name else file for name, file in inputs.items()]


def to_batch_axes(value: Any) -> dict[str, int | None] | None:
    """The dimension of the batch by input name; None for an input without one."""
    if value is None:
        return None
    if not isinstance(value, Mapping) or not all(axis is None or type(axis) is int for axis in value.values()):
        raise UsageError(
            f"invalid batch_axis: got {value!r}; expected the dimension of the batch by input name, None for an input "
            "without a batch, such as {'state': 1, 'rate': None}."
        )
    return {str(name): axis for name, axis in value.items()} or None


def parse_batch_axes(texts: Iterable[str]) -> dict[str, int | None]:
    """The dimensions in ``state=1,rate=none``."""
    axes: dict[str, int | None] = {}
    for pair in (pair.strip() for text in texts for pair in text.split(",")):
        name, equals, axis = pair.rpartition("=")
        if not name or not equals or not (_AXIS.fullmatch(axis) or axis.lower() in _NO_BATCH):
            raise UsageError(
                f"invalid --batch-axis: got {pair!r}; expected INPUT=DIMENSION, counted from 0, or INPUT=none for an "
                "input without a batch, such as state=1,rate=none."
            )
        axes[name] = int(axis) if _AXIS.fullmatch(axis) else None
    return axes


def format_batch_axes(axes: Mapping[str, int | None]) -> list[str]:
    """The text that `parse_batch_axes` parses."""
    return [",".join(f"{name}={'none' if axis is None else axis}" for name, axis in axes.items())]


def feed(
    workloads: Sequence[Workload], inputs: Mapping[str, str] | None, batch_axes: Mapping[str, int | None] | None
) -> tuple[Workload, ...]:
    """The workloads with their batch and all values that cannot be drawn; `UsageError` if one of these is missing."""
    from ngbkit.workloads import values

    fed = attach(workloads, inputs, batch_axes)
    for workload in fed:
        values.check_given(workload)
    return fed


def attach(
    workloads: Sequence[Workload], inputs: Mapping[str, str] | None, batch_axes: Mapping[str, int | None] | None
) -> tuple[Workload, ...]:
    """The workloads with their batch and their values, each once: those that a journal describes have both."""
    fed = [_move_batch(workload, batch_axes or {}) for workload in workloads]
    _check_axes(fed, batch_axes or {})
    for name, file in (inputs or {}).items():
        fed = _attach(fed, name, file)
    return tuple(fed)


def _move_batch(workload: Workload, batch_axes: Mapping[str, int | None]) -> Workload:
    names = [spec.name for spec in workload.inputs]
    chosen = {name: axis for name, axis in batch_axes.items() if not names or name in names}
    move = workload.load_source().with_batch_axis
    if not chosen or move is None or dict(workload.batch_axis) == chosen:
        return workload
    return replace(move(workload, chosen), batch_axis=chosen)


def _check_axes(workloads: Sequence[Workload], batch_axes: Mapping[str, int | None]) -> None:
    """Check that the batch of each named input moved."""
    fixed = [workload.name for workload in workloads if workload.load_source().with_batch_axis is None]
    names = {name for workload in workloads for name in workload.batch_axis}
    for name in batch_axes:
        if name not in names and len(fixed) == len(workloads):
            raise UsageError(
                f"invalid batch axis of {name}: {', '.join(fixed)} has its batch first. The option is for ONNX files, "
                ".py files and cells; for a live module, use ngbkit.from_module(…, batch_axis={…})."
            )
        if name not in names:
            raise UnknownNameError("input", name, [spec.name for workload in workloads for spec in workload.inputs])


def select_targets(workloads: Sequence[Workload], name: str, flag: str, choice: str) -> list[Workload]:
    """Select the networks that a file is for, without those that have that choice already: a journal's have."""
    names = [workload.name for workload in workloads]
    if name not in (ALL, *names):
        raise UnknownNameError(f"network of {flag}", name, names)
    return [workload for workload in workloads if name in (ALL, workload.name) and not getattr(workload, choice)]


def _attach(workloads: Sequence[Workload], name: str, file: str) -> list[Workload]:
    targets = select_targets(workloads, name, "--inputs", "values")
    if not targets:
        return list(workloads)
    from ngbkit.workloads import values

    path = _store(file)
    attached: dict[int, Workload] = {}
    refusal: UnknownNameError | None = None
    for workload in targets:
        try:
            attached[id(workload)] = values.attach(workload, path)
        except UnknownNameError as error:
            refusal = error
    if refusal is not None and not attached:
        raise refusal
    return [attached.get(id(workload), workload) for workload in workloads]


def _store(source: Any) -> Path:
    """Store the values of a file, or arrays, as an artifact."""
    from ngbkit.workloads import values  # imports NumPy, which the magics load when they are used

    return values.store(values.load(source))


FILES: Mapping[str, Any] = {"action": "append", "metavar": "FILE", "parse": parse_inputs, "format": format_inputs}
"""The settings of an option whose values are files, each of one network or of all."""

INPUTS = option(
    "Values of inputs, for those that noise cannot replace: an ``.npz`` file of arrays by input name, an "
    "``.npy`` file, a folder of an ONNX test (``input_0.pb``), arrays, or a dict of arrays by input name; or a "
    "dict of files by network. One sample is repeated along the batch, and open dimensions become those of the "
    "values. Default: drawn from the seed, or the network's own.",
    "--inputs",
    completes="variable",
    help="values of inputs: an .npz file of arrays by input name, an .npy file, a folder of input_0.pb, …, or in a "
    "notebook a variable of arrays; NETWORK=FILE for one network of several (default: drawn)",
    **FILES,
)

BATCH_AXIS = option(
    "The dimension of inputs that is the batch, counted from 0, by input name; None for an input without a "
    'batch: ``{"state": 1, "rate": None}``. Default: as `ngbkit.describe` shows.',
    "--batch-axis",
    action="append",
    metavar="INPUT=AXIS",
    parse=parse_batch_axes,
    format=format_batch_axes,
    help="the dimension of inputs that is the batch, or none: state=1,rate=none (default: as `ngbkit inputs` shows)",
)
