"""Compiled networks in this process, as a device compiles them in its children."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import registry
from ngbkit.compilers.base import Compiler, Program, Task, Tuning
from ngbkit.workloads import feeds
from ngbkit.workloads.base import Network
from ngbkit.workloads.export import export_for


def load_compiler(name: str) -> Compiler:
    loaded: Compiler = registry.load(registry.COMPILERS, name)
    return loaded


def compile_network(
    network: Network,
    compiler: str,
    folder: Path,
    *,
    batch_size: int = 1,
    arrays: Sequence[np.ndarray] | None = None,
    onnx: Path | None = None,
    threads: int = 4,
    accelerator: str = "cpu",
    **options: Any,
) -> Program:
    """Compile a network in the first form that a compiler reads, for arrays that are drawn unless given."""
    record = load_compiler(compiler)
    form = next(iter(record.forms))
    folder.mkdir(exist_ok=True)
    if form == "onnx" and onnx is None:
        onnx = export_for(network, folder, [batch_size], seed=0)[batch_size]
    task = Task(
        form=form,
        # A compiler moves the module to its device.
        module=copy.deepcopy(network.module) if form == "module" else None,
        onnx=onnx if form == "onnx" else None,
        inputs=network.inputs,
        arrays=arrays or feeds.draw(network.inputs, network.examples, batch_size, seed=0),
        batch_size=batch_size,
        options=record.settle(options),
        threads=threads,
        cache=folder,
        accelerator=accelerator,
        tuning=Tuning(folder=folder / "tuning"),
    )
    return record.compile(task)
