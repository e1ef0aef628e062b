"""Predictors as files: arrays, and JSON in the header of a ``.safetensors`` file; loading one never executes code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.dataset.storage import write_whole
from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError
from ngbkit.predict.graphs import Graph, Operator, Tensor
from ngbkit.predict.kinds import Adapted, Transferred, find_kind
from ngbkit.predict.kinds.base import Model
from ngbkit.predict.kinds.transferred import TransferChoice
from ngbkit.predict.labels.rows import Runtime
from ngbkit.predict.scoring import extrapolation as extrapolations
from ngbkit.predict.scoring.extrapolation import Extrapolation
from ngbkit.predict.scoring.intervals import Calibration
from ngbkit.predict.scoring.kind_choice import KindChoice
from ngbkit.user_text import clean_line, parse_path

_LAYOUT = 1
_METADATA = "ngbkit"
Choice = KindChoice | tuple[TransferChoice, ...] | None
"""The errors by which the kind of a predictor was chosen, or the approach to each runtime of a new device."""

_RANGE = "range."
# A graph that every model can predict.
_VALUE = Tensor(shape=(1, 1), dtype="float", bytes=4)
_PROBE = Graph(
    operators=(Operator(name="", kind="Relu", inputs=(_VALUE,), outputs=(_VALUE,), weights=(), attributes={}, macs=0),),
    edges=(),
    inputs=(_VALUE,),
    outputs=(_VALUE,),
    shared=(),
    digest="",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a predictor: see `Predictor`."""

    model: Model
    runtimes: tuple[Runtime, ...]
    calibration: Calibration
    lowering: str
    extrapolation: Extrapolation | None
    choice: Choice


def save(path: str | Path, parts: Parts) -> Path:
    """Write the parts of a predictor as one file."""
    calibration = parts.calibration
    models = {"model": parts.model} | {f"fold{number}": fold for number, fold in enumerate(calibration.models)}
    metadata: dict[str, Any] = {
        "layout": _LAYOUT,
        "kind": parts.model.kind,
        "settings": {name: model.dump_settings() for name, model in models.items()},
        "runtimes": parts.runtimes,
        **({"lowering": parts.lowering} if parts.lowering else {}),
        **({"choice": _dump_choice(parts.choice)} if parts.choice else {}),
    }
    arrays = {
        f"{name}.{part}": np.ascontiguousarray(value)
        for name, fitted in models.items()
        for part, value in fitted.dump_arrays().items()
    }
    arrays |= {name: np.ascontiguousarray(getattr(calibration, name)) for name in ("errors", "fold", "network")}
    if parts.extrapolation is not None:
        metadata["range"], ranges = extrapolations.dump(parts.extrapolation)
        arrays |= {f"{_RANGE}{name}": np.ascontiguousarray(value) for name, value in ranges.items()}
    from safetensors.numpy import save as serialise

    metadata["digest"] = _hash(metadata, arrays)
    target = parse_path(path)
    write_whole(target, serialise(arrays, {_METADATA: json.dumps(metadata)}))
    return target


