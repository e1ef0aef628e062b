"""Benchmark neural-network graph compilers from a notebook, on every device at once.

>>> from ngbkit import Sweep
>>> ds = Sweep(["resnet18"], compilers=["identity", "openvino"], batch_sizes=[1, 4]).run()  # doctest: +SKIP
>>> ds.ngb.bsr()  # doctest: +SKIP

In a notebook: ``%load_ext ngbkit``, then ``%ngbench?``. In a shell: ``ngbkit --help``.

The rooms, in the order in which data flows; a room imports only from rooms above it::

    errors, user_text, options, registry, files   what every room needs
    workloads    networks to run
    sweep        the grid of trials, and the record that each trial leaves
    hardware     what a machine is, and what it tells while it runs
    compilers    one protocol, one file a compiler
    device       measures on the device: isolated child processes, interleaved timing; the device side ends here
    cluster      reaches devices: one engine on each; provisions them
    dataset      records become labelled xarray data
    metrics      numbers with intervals
    figures      charts, and the accessor `ds.ngb`
    runs         one execution of a sweep: start, watch, stop, resume; self-check
    predictor    models of runtime, and the budgets that they lead
    optimizer    rewrites a network for a runtime
    api          the class `Sweep`, and the gate between two versions
    publish      notebooks become a site that can be checked
    commands     one table of arguments and one function a command
    notebook     magics, completion, panels
    testing      the conformance suite of compilers
    cli          the shell
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit import figures, optimizer, predictor, runs
    from ngbkit.api import Sweep, describe, gate, resume
    from ngbkit.cluster.attach import attach
    from ngbkit.cluster.plain_client import client
    from ngbkit.dataset import reference
    from ngbkit.dataset.merging import merge
    from ngbkit.dataset.storage import load, save
    from ngbkit.notebook import panels
    from ngbkit.options import get_options, set_options
    from ngbkit.predictor import forecast
    from ngbkit.runs import Run, start
    from ngbkit.workloads import blocks, cell, onnx, paper, timm
    from ngbkit.workloads.module import from_module

    __version__: str

# Where each name lives; an empty one is a module itself.
_EXPORTS = {
    "Run": ("ngbkit.runs", "Run"),
    "Sweep": ("ngbkit.api", "Sweep"),
    "attach": ("ngbkit.cluster.attach", "attach"),
    "blocks": ("ngbkit.workloads.blocks", ""),
    "capacity": ("ngbkit.runs.serving", "serve"),
    "cell": ("ngbkit.workloads.cell", ""),
    "client": ("ngbkit.cluster.plain_client", "client"),
    "describe": ("ngbkit.api", "describe"),
    "figures": ("ngbkit.figures", ""),
    "forecast": ("ngbkit.predictor.forecast", ""),
    "from_module": ("ngbkit.workloads.module", "from_module"),
    "gate": ("ngbkit.api", "gate"),
    "get_options": ("ngbkit.options", "get_options"),
    "load": ("ngbkit.dataset.storage", "load"),
    "merge": ("ngbkit.dataset.merging", "merge"),
    "onnx": ("ngbkit.workloads.onnx", ""),
    "optimizer": ("ngbkit.optimizer", ""),
    "panels": ("ngbkit.notebook.panels", ""),
    "paper": ("ngbkit.workloads.paper", ""),
    "predictor": ("ngbkit.predictor", ""),
    "reference": ("ngbkit.dataset.reference", ""),
    "resume": ("ngbkit.api", "resume"),
    "runs": ("ngbkit.runs", ""),
    "save": ("ngbkit.dataset.storage", "save"),
    "set_options": ("ngbkit.options", "set_options"),
    "start": ("ngbkit.runs", "start"),
    "timm": ("ngbkit.workloads.timm", ""),
}

__all__ = [
    "Run",
    "Sweep",
    "__version__",
    "attach",
    "blocks",
    "capacity",
    "cell",
    "client",
    "describe",
    "figures",
    "forecast",
    "from_module",
    "gate",
    "get_options",
    "load",
    "load_ipython_extension",
    "merge",
    "onnx",
    "optimizer",
    "panels",
    "paper",
    "predictor",
    "reference",
    "resume",
    "runs",
    "save",
    "set_options",
    "start",
    "timm",
    "unload_ipython_extension",
]


# Modules that documents and notebooks of release 0.1 import, and where they are now.
_MOVED = {
    "ngbkit.comparison": "ngbkit.figures.comparison",
    "ngbkit.forecast": "ngbkit.predictor.forecast",
    "ngbkit.merging": "ngbkit.dataset.merging",
    "ngbkit.profiles": "ngbkit.metrics.profiles",
    "ngbkit.records": "ngbkit.sweep.records",
    "ngbkit.reference": "ngbkit.dataset.reference",
    "ngbkit.selfcheck": "ngbkit.runs.selfcheck",
    "ngbkit.storage": "ngbkit.dataset.storage",
    "ngbkit.tables": "ngbkit.metrics.tables",
}


def _new_name(name: str) -> str:
    """The name of a module now, or of a module in a package that moved; empty where nothing moved."""
    return next((new + name[len(old) :] for old, new in _MOVED.items() if f"{name}.".startswith(f"{old}.")), "")


class _MovedModules:
    """Finds and loads a module that moved under its old name: the same module, not a copy."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        del path, target
        # A loader by its methods: the class to inherit from takes longer to import than all else here.
        return ModuleSpec(fullname, self) if _new_name(fullname) else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """None: the import system makes an empty one, which `exec_module` replaces."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(_new_name(module.__name__))


# Before the finder of paths, which would load a copy of a module in a package that moved.
sys.meta_path.insert(0, _MovedModules())


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics and their completion: ``%load_ext ngbkit``."""
    from ngbkit import notebook

    notebook.load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take them away again: ``%unload_ext ngbkit``."""
    from ngbkit import notebook

    notebook.unload(shell)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata

        try:
            return metadata.version("ngbkit")
        except metadata.PackageNotFoundError:
            problem = "this Python finds ngbkit but it is not installed: run `pip install -e .` in its checkout"
            raise ImportError(problem, name="ngbkit") from None
    if name not in _EXPORTS and f"ngbkit.{name}" not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS.get(name) or (_MOVED[f"ngbkit.{name}"], "")
    if module.startswith("ngbkit.dataset."):
        import_module("ngbkit.figures.accessor")  # gives what is loaded or merged its `ds.ngb`
    exported = import_module(module)
    return getattr(exported, attribute) if attribute else exported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
