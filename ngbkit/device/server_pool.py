"""The fork servers of this engine: which one a child is forked from, and under what conditions all of them run."""

from __future__ import annotations

import os
from pathlib import Path

from ngbkit import files, registry
from ngbkit.compilers.base import Compiler, Form
from ngbkit.device.servers import ForkServer, Servers
from ngbkit.device.settings import child_settings
from ngbkit.device.spec import Spec
from ngbkit.hardware import environment
from ngbkit.sweep.trials import Choice
from ngbkit.workloads.base import Source

_servers: dict[tuple[int, str], Servers] = {}


def servers(threads: int, accelerator: str, state_dir: Path) -> Servers:
    """This engine's fork servers for so many threads and that chip; they outlive a plan: the next one starts warm.

    A process that may see one GPU only calls it number 0, whichever it is. An engine of the devices file was started
    so; one that was attached may not have been.
    """
    key = (threads, accelerator)
    if key not in _servers:
        number = accelerator.partition(":")[2] or "-1"
        visible = {"CUDA_VISIBLE_DEVICES": number, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **os.environ}
        _servers[key] = Servers({**visible, **child_settings(threads)}, files.make_scratch(state_dir / "scratch"))
    return _servers[key]


def threads_of(spec: Spec) -> int:
    """Worker threads of every runtime: the sweep's, the device's, or one a core."""
    return spec.sweep.threads or spec.threads or environment.cores_usable()


def start(spec: Spec) -> list[ForkServer]:
    """Start every fork server that a sweep needs, so that their imports overlap."""
    found: list[ForkServer] = []
    here = servers(threads_of(spec), spec.accelerator, spec.state_dir)
    compilers = [registry.load(registry.COMPILERS, Choice.parse(label).compiler) for label in spec.sweep.compilers]
    for workload in spec.sweep.workloads:
        source: Source = registry.load(registry.WORKLOADS, workload.source)
        forms = [form_of(compiler, workload.source) for compiler in compilers]
        found.append(here.get(preparing(source, exports="onnx" in forms)))
        for compiler, form in zip(compilers, forms, strict=True):
            if form is not None and not compiler.unavailable(spec.accelerator):
                found.append(here.get(preload(compiler, form, source)))
    return found


def form_of(compiler: Compiler, source: str) -> Form | None:
    """What the compiler is given of a workload: the first of its forms that the workload has."""
    offered: tuple[Form, ...] = ("onnx",) if source == "onnx" else ("module", "onnx")
    return next((form for form in compiler.forms if form in offered), None)


_EXPORTING = "ngbkit.workloads.export_runtime"


def preparing(source: Source, *, exports: bool) -> tuple[str, ...]:
    """What a preparation is forked with: a module's first export spends two seconds on imports.

    That server is not the one of torch children, whose memory is reported.
    """
    return (*source.preload, _EXPORTING) if exports and "torch" in source.preload else source.preload


def preload(compiler: Compiler, form: Form, source: Source) -> tuple[str, ...]:
    """A torch child builds the network itself, so it is forked where the workload's source has its imports."""
    built = source.preload if form == "module" else ()
    return tuple(dict.fromkeys((*built, *compiler.forms[form])))
