"""Networks to run, from timm, block stacks, ONNX files, notebook cells and live modules.

maker (timm.model, blocks.conv, onnx.file, cell.from_source, module.from_module)
    -> Workload, plain JSON and artifacts, sent to the device -> Source.build there
    -> Network -> export (ONNX), feeds (inputs), counts (parameters, MACs)
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_ROOMS = ("base", "blocks", "cell", "counts", "export", "feeds", "module", "onnx", "paper", "randomise", "timm")

__all__ = list(_ROOMS)


def __getattr__(name: str) -> ModuleType:
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOMS})
