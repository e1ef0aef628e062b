"""Networks to run, from timm, block stacks, ONNX files, notebook cells and live modules.

maker (timm.model, blocks.conv, onnx.file, cell.from_source, module.from_module)
    -> Workload, plain JSON and artifacts, sent to the device -> Source.build there
    -> Network -> export (ONNX), feeds (inputs), counts (parameters, MACs)
"""

from __future__ import annotations

from ngbkit.exports import export_lazily

_ROOMS = ("base", "blocks", "cell", "counts", "export", "feeds", "module", "onnx", "paper", "randomise", "timm")

__all__ = list(_ROOMS)

__getattr__, __dir__ = export_lazily(__name__, dict.fromkeys(_ROOMS, ""))
