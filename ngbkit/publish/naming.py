"""Names the figures and the datasets of a notebook by words, for readers who link and download them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ngbkit.figures.provenance import list_parts
from ngbkit.workloads.base import hash_json

_PLOT = re.compile(r"\b(\w+)\.ngb\.plot\b")


class NotebookNames:
    """The names of a notebook's figures and datasets, each once, in the order of its cells."""

    def __init__(self, stem: str) -> None:
        slug = re.sub(r"[^\w.-]+", "-", stem).strip("-.")
        # Two notebooks may differ in such characters alone.
        self._prefix = slug if slug == stem else f"{slug}-{hash_json(stem)[:4]}".lstrip("-")
        self._counts: Counter[str] = Counter()
        self._datasets: dict[str, str] = {}

    def name_figure(self, provenance: Mapping[str, Any]) -> str:
        """Name a figure by its notebook, its kind and its number: ``03-paper-speedup-2``."""
        kinds = {part.get("figure", "chart") for part in list_parts(provenance)}
        # Without a hyphen in the kind, the names of two notebooks differ.
        kind = re.sub(r"\W+", "_", kinds.pop()) if len(kinds) == 1 else "composition"
        self._counts[kind] += 1
        return f"{self._prefix}-{kind}-{self._counts[kind]}"

    def name_datasets(self, provenance: Mapping[str, Any], code: str) -> dict[str, str]:
        """Name each dataset of a figure by the variable that its cell draws, or else by its run, and by its hash."""
        parts = list_parts(provenance)
        variables = _PLOT.findall(code)
        if len(set(variables)) == 1:
            variables = variables[:1] * len(parts)
        elif len(variables) != len(parts):
            variables = [_name_runs(part.get("run_id", "")) for part in parts]
        digests = [part.get("dataset") for part in parts]
        for variable, digest in zip(variables, digests, strict=True):
            if digest and digest not in self._datasets:
                name = re.sub(r"[^\w.-]+", "-", f"{self._prefix}-{variable}-{digest[:8]}")
                self._datasets[digest] = name if name not in self._datasets.values() else f"{name}{digest[8:]}"
        return {digest: self._datasets[digest] for digest in digests if digest}


def _name_runs(run_ids: str) -> str:
    """Name the run of a dataset, or the number of those that it merges: the name of a file has 255 bytes."""
    runs = run_ids.split(", ")
    return (runs[0] or "data") if len(runs) == 1 else f"{len(runs)}-runs"
