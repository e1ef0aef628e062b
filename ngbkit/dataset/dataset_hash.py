"""The hash of a dataset: equal for equal labels, values and attributes, independent of the file."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import xarray as xr

from ngbkit.sweep.json_values import to_json_value

ATTRIBUTE = "content_hash"
"""The attribute of a file with the hash of its content; no content itself."""

ALTERED = "altered"
"""The attribute of a dataset from a file with another content than ngbkit saved."""


def hash_dataset(data: xr.Dataset | xr.DataTree) -> str:
    """Hash the content of a dataset or tree, ignoring the order of variables and of attributes."""
    digest = hashlib.blake2b(digest_size=16)
    _add(digest, "attrs", _encode_attributes(data.attrs))
    tree = {} if isinstance(data, xr.Dataset) else {node.path: node.to_dataset() for node in data.subtree}
    nodes = {path: node for path, node in tree.items() if node.data_vars} if tree else {"/": data}
    for path, node in sorted(nodes.items()):
        _add(digest, "node", path.encode())
        if path != "/":
            _add(digest, "attrs", _encode_attributes(node.attrs))
        for name in sorted(node.variables, key=str):
            _add(digest, "role", b"coordinate" if name in node.coords else b"data")
            _add_variable(digest, str(name), node.variables[name])
    return digest.hexdigest()


def _add_variable(digest: Any, name: str, variable: xr.Variable) -> None:
    values = np.ascontiguousarray(variable.values)
    if values.dtype.kind in "mM":
        values = values.astype(f"{values.dtype.kind}8[ns]")  # the unit of a file may be another
    _add(digest, name, json.dumps([list(map(str, variable.dims)), list(values.shape)]).encode())
    _add(digest, "attrs", _encode_attributes(variable.attrs))
    if values.dtype.kind == "O" and not any(isinstance(value, (str, bytes)) for value in values.ravel().tolist()):
        values = np.array(values.tolist())  # numbers, which a file has as such
    if values.dtype.kind in "OUTS":
        texts = [value if isinstance(value, str) else _to_text(value) for value in values.ravel().tolist()]
        _add(digest, "lengths", np.array([len(text) for text in texts], np.int64).tobytes())
        _add(digest, "texts", "".join(texts).encode())
    elif values.dtype.kind == "V":  # of another program
        _add(digest, values.dtype.str, values.tobytes())
    else:
        # A file preserves the values of numbers, but not the width of integers.
        wide: Any = values.astype({"f": np.float64, "c": np.complex128}.get(values.dtype.kind, np.int64))
        wide = np.where(np.isnan(wide), np.nan, wide) if wide.dtype.kind == "f" else wide  # one bit pattern of NaN
        _add(digest, "numbers", wide.tobytes())


def _to_text(value: Any) -> str:
    return "" if value is None or value != value else str(value)  # a file has an empty text where one is missing


def _encode_attributes(attrs: Any) -> bytes:
    # A file makes an array of a list, and a number of a list of one.
    values = {str(name): to_json_value(np.ravel(value).tolist()) for name, value in attrs.items() if name != ATTRIBUTE}
    return json.dumps(values, sort_keys=True, default=str).encode()


def _add(digest: Any, name: str, content: bytes) -> None:
    # The length separates a value from the next.
    digest.update(f"{name}\0{len(content)}\0".encode())
    digest.update(content)
