"""The pool of fork servers of this engine, and the choice of the server for a child."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from ngbkit import files
from ngbkit.compilers.base import Compiler, Form
from ngbkit.device.isolation.servers import ForkServer, ServerEndedError, Servers
from ngbkit.device.isolation.settings import build_child_settings
from ngbkit.device.spec import Spec
from ngbkit.device.world import World
from ngbkit.hardware import environment
from ngbkit.options import LAYOUT
from ngbkit.sweep.column import Column
from ngbkit.sweep.memory import KEPT
from ngbkit.workloads.base import Source

_servers: dict[tuple[int, str, str], Servers] = {}


def get_servers(spec: Spec, memory: str = KEPT) -> Servers:
    """Get this engine's fork servers for the threads and chip of a plan; they outlive it, so that the next starts warm.

    Other variables need other servers, since libraries read many of them when they are imported; another folder or
    path does not. A process that sees a single GPU numbers it 0, whichever it is. An engine of the devices file starts
    with that restriction; an attached engine may lack it.
    """
    key = (choose_threads(spec), spec.accelerator, memory)
    world = spec.world or replace(World.capture(), variables={})
    servers = _servers.get(key)
    if servers is None or servers.world.variables != world.variables:
        if servers is not None:
            servers.close()
        number = spec.accelerator.partition(":")[2] or "-1"
        visible = {"CUDA_VISIBLE_DEVICES": number, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        variables = {**visible, **world.apply(os.environ)}
        servers = _servers[key] = Servers(
            environment={**variables, **build_child_settings(key[0], variables, memory)},
            folder=files.make_scratch(spec.state_dir / LAYOUT.scratch),
            world=world,
        )
    servers.world = world
    return servers


def choose_threads(spec: Spec) -> int:
    """Choose the threads of every runtime: the sweep's, the device's, or one a core within a container's quota."""
    return spec.sweep.threads or spec.threads or environment.count_threads()


def choose_memory(spec: Spec, column: Column) -> str:
    """Choose the memory of a column: its own, or that of the sweep."""
    return column.memory or spec.sweep.memory


def close_interpreter(spec: Spec, python: str) -> None:
    """Close the fork servers of an interpreter, whose packages have changed."""
    for (threads, accelerator, _), servers in _servers.items():
        if (threads, accelerator) == (choose_threads(spec), spec.accelerator):
            servers.close_interpreter(python)


def start_servers(spec: Spec, interpreters: Mapping[str, str] | None = None) -> list[ForkServer]:
    """Start every fork server that a sweep needs, so that their imports overlap."""
    requests: list[tuple[Servers, tuple[str, ...], str]] = []
    columns = [Column.read(label) for label in spec.sweep.compilers]
    pools = {
        memory: get_servers(spec, memory) for memory in {KEPT, *(choose_memory(spec, column) for column in columns)}
    }
    for pool in pools.values():
        pool.close_outdated()
    for workload in spec.sweep.workloads:
        source = workload.load_source()
        requests.append((pools[KEPT], list_preparation_modules(source), workload.python))
        for column in columns:
            compiler = column.load_compiler()
            form = compiler.choose_form(workload.kind)
            python = (interpreters or {}).get(column.label, workload.python)
            is_installed = bool(python) if column.release else not compiler.unavailable(spec.accelerator, workload.kind)
            if form is not None and is_installed:
                requests.append((pools[choose_memory(spec, column)], list_modules(compiler, form, source), python))
    servers: list[ForkServer] = []
    requests.sort(key=lambda request: len(request[1]))  # others are forked from the smaller
    for pool, modules, python in requests:
        with suppress(ServerEndedError):  # its trials try again, and record what fails
            servers.append(pool.get(modules, python))
    return servers


_EXPORT_MODULE = "ngbkit.workloads.export_runtime"


def list_preparation_modules(source: Source) -> tuple[str, ...]:
    """List the modules that a preparation is forked with: a module's first export spends two seconds on imports.

    They are always the same, since the content of a network has them by hash. That server is forked from the one of
    torch children, whose memory is reported, and which has none of them.
    """
    return (*source.preload, _EXPORT_MODULE) if "torch" in source.preload else source.preload


def list_modules(compiler: Compiler, form: Form, source: Source) -> tuple[str, ...]:
    """List the modules that a trial is forked with, also of its source if the child builds the network itself."""
    modules = source.preload if form == "module" else ()
    return tuple(dict.fromkeys((*modules, *compiler.forms[form])))
