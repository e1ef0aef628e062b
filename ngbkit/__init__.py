"""Benchmark neural-network graph compilers from a notebook, on every device at once.

    Sweep -> trials -> cluster (one engine a device) -> device plan -> isolated child process
          -> compiler -> equivalence check -> interleaved timing -> measurement -> journal
          -> dataset (xarray) -> metrics -> figures
                             \\-> predictor -> forecast, optimizer

>>> from ngbkit import Sweep
>>> ds = Sweep(["resnet18"], compilers=["identity", "openvino"], batch_sizes=[1, 4]).run()  # doctest: +SKIP
>>> ds.ngb.bsr()  # doctest: +SKIP

In a notebook: ``%load_ext ngbkit``, then ``%ngbench?``. In a shell: ``ngbkit --help``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ngbkit import figures, optimizer, predictor, runs
    from ngbkit.cluster.attach import attach
    from ngbkit.dataset import reference
    from ngbkit.dataset.merging import merge
    from ngbkit.dataset.storage import load, save
    from ngbkit.notebook import panels
    from ngbkit.options import get_options, set_options
    from ngbkit.predictor import forecast
    from ngbkit.runs import Run, resume, start
    from ngbkit.sweep.grid import Sweep
    from ngbkit.workloads import blocks, cell, onnx, paper, timm
    from ngbkit.workloads.module import from_module

    __version__: str

# Where each name lives; an empty one is a module itself.
_EXPORTS = {
    "Run": ("ngbkit.runs", "Run"),
    "Sweep": ("ngbkit.sweep.grid", "Sweep"),
    "attach": ("ngbkit.cluster.attach", "attach"),
    "blocks": ("ngbkit.workloads.blocks", ""),
    "cell": ("ngbkit.workloads.cell", ""),
    "figures": ("ngbkit.figures", ""),
    "forecast": ("ngbkit.predictor.forecast", ""),
    "from_module": ("ngbkit.workloads.module", "from_module"),
    "get_options": ("ngbkit.options", "get_options"),
    "load": ("ngbkit.dataset.storage", "load"),
    "merge": ("ngbkit.dataset.merging", "merge"),
    "onnx": ("ngbkit.workloads.onnx", ""),
    "optimizer": ("ngbkit.optimizer", ""),
    "panels": ("ngbkit.notebook.panels", ""),
    "paper": ("ngbkit.workloads.paper", ""),
    "predictor": ("ngbkit.predictor", ""),
    "reference": ("ngbkit.dataset.reference", ""),
    "resume": ("ngbkit.runs", "resume"),
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
    "cell",
    "figures",
    "forecast",
    "from_module",
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

        return metadata.version("ngbkit")
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _EXPORTS[name]
    if module.startswith("ngbkit.dataset."):
        import_module("ngbkit.figures.accessor")  # gives what is loaded or merged its `ds.ngb`
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
