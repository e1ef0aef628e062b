"""The machines of a dataset: what each device was when it measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

_GIB = 2**30


def read_environments(data: Data) -> dict[str, dict[str, Any]]:
    """The environment of each device, by its label; `UsageError` if the attribute is damaged."""
    parts: list[Data] = [data] if isinstance(data, xr.Dataset) else [*nodes(data).values(), data]
    try:
        described = [json.loads(part.attrs.get("environments") or "{}") for part in parts]
        merged = {str(label): dict(device) for environments in described for label, device in environments.items()}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise UsageError(
            "invalid environments: got an attribute that is no JSON object of devices; expected the machine of each. "
            'Load the file again, or drop them by .assign_attrs(environments="{}").'
        ) from None
    return merged


def environments(data: Data) -> pd.DataFrame:
    """The machine of each device when it measured, and the versions of its libraries.

    Parameters
    ----------
    data
        A dataset or a tree.

    Returns
    -------
    pandas.DataFrame
        A column per device, and one for each release that it had in an environment of its own. The rows are ``chip``,
        ``accelerator``, ``cores``, ``threads``, ``memory (GiB)``, ``system``, ``python``, ``ngbkit commit``, and the
        version of each library by its name; what a device does not have is empty.
    """
    import pandas as pd

    columns: dict[str, dict[str, Any]] = {}
    for label, device in read_environments(data).items():
        columns[label] = _describe(device)
        columns |= {
            f"{name} on {label}": _describe(release) for name, release in (device.get("releases") or {}).items()
        }
    rows = dict.fromkeys(name for column in columns.values() for name in column)
    return pd.DataFrame(columns, index=list(rows), dtype=object).fillna("")


def _describe(device: dict[str, Any]) -> dict[str, Any]:
    gpu = device.get("gpu") or {}
    memory = device.get("memory_bytes")
    facts = {
        "chip": device.get("chip"),
        "accelerator": gpu.get("name") or device.get("accelerator"),
        "cores": device.get("cores_usable"),
        "threads": device.get("threads"),
        "memory (GiB)": None if memory is None else round(memory / _GIB, 1),
        "system": device.get("system"),
        "python": device.get("python"),
        "ngbkit commit": device.get("ngbkit_commit"),
    }
    versions: dict[str, Any] = device.get("packages") or {}
    return {name: value for name, value in facts.items() if value} | versions