def load(path: str | Path) -> Parts:
    """Read the parts of a predictor from a file, or raise the error that says what is wrong with it."""
    metadata, arrays = _read(Path(path))
    layout = metadata.get("layout")
    if layout != _LAYOUT:
        raise UsageError(
            f"invalid layout of {path}: got {str(layout)[:40]}; expected {_LAYOUT}. Fit the predictor again with this "
            "version of ngbkit."
        )
    if metadata.pop("digest", None) != _hash(metadata, arrays):
        raise UsageError(f"{path} is damaged: its content is not what was saved. Copy it again, or fit the predictor.")
    try:
        return _restore(metadata, arrays)
    except (MissingDependencyError, UnknownNameError):
        raise
    except Exception as error:  # each kind of model fails in its own way about arrays that do not fit
        reason = str(error).strip().partition("\n")[0][:200]
        raise UsageError(
            f"{path} is not a predictor: {type(error).__name__}: {reason}. Pass a file that predictor.save() wrote."
        ) from error


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    from safetensors import SafetensorError, safe_open

    try:
        if not path.is_file():
            raise ValueError("it is no file")  # a pipe would block
        with safe_open(path, framework="numpy") as file:
            metadata = json.loads((file.metadata() or {}).get(_METADATA, "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
    # Arrays of a dtype that NumPy lacks are a TypeError or an AttributeError, and nested JSON is a RecursionError.
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"{path} is not a predictor: {error}. Pass a file that predictor.save() wrote.") from error
    return metadata if isinstance(metadata, dict) else {}, arrays


def _restore(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Parts:
    """Build the parts of a predictor from the content of a file; any exception if it is none."""
    runtimes = tuple((device, compiler) for device, compiler in metadata["runtimes"])
    if not all(isinstance(name, str) for runtime in runtimes for name in runtime):
        raise TypeError("a runtime is a device and a compiler")
    runtimes = tuple((clean_line(device), clean_line(compiler)) for device, compiler in runtimes)
    lowering = metadata.get("lowering", "")
    if not isinstance(lowering, str):
        raise TypeError("a lowering is the label of a compiler")
    if any(np.isinf(array).any() for array in arrays.values() if array.dtype.kind == "f"):
        raise ValueError("an infinite number")  # it would predict NaN
    errors = arrays["errors"]
    if errors.dtype != np.float64 or errors.ndim != 2 or errors.shape[1] != len(runtimes):
        raise ValueError(f"errors of {errors.dtype}{list(errors.shape)} are not of {len(runtimes)} runtimes")
    settings = dict(metadata["settings"])
    model, *models = (
        _restore_model(metadata["kind"], settings[name], name, arrays, len(runtimes))
        for name in ("model", *(f"fold{number}" for number in range(len(settings) - 1)))
    )
    fold, network = arrays["fold"], arrays["network"]
    if any(array.dtype != np.int64 or array.shape != errors.shape[:1] for array in (fold, network)):
        raise ValueError(f"folds and networks are not those of {len(errors)} errors")
    if len(fold) and not 0 <= fold.min() <= fold.max() < len(models):
        raise ValueError(f"errors of a fold beyond {len(models)} folds")
    calibration = Calibration(models=tuple(models), errors=errors, fold=fold, network=network)
    if not np.isfinite(model.predict([_PROBE])[0, np.isfinite(errors).any(axis=0)]).all():
        raise ValueError("a runtime with labels is predicted as NaN")
    extrapolation = None
    if "range" in metadata:
        parts = {name.removeprefix(_RANGE): array for name, array in arrays.items() if name.startswith(_RANGE)}
        extrapolation = extrapolations.restore(metadata["range"], parts, len(runtimes))
        extrapolation.find_beyond(extrapolation.measure([_PROBE]))
    return Parts(
        model=model,
        runtimes=runtimes,
        calibration=calibration,
        lowering=lowering,
        extrapolation=extrapolation,
        choice=_restore_choice(metadata.get("choice")),
    )


def _dump_choice(choice: Choice) -> Any:
    return [each.to_json() for each in choice] if isinstance(choice, tuple) else choice and choice.to_json()


def _restore_choice(fields: Any) -> Choice:
    """Build what `_dump_choice` returned; any exception about something else."""
    if isinstance(fields, list):
        return tuple(map(TransferChoice.from_json, fields))
    return KindChoice.from_json(fields) if fields else None


def _restore_model(
    kind: str, settings: Mapping[str, Any], name: str, arrays: Mapping[str, NDArray[Any]], runtimes: int
) -> Model:
    """Build one of the models of a file."""
    prefix = f"{name}."
    parts = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    derived = {model.kind: model for model in (Adapted, Transferred)}
    model: Model = (derived[kind] if kind in derived else find_kind(kind)).restore(settings, parts)
    predicted = model.predict([_PROBE])
    if predicted.shape != (1, runtimes):
        raise ValueError(f"the model predicts {list(predicted.shape)[1:]} runtimes; expected {runtimes}")
    return model


def _hash(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hash all that a file contains; safetensors itself has no checksum."""
    hasher = hashlib.blake2b(json.dumps(metadata, sort_keys=True).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        hasher.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        hasher.update(np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()
