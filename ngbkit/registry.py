"""The plugins of ngbkit, loaded by entry point, and the versions of packages.

They are compilers, quantisers, metrics, figures of results, workload sources, launchers of engines, commands, guides
of runs, parts of panels, methods of datasets, rules that rewrite graphs, and simplifiers of ONNX files.

A package adds a compiler by an entry point of its own; ngbkit itself needs no change::

    [project.entry-points."ngbkit.compilers"]
    mine = "my_package.compiler:COMPILER"      # a ngbkit.compilers.base.Compiler
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from ngbkit.errors import NgbkitWarning, UnknownNameError

COMPILERS = "ngbkit.compilers"
QUANTISERS = "ngbkit.quantisers"
METRICS = "ngbkit.metrics"
FIGURES = "ngbkit.figures"
WORKLOADS = "ngbkit.workloads"
LAUNCHERS = "ngbkit.launchers"
COMMANDS = "ngbkit.commands"
GUIDES = "ngbkit.guides"
PANELS = "ngbkit.panels"
ACCESSORS = "ngbkit.accessors"
RULES = "ngbkit.rules"
SIMPLIFIERS = "ngbkit.simplifiers"

_KINDS = {
    COMPILERS: "compiler",
    QUANTISERS: "quantiser",
    METRICS: "metric",
    FIGURES: "figure of a result",
    WORKLOADS: "workload source",
    LAUNCHERS: "launcher",
    COMMANDS: "command",
    GUIDES: "guide of a run",
    PANELS: "part of a panel",
    ACCESSORS: "method of datasets",
    RULES: "rule",
    SIMPLIFIERS: "simplifier",
}
# What a compiler is called elsewhere.
_COMPILER_SYNONYMS = {
    **dict.fromkeys(("eager", "pytorch", "torch", "none", "baseline"), "identity"),
    **dict.fromkeys(("jit", "script", "torch.jit", "trace"), "torchscript"),
    **dict.fromkeys(("torch.compile", "torch_compile", "compile", "dynamo", "torchinductor"), "inductor"),
    **dict.fromkeys(("aoti", "torch.export"), "aotinductor"),
    **dict.fromkeys(("ort", "onnx"), "onnxruntime"),
    "ov": "openvino",
    "trt": "tensorrt",
    "metaschedule": "tvm",
}


def list_names(group: str) -> list[str]:
    """List the names of a group's entry points without importing any."""
    return list(list_entry_points(group))


def load(group: str, name: str) -> Any:
    """Load the object of the entry point `name` in `group`, or raise `UnknownNameError` with the nearest names."""
    entry_points = list_entry_points(group)
    if name not in entry_points:
        hint = "`ngbkit compilers` lists them all." if group == COMPILERS else ""
        synonyms = _COMPILER_SYNONYMS if group == COMPILERS else {}
        raise UnknownNameError(_KINDS.get(group, group), name, entry_points, hint, synonyms)
    return _load(entry_points[name])


def find(group: str, name: str) -> Any:
    """Load the object of an entry point of an add-on, or return None where that is not installed."""
    return load(group, name) if name in list_entry_points(group) else None


def load_all(group: str, names: Iterable[str] | None = None) -> dict[str, Any]:
    """Load the objects of `group` with those names, or all; warn about one that fails to import, and leave it out."""
    plugins: dict[str, Any] = {}
    entry_points = list_entry_points(group)
    for name in entry_points if names is None else names:
        entry_point = entry_points[name]
        try:
            plugins[name] = _load(entry_point)
        except Exception as error:  # noqa: BLE001  a third party's plugin may raise anything
            message = f"the {group} plugin {name!r} ({entry_point.value}) failed to load: {error!r}"
            warnings.warn(message, NgbkitWarning, stacklevel=2)
    return plugins


def preload(group: str) -> None:
    """Import what ngbkit itself adds to `group`, but no plugin of others, which may start threads."""
    entry_points = list_entry_points(group).values()
    load_all(group, [each.name for each in entry_points if each.module.partition(".")[0] == __package__])


def refresh() -> None:
    """Discover the plugins again, after a package was installed while Python runs."""
    _scan.cache_clear()
    list_entry_points.cache_clear()
    _load.cache_clear()


@cache
def list_entry_points(group: str) -> Mapping[str, metadata.EntryPoint]:
    """List the entry points of a group by name, without importing any; those of a missing add-on are none."""
    return {name: each for name, each in drop_duplicates(_scan().select(group=group)).items() if _is_there(each)}


def _is_there(entry_point: metadata.EntryPoint) -> bool:
    """Return whether the room of ngbkit that an entry point names is installed; other packages are not looked for."""
    package, _, rest = entry_point.module.partition(".")
    room = Path(__file__).parent / rest.partition(".")[0]
    return package != __package__ or room.exists() or room.with_suffix(".py").exists()


@cache
def _scan() -> Any:
    """Read the entry points of all packages, which takes as long as reading one group."""
    return metadata.entry_points()


@cache
def _load(entry_point: metadata.EntryPoint) -> Any:
    return entry_point.load()


def drop_duplicates(entry_points: metadata.EntryPoints) -> dict[str, metadata.EntryPoint]:
    """Keep the first entry point of each name; warn about another one of that name with a different value."""
    by_name: dict[str, metadata.EntryPoint] = {}
    for entry_point in entry_points:
        first = by_name.setdefault(entry_point.name, entry_point)
        if first.value != entry_point.value:
            warnings.warn(
                f"two plugins are named {entry_point.name!r}: {first.value} is used, {entry_point.value} is ignored",
                NgbkitWarning,
                stacklevel=2,
            )
    return by_name


def find_version(package: str) -> str | None:
    """Find the installed version of a distribution; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
