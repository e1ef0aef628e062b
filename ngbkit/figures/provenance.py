"""The provenance of a figure, embedded in it: its name, its arguments and the hash of its dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from importlib import metadata
from inspect import signature
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from ngbkit.dataset import storage
from ngbkit.dataset.dataset_hash import hash_dataset
from ngbkit.hardware import environment
from ngbkit.sweep.json_values import to_json_value
from ngbkit.workloads.base import hash_json

KEY = "ngbkit"
"""The key of ``usermeta`` in a figure's specification."""

DATASETS = "NGBKIT_DATASETS"
"""The environment variable with the folder that archives the datasets of figures by their hash, while the notebooks of
a publication are executed."""

# The distributions that run networks, of those of an environment.
_LIBRARIES = (
    *("torch", "onnxruntime", "onnxruntime-gpu", "openvino", "apache-tvm", "tensorrt", "iree-base-compiler"),
    "executorch",
)
_Arguments = ParamSpec("_Arguments")
_Chart = TypeVar("_Chart")


def traced(figure: Callable[_Arguments, _Chart]) -> Callable[_Arguments, _Chart]:
    """Make a figure embed its provenance in ``usermeta["ngbkit"]`` of its specification.

    The keys are ``figure`` and ``arguments``, the call that drew it; ``dataset``, the hash of the data
    (`ngbkit.dataset.dataset_hash`); ``run_id``; ``sweep`` and ``environments``, hashes of the sweep and its devices;
    ``machines``, the devices in words; ``measured_with`` and ``drawn_with``, versions of ngbkit; and ``commit``, if
    ngbkit ran from a checkout.
    """

    @wraps(figure)
    def draw(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Chart:
        chart = figure(*args, **kwargs)
        data: Any = args[0] if args else kwargs["data"]
        positional = zip(list(signature(figure).parameters)[1:], args[1:], strict=False)
        arguments = {**dict(positional), **{name: value for name, value in kwargs.items() if name != "data"}}
        chart.usermeta = {KEY: trace(figure.__name__, arguments, data)}  # type: ignore[attr-defined]
        return chart

    return draw


def trace(figure: str, arguments: dict[str, Any], data: Any) -> dict[str, Any]:
    """Build the provenance of a figure or a statement of a dataset, and archive the dataset for a publication."""
    digest, folder = hash_dataset(data), os.environ.get(DATASETS)
    if folder and not (target := Path(folder) / f"{digest}.nc").exists():
        storage.save(data, target)
    attrs = data.attrs
    environments = json.loads(attrs.get("environments") or "{}")
    commits = sorted({device["ngbkit_commit"] for device in environments.values() if device.get("ngbkit_commit")})
    return {
        "figure": figure,
        "arguments": to_json_value(arguments),
        "dataset": digest,
        "run_id": attrs.get("run_id", ""),
        "sweep": hash_json(json.loads(attrs.get("sweep") or "null")),
        "environments": hash_json(environments),
        "machines": {label: _describe_machine(device) for label, device in environments.items()},
        "measured_with": attrs.get("ngbkit_version", ""),
        "commit": ", ".join(commits),
        "drawn_with": metadata.version("ngbkit"),
        **({"drawn_at": _find_commit()} if _find_commit() else {}),
    }


def _describe_machine(device: Mapping[str, Any]) -> str:
    """Describe a device by its chip, its accelerator, its cores, and the versions of its libraries."""
    gpu = device.get("gpu") or {}
    facts = [device.get("chip"), gpu.get("name")]
    facts += [f"{device['cores_usable']} cores"] if device.get("cores_usable") else []
    packages = device.get("packages") or {}
    facts += [f"{name} {packages[name]}" for name in packages if name in _LIBRARIES]
    return ", ".join(fact for fact in facts if fact)


def merge(provenances: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The provenance of a composition of figures: its ``parts``, or its only figure's provenance."""
    return provenances[0] if len(provenances) == 1 else {"parts": list(provenances)} if provenances else {}


def list_parts(provenance: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The provenance of each figure of a composition, or of a single figure."""
    return list(provenance.get("parts", [provenance]))


def list_datasets(provenance: Mapping[str, Any]) -> list[str]:
    """The hashes of the datasets of a figure or of a composition of figures, each once."""
    return list(dict.fromkeys(part["dataset"] for part in list_parts(provenance) if part.get("dataset")))


@cache
def _find_commit() -> str:
    """The commit of the loaded code: the checkout may change while a notebook runs."""
    return environment.find_commit()
