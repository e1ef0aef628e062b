"""Predictors as files: arrays, and JSON in the header of a ``.safetensors`` file; loading one never executes code."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.dataset.storage import write_whole
from ngbkit.errors import MissingDependencyError, UnknownNameError, UsageError
from ngbkit.predict.adaptation import TransferChoice
from ngbkit.predict.graphs import Graph, Operator, Tensor
from ngbkit.predict.kinds import Adapted, find_kind
from ngbkit.predict.kinds.base import Model
from ngbkit.predict.labels.rows import Runtime
from ngbkit.predict.scoring.extrapolation import Extrapolation
from ngbkit.predict.scoring.intervals import Calibration
from ngbkit.predict.scoring.kind_choice import KindChoice
from ngbkit.user_text import clean_line, parse_path

_LAYOUT = 2
_METADATA = "ngbkit"
Choice = KindChoice | TransferChoice | None
"""The errors by which the kind of a predictor was chosen, or the approach to a new device."""

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


def save(
    path: str | Path,
    *,
    model: Model,
    runtimes: tuple[Runtime, ...],
    calibration: Calibration,
    lowering: str,
    extrapolation: Extrapolation | None,
    choice: Choice,
) -> Path:
    """Write the fields of a predictor as one file."""
    models = {"model": model} | {f"fold{number}": fold for number, fold in enumerate(calibration.models)}
    metadata: dict[str, Any] = {
        "layout": _LAYOUT,
        "kind": model.kind,
        "settings": {name: fitted.dump_settings() for name, fitted in models.items()},
        "runtimes": runtimes,
        **({"lowering": lowering} if lowering else {}),
        **({"choice": asdict(choice)} if choice else {}),
    }
    arrays = {
        f"{name}.{part}": np.ascontiguousarray(value)
        for name, fitted in models.items()
        for part, value in fitted.dump_arrays().items()
    }
    arrays |= {name: np.ascontiguousarray(getattr(calibration, name)) for name in ("errors", "fold", "network")}
    if extrapolation is not None:
        metadata["range"], ranges = extrapolation.dump()
        arrays |= {f"{_RANGE}{name}": np.ascontiguousarray(value) for name, value in ranges.items()}
    from safetensors.numpy import save as serialise

    metadata["digest"] = _hash(metadata, arrays)
    target = parse_path(path)
    write_whole(target, serialise(arrays, {_METADATA: json.dumps(metadata)}))
    return target


def load(path: str | Path) -> dict[str, Any]:
    """Read the fields of a predictor from a file, or raise the error that says what is wrong with it."""
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


def _restore(metadata: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Build the fields of a predictor from the content of a file; any exception if it is none."""
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
        extrapolation = Extrapolation.restore(metadata["range"], parts, len(runtimes))
        extrapolation.find_beyond(extrapolation.measure([_PROBE]))
    choice = metadata.get("choice")
    if choice:
        choice = (KindChoice if "kind" in choice else TransferChoice).from_json(choice)
    return {
        **{"model": model, "runtimes": runtimes, "calibration": calibration, "lowering": lowering},
        **{"extrapolation": extrapolation, "choice": choice},
    }


def _restore_model(
    kind: str, settings: Mapping[str, Any], name: str, arrays: Mapping[str, NDArray[Any]], runtimes: int
) -> Model:
    """Build one of the models of a file."""
    prefix = f"{name}."
    parts = {key.removeprefix(prefix): value for key, value in arrays.items() if key.startswith(prefix)}
    model: Model = (Adapted if kind == Adapted.kind else find_kind(kind)).restore(settings, parts)
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
