"""Benchmark neural-network graph compilers from a notebook, on every device at once.

>>> from ngbkit import Sweep
>>> ds = Sweep(["resnet18"], compilers=["identity", "openvino"], batch_sizes=[1, 4]).run()  # doctest: +SKIP
>>> ds.ngb.bsr()  # doctest: +SKIP

In a notebook: ``%load_ext ngbkit``, then ``%ngbench?``. In a shell: ``ngbkit --help``.

The rooms, in the order in which data flows; a room imports only from rooms above it::

    errors, user_text, tabular, validation, options, registry, report, requirements, limits,
    exports, files                           what all need
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
    api          the class `Sweep`, and the gate between two versions
    commands     one record a command, for shell and magics alike
    notebook     magics, completion, display
    testing      the conformance suite of compilers
    cli          the shell

Add-ons, which nothing above imports, nor they each other; entry points find them, and the rest works without::

    why          explains the gap between two columns by their profiles
    predict      models of runtime, the budgets that they lead, and the optimizer that they drive
    panels       forms and explorers in a notebook
    fleet        installs ngbkit on devices; jobs of Slurm
    publish      notebooks become a site that can be checked
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit import figures, panels, predict, runs
    from ngbkit.api import Sweep, describe, gate, resume
    from ngbkit.cluster.attach import attach, client
    from ngbkit.dataset import reference
    from ngbkit.dataset.merging import merge
    from ngbkit.dataset.storage import load, save
    from ngbkit.options import get_options, set_options
    from ngbkit.runs.bisection.bisecting import bisect
    from ngbkit.workloads import blocks, cell, onnx, paper, timm
    from ngbkit.workloads.module import from_module

    __version__: str

# Where each name lives; an empty one is a module itself.
_EXPORTS = {
    "Sweep": ("ngbkit.api", "Sweep"),
    "attach": ("ngbkit.cluster.attach", "attach"),
    "bisect": ("ngbkit.runs.bisection.bisecting", "bisect"),
    "blocks": ("ngbkit.workloads.blocks", ""),
    "capacity": ("ngbkit.runs.capacity", "capacity"),
    "cell": ("ngbkit.workloads.cell", ""),
    "client": ("ngbkit.cluster.attach", "client"),
    "describe": ("ngbkit.api", "describe"),
    "figures": ("ngbkit.figures", ""),
    "from_module": ("ngbkit.workloads.module", "from_module"),
    "gate": ("ngbkit.api", "gate"),
    "get_options": ("ngbkit.options", "get_options"),
    "load": ("ngbkit.dataset.storage", "load"),
    "merge": ("ngbkit.dataset.merging", "merge"),
    "onnx": ("ngbkit.workloads.onnx", ""),
    "panels": ("ngbkit.panels", ""),
    "paper": ("ngbkit.workloads.paper", ""),
    "predict": ("ngbkit.predict", ""),
    "reference": ("ngbkit.dataset.reference", ""),
    "resume": ("ngbkit.api", "resume"),
    "runs": ("ngbkit.runs", ""),
    "save": ("ngbkit.dataset.storage", "save"),
    "set_options": ("ngbkit.options", "set_options"),
    "timm": ("ngbkit.workloads.timm", ""),
}

_MOVED = {
    **{"predictor": "predict", "optimizer": "predict.optimizer", "forecast": "predict.forecast"},
    **{"Run": "runs.Run", "start": "runs.start"},
}

__all__ = [
    "Sweep",
    "__version__",
    "attach",
    "bisect",
    "blocks",
    "capacity",
    "cell",
    "client",
    "describe",
    "figures",
    "from_module",
    "gate",
    "get_options",
    "load",
    "load_ipython_extension",
    "merge",
    "onnx",
    "panels",
    "paper",
    "predict",
    "reference",
    "resume",
    "runs",
    "save",
    "set_options",
    "timm",
    "unload_ipython_extension",
]


class _AccessorFinder:
    """Gives datasets their `ngb` as soon as xarray is imported, by anybody, without importing it.

    An entry point of xarray would be read only when a file is opened, not for a dataset that was made in memory.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != "xarray":
            return None
        from functools import partial

        later: list[Any] = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in later)), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_execute, spec.loader.exec_module)
        return spec


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    _register_accessor(module)


def _register_accessor(xarray: Any) -> None:
    """Register `ngb` with the classes of xarray, unless they have it; its methods are imported at its first use."""
    if not hasattr(xarray.Dataset, "ngb"):
        xarray.register_dataset_accessor("ngb")(_build_accessor)
        xarray.register_datatree_accessor("ngb")(_build_accessor)


def _build_accessor(data: Any) -> Any:
    return import_module("ngbkit.figures.accessor").Metrics(data)


sys.meta_path[:] = [
    _AccessorFinder(),  # a finder by its method: the class to inherit from imports for long
    *(finder for finder in sys.meta_path if type(finder).__name__ != _AccessorFinder.__name__),
]
if "xarray" in sys.modules:
    _register_accessor(import_module("xarray"))  # waits if another thread is importing it


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
    if name not in _EXPORTS:
        moved = f"; it is ngbkit.{_MOVED[name]}" if name in _MOVED else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{moved}")
    module, attribute = _EXPORTS[name]
    exported = import_module(module)
    return getattr(exported, attribute) if attribute else exported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
