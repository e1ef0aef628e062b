"""Compilers that go wrong, each in its own way: a plugin as a stranger would write one, in one file."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psutil

from ngbkit.compilers.base import Compiler, Option, Program, Task
from ngbkit.compilers.onnxruntime import COMPILER as SOUND
from ngbkit.errors import UnsupportedError


def _compiler(name: str, compile: Callable[[Task], Program], **options: Option) -> Compiler:
    return Compiler(
        name=name,
        summary=f"goes wrong: {name}",
        forms={"onnx": ("onnxruntime",)},
        packages=("onnxruntime",),
        install="pip install onnxruntime",
        compile=compile,
        options=options,
        refusals=("RuntimeError: no kernel for",),
    )


def _sound(task: Task) -> Program:
    return SOUND.compile(replace(task, options=SOUND.settle({})))


def _segfault(task: Task) -> Program:
    ctypes.string_at(0)
    raise AssertionError("unreachable")


def _hang(task: Task) -> Program:
    time.sleep(3600)
    raise AssertionError("unreachable")


def _hang_later(task: Task) -> Program:
    """Comes through compilation and warm-up, and hangs while it is timed."""
    program, began = _sound(task), time.monotonic()

    def run() -> Any:
        time.sleep(0.01 if time.monotonic() - began < 0.35 else 3600)
        return program.run()

    return replace(program, run=run)


def _hungry(task: Task) -> Program:
    raise MemoryError("cannot have another 1 TiB")


def _killed(task: Task) -> Program:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def _wrong(task: Task) -> Program:
    program = _sound(task)
    return replace(program, fetch=lambda outputs: [array * 1.01 for array in program.fetch(outputs)])


def _refusing(task: Task) -> Program:
    raise UnsupportedError("there is no such chip here")


def _raising(task: Task) -> Program:
    raise RuntimeError("no kernel for Frobnicate" if task.options["kind"] == "refusal" else "it fell over")


def _slow(task: Task) -> Program:
    program = _sound(task)

    def run() -> Any:
        time.sleep(task.options["seconds"])
        return program.run()

    return replace(program, run=run)


def _engine_killer(task: Task) -> Program:
    """Ends the engine that this child works for: the fork server's parent."""
    engine = psutil.Process(os.getppid()).parent()
    assert engine is not None
    engine.kill()
    time.sleep(3600)
    raise AssertionError("unreachable")


SEGFAULT = _compiler("segfault", _segfault)
HANG = _compiler("hang", _hang)
HANG_LATER = _compiler("hang-later", _hang_later)
HUNGRY = _compiler("hungry", _hungry)
KILLED = _compiler("killed", _killed)
WRONG = _compiler("wrong", _wrong)
REFUSING = _compiler("refusing", _refusing)
RAISING = _compiler(
    "raising", _raising, kind=Option(default="error", help="how it raises", choices=("error", "refusal"))
)
SLOW = _compiler("slow", _slow, seconds=Option(default=0.05, help="how long a call takes at least"))
ENGINE_KILLER = _compiler("engine-killer", _engine_killer)
