"""The sentence on profiles that a dataset lacks, with a command that measures them where one can be written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import attrs

from ngbkit import registry
from ngbkit.dataset.storage import Data
from ngbkit.errors import NgbkitError
from ngbkit.sweep.grid import Grid
from ngbkit.workloads.base import Source, Workload

_CELL, _MODULE = "cell", "module"


def ask_for_profiles(data: Data, dim: str, columns: tuple[str, str], missing: Sequence[str]) -> str:
    """Ask for the profiles that a dataset lacks, with the command that measures them."""
    lack = f"no profile of {' and '.join(missing)}" if missing else "no trial that both were profiled in"
    command = _propose(data, dim, columns) or "Measure the sweep again with --profile, or profile=True."
    return f"missing profile: this dataset has {lack}; expected one of each column. {command}"


def _propose(data: Data, dim: str, columns: tuple[str, str]) -> str:
    """Propose the command that measures the columns of a dataset with their profiles; empty where it is unknown."""
    try:
        grid = Grid.from_json(json.loads(data.attrs["sweep"]))
        compilers = columns if dim == "compiler" else grid.compilers
        factors = {name: values for workload in grid.workloads for name, values in workload.factors.items()}
        changes: dict[str, Any] = {"compilers": list(compilers), "precisions": (), "factors": factors, "profile": True}
        options = attrs.evolve(grid, **changes).to_words()
    except Exception:  # noqa: BLE001  the sweep of another version
        return ""
    cells, modules, files, words = [], [], [], []
    for workload in grid.workloads:
        filename = _find_file(workload)
        if workload.source == _CELL and not filename:
            cells.append(workload.name)
            continue
        word = filename or _find_word(workload)
        if not word:
            return ""
        words.append(word)
        modules += [word] if workload.source == _MODULE else []
        files += [word] if filename else []
    arguments = shlex.join([*dict.fromkeys(words), *options])
    if cells:
        return f"`%%ngbench {arguments}` above the cell of {' and '.join(cells)} measures it."
    if modules:
        return f"`%ngbench {arguments}` measures it, in the notebook that has {' and '.join(modules)}."
    place = f", in the folder of {' and '.join(dict.fromkeys(files))}" if files else ""
    return f"`ngbkit run {arguments}` measures it{place}."


def _find_file(workload: Workload) -> str:
    """Find the name of the file that a network is from; empty for others, also for the cells of a notebook."""
    name = str(workload.spec.get("graph") or workload.spec.get("filename") or "")
    return "" if name.startswith("<") else name


def _find_word(workload: Workload) -> str:
    """Find the word that names a network; empty without one. The label of a module is taken to be its variable."""
    if workload.source == _MODULE:
        return workload.name
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    for word in (workload.name, f"{workload.source}.{workload.name}"):
        with suppress(NgbkitError):
            parsed = source.parse(word)
            if parsed is not None and json.dumps(dict(parsed.spec)) == json.dumps(dict(workload.spec)):
                return word
    return ""
