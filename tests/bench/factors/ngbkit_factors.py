"""Compilers with one factor of their set-up changed, each a column beside that with ngbkit's own."""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngbkit.compilers.base import Compiler, Form, Program, Task
from ngbkit.device.groups import forking
from ngbkit.workloads.base import Source

Compile = Callable[[Task], Program]
_M_ARENA_MAX, _ARENAS_A_CORE = -8, 8  # of glibc, whose own default is that many


def change_nothing(compile: Compile, task: Task) -> Program:
    """The control: another process, whose difference is that of processes."""
    return compile(task)


def pin(compile: Compile, task: Task) -> Program:
    """Pin the calling thread to the first core, and each other one, from its first call on, to the next."""
    program = compile(task)
    program.run()
    cores = sorted(os.sched_getaffinity(0))
    for number, thread in enumerate(sorted(int(task.name) for task in Path("/proc/self/task").iterdir())):
        os.sched_setaffinity(thread, {cores[min(number, len(cores) - 1)]})
    return program


def keep_inputs(compile: Compile, task: Task) -> Program:
    """Give every call the same inputs."""
    return replace(compile(task), feed=None, memory=())


def flush_denormals(compile: Compile, task: Task) -> Program:
    """Have this thread and those that it starts compute with 0 in place of denormal numbers."""
    import torch

    if not torch.set_flush_denormal(True):
        raise RuntimeError("this CPU cannot flush denormal numbers")
    return compile(task)


def add_arenas(compile: Compile, task: Task) -> Program:
    """Give threads arenas of their own, as glibc does by itself."""
    if not ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS_A_CORE * (os.cpu_count() or 1)):
        raise RuntimeError("this C library has no arenas")
    return compile(task)


FACTORS: Mapping[str, Callable[[Compile, Task], Program]] = {
    "control": change_nothing,
    "pinned": pin,
    "inputs": keep_inputs,
    "denormals": flush_denormals,
    "fresh": change_nothing,
    "environment": change_nothing,
    "arenas": add_arenas,
}


def list_modules(compiler: Compiler, form: Form, source: Source) -> tuple[str, ...]:
    """List the modules of a column's fork server: none for a child that imports them itself, as fresh ones do."""
    modules = _list_modules(compiler, form, source)
    factor = compiler.name.rpartition("-")[2]
    return () if factor == "fresh" else ("ngbkit_factors_padding", *modules) if factor == "environment" else modules


_list_modules = forking.list_modules
forking.list_modules = list_modules


def build(compiler: Compiler, factor: str) -> Compiler:
    """Build a column of a compiler with that factor changed."""
    original, change = compiler.compile, FACTORS[factor]

    def compile(task: Task) -> Program:
        return change(original, task)

    return replace(compiler, name=f"{compiler.name}-{factor}", compile=compile)


def __getattr__(name: str) -> Any:
    """An entry point names a compiler and a factor: ``openvino_pinned``."""
    compiler, _, factor = name.partition("_")
    if factor not in FACTORS:
        raise AttributeError(name)
    return build(importlib.import_module(f"ngbkit.compilers.{compiler}").COMPILER, factor)
