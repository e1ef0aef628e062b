"""The hash of a dataset: the same for the same labels, values and attributes, in whatever file they are kept."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.storage import Data
from ngbkit.sweep.to_json import plain


def fingerprint(data: Data) -> str:
    """A content hash of a dataset or tree.

    Parameters
    ----------
    data
        Any dataset. Variables count by name and not by order; attributes of variables, which say units and names for
        people, do not count.
    """
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, "attrs", _attributes(data.attrs))
    for path, node in sorted(nodes(data).items()):
        _add(digest, "node", path.encode())
        for name in sorted(map(str, node.variables)):
            _variable(digest, name, node[name].variable)
    return digest.hexdigest()


def _variable(digest: Any, name: str, variable: xr.Variable) -> None:
    values = np.ascontiguousarray(variable.values)
    _add(digest, name, json.dumps([list(map(str, variable.dims)), list(values.shape)]).encode())
    if values.dtype.kind in "OUT":
        texts = [str(value) for value in values.ravel().tolist()]
        _add(digest, "lengths", np.array([len(text) for text in texts], np.int64).tobytes())
        _add(digest, "texts", "".join(texts).encode())
    else:
        # Numbers as they are kept: a file does not change them, but for integers that fit into fewer bytes.
        wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
        wide = np.where(np.isnan(wide), np.nan, wide) if wide.dtype.kind == "f" else wide  # one kind of NaN
        _add(digest, "numbers", wide.tobytes())


def _attributes(attrs: Any) -> bytes:
    return json.dumps({str(name): plain(value) for name, value in attrs.items()}, sort_keys=True, default=str).encode()


def _add(digest: Any, name: str, content: bytes) -> None:
    # With its length: or one value could go on where another ends.
    digest.update(f"{name}\0{len(content)}\0".encode())
    digest.update(content)
