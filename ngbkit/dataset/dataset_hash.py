"""The hash of a dataset: equal for equal labels, values and attributes, independent of the file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.sweep.json_values import to_json_value


def hash_dataset(data: Data) -> str:
    """Hash the content of a dataset or tree, ignoring the order of variables and their attributes (units, names)."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, "attrs", _encode_attributes(data.attrs))
    for path, node in sorted(nodes(data).items()):
        _add(digest, "node", path.encode())
        for name in sorted(map(str, node.variables)):
            _add_variable(digest, name, node[name].variable)
    return digest.hexdigest()


def _add_variable(digest: Any, name: str, variable: xr.Variable) -> None:
    values = np.ascontiguousarray(variable.values)
    _add(digest, name, json.dumps([list(map(str, variable.dims)), list(values.shape)]).encode())
    if values.dtype.kind in "OUT":
        texts = [str(value) for value in values.ravel().tolist()]
        _add(digest, "lengths", np.array([len(text) for text in texts], np.int64).tobytes())
        _add(digest, "texts", "".join(texts).encode())
    else:
        # A file preserves the values of numbers, but not the width of integers.
        wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        wide = np.where(np.isnan(wide), np.nan, wide) if wide.dtype.kind == "f" else wide  # one bit pattern of NaN
        _add(digest, "numbers", wide.tobytes())


def _encode_attributes(attrs: Any) -> bytes:
    values = {str(name): to_json_value(value) for name, value in attrs.items()}
    return json.dumps(values, sort_keys=True, default=str).encode()


def _add(digest: Any, name: str, content: bytes) -> None:
    # The length separates a value from the next.
    digest.update(f"{name}\0{len(content)}\0".encode())
    digest.update(content)
