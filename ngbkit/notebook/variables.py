"""The user's variables in the words of a magic: values to insert, clusters, and datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ngbkit.errors import UsageError

if TYPE_CHECKING:
    from ngbkit.dataset.storage import Data

_VARIABLE = re.compile(r"\$(\w+)|\{([A-Za-z_]\w*)\}")


def expand(word: str, namespace: Mapping[str, Any]) -> str:
    """Replace ``$name`` and ``{name}`` in a word by the user's variables; commas join a list."""

    def fill(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in namespace:
            return match[0]
        value = namespace[name]
        if _is_cluster(value):
            return match[0]  # `find_cluster` replaces it by the object
        return ",".join(map(str, value)) if isinstance(value, (list, tuple, range)) else str(value)

    return _VARIABLE.sub(fill, word)


def find_cluster(word: str, namespace: Mapping[str, Any]) -> Any:
    """Find the ipyparallel client, cluster or view in the variable that a word names; the word itself if none."""
    match = _VARIABLE.fullmatch(word)
    value = namespace.get(match[1] or match[2]) if match else None
    return value if _is_cluster(value) else word


def find_dataset(name: str | None, namespace: Mapping[str, Any]) -> Data:
    """Find the dataset in a variable of the notebook."""
    import xarray as xr

    datasets = {key: value for key, value in namespace.items() if isinstance(value, (xr.Dataset, xr.DataTree))}
    if name is None or name not in datasets:
        reason = "missing the name of a dataset" if name is None else f"{name!r} is not a dataset"
        names = ", ".join(key for key in datasets if not key.startswith("_"))
        choices = f"expected one of {names}" if names else "this notebook has none: measure one, or ngbkit.load() it"
        raise UsageError(f"{reason}; {choices}.")
    return datasets[name]


def _is_cluster(value: object) -> bool:
    """Return whether a value is of a class of ipyparallel, or of a class derived from one."""
    return any(kind.__module__.partition(".")[0] == "ipyparallel" for kind in type(value).__mro__)
