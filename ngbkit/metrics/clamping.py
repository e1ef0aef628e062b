"""The constants that a conversion to f16 changed, in sentences."""

from __future__ import annotations

import json

import xarray as xr

from ngbkit.dataset.assembly import nodes
from ngbkit.dataset.long_form import to_frame
from ngbkit.dataset.storage import Data

_KEY = '"clamped"'


def describe_clamped(data: Data) -> list[str]:
    """Describe each column whose quantiser clamped constants of a network in a sentence, whatever its batch size."""
    sentences: dict[str, None] = {}
    for node in nodes(data).values():
        if "facts" not in node or not any(_KEY in str(text) for text in node["facts"].values.ravel()):
            continue
        frame = to_frame(xr.Dataset({"facts": node["facts"]}))
        for row in frame[frame["facts"].str.contains(_KEY)].to_dict("records"):
            recipe = json.loads(row["facts"]).get("quantised") or {}
            if clauses := recipe.get("clamped"):
                text = "; ".join(map(str, clauses))
                sentences[f"Changed by {row['compiler']} on {row['workload']}: {text}."] = None
    return list(sentences)
