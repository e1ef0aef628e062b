"""The variants of a merge: each dataset gets a label along the dim `variant`, so that equal trials stay apart."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ngbkit.dataset.merging.parts import Part, split_parts
from ngbkit.errors import UsageError
from ngbkit.sweep.conversion import to_factors
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads.base import FactorValue

VARIANT = "variant"


def split_variants(datasets: Sequence[Any], labels: Sequence[FactorValue]) -> list[Part]:
    """Split datasets and trees into their grids, each labelled by the variant that it is."""
    checked = to_factors({VARIANT: labels})[VARIANT]
    if len(checked) != len(datasets):
        raise UsageError(
            f"invalid variant: got {len(checked)} labels for {len(datasets)} datasets; expected as many. Name each "
            'dataset once: merge(it1, it2, variant=["it1", "it2"]).'
        )
    return [part for data, label in zip(datasets, checked, strict=True) for part in _label(split_parts([data]), label)]


def _label(parts: Sequence[Part], label: FactorValue) -> Iterator[Part]:
    """Yield the parts of a dataset with the label as the only value of a further factor."""
    for part in parts:
        if VARIANT in part.dataset.variables:
            values = ", ".join(map(str, part.list_labels(VARIANT)))
            raise UsageError(
                f"invalid variant: got a dataset that has a variant already ({values}); expected datasets without it. "
                "Merge it with the others without variant=, if its labels differ from theirs."
            )
        dims = (*part.dims[:2], VARIANT, *part.dims[2:])
        dataset = part.dataset.expand_dims({VARIANT: [label]}).transpose(*dims, "repeat", missing_dims="ignore")
        yield replace(part, dims=dims, dataset=dataset, attrs=dict(part.attrs) | _label_attributes(part, label))


def _label_attributes(part: Part, label: FactorValue) -> dict[str, str]:
    """Add the factor to the networks and the facts that the attributes describe."""
    attrs: dict[str, Any] = {}
    if sweep := part.load_json("sweep"):
        attrs["sweep"] = _label_sweep(sweep, label)
    if sweeps := part.load_json("sweeps"):
        attrs["sweeps"] = [_label_sweep(sweep, label) for sweep in sweeps]
    if facts := part.load_json("facts"):
        names = ((*json.loads(key), value) for key, value in facts.items())
        attrs["facts"] = {facts_key(name, {**factors, VARIANT: label}): value for name, factors, value in names}
    return {name: json.dumps(value) for name, value in attrs.items()}


def _label_sweep(sweep: dict[str, Any], label: FactorValue) -> dict[str, Any]:
    workloads = [
        {**each, "takes": [*each["takes"], VARIANT], "factors": {**each["factors"], VARIANT: [label]}}
        for each in sweep["workloads"]
    ]
    return {**sweep, "workloads": workloads, "factors": {**sweep["factors"], VARIANT: [label]}}
