"""The package: its modules import without the heavy libraries that they use."""

from __future__ import annotations

import subprocess
import sys

from ngbkit import registry
from ngbkit.workloads.base import Source

PROGRAM = """
import sys
from ngbkit.workloads import blocks, cell, module, onnx, paper, timm
assert "resnet18" in timm.complete("resnet18")
blocks.conv([8], [1]), paper.zoo(), timm.SOURCE.parse("resnet18")
print(sorted({"torch", "timm", "onnx"} & sys.modules.keys()))
"""


def test_makers_import_none_of_the_heavy_libraries() -> None:
    """Describing a workload, unlike building it, needs neither torch nor timm nor onnx."""
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM], capture_output=True, text=True, check=False
    )

    assert ("[]\n", "") == (process.stdout, process.stderr)


def test_every_source_is_loaded_by_its_entry_point() -> None:
    """Each of ngbkit's own entry points loads a source of that name."""
    names = ["blocks", "onnx", "cell", "module", "timm"]

    sources = [registry.load(registry.WORKLOADS, name) for name in names]

    assert all(isinstance(source, Source) for source in sources)
    assert names == [source.name for source in sources]
