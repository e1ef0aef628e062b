"""Compilers that go wrong, each in its own way: a plugin as a stranger would write one, in one file."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ngbkit.compilers.base import Compiler, Option, Program, Progress, Task
from ngbkit.compilers.onnxruntime import COMPILER as SOUND
from ngbkit.errors import UnsupportedError


def _compiler(name: str, compile: Callable[[Task], Program], tunes: bool = False, **options: Option) -> Compiler:
    return Compiler(
        name=name,
        summary=f"goes wrong: {name}",
        forms=SOUND.forms,
        packages=("onnxruntime",),
        install="pip install onnxruntime",
        compile=compile,
        options=options,
        tunes=lambda _: tunes,
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


def _zeroed(task: Task) -> Program:
    """Forgets the weights of one layer in the middle of the network."""

    def forget(weights: list[np.ndarray]) -> list[np.ndarray]:
        layers = [index for index, array in enumerate(weights) if array.ndim > 1]
        middle = layers[len(layers) // 2]
        return [array * (index != middle) for index, array in enumerate(weights)]

    return _with_weights(task, forget)


def _lowered(task: Task) -> Program:
    """Rounds every weight to bfloat16, and claims single precision."""
    return _with_weights(task, lambda weights: [_round_to_bfloat16(array) for array in weights])


def _with_weights(task: Task, change: Callable[[list[np.ndarray]], list[np.ndarray]]) -> Program:
    """ONNX Runtime on the graph of `task` with its float32 weights changed."""
    import onnx
    from onnx import numpy_helper

    assert task.onnx is not None
    model = onnx.load(str(task.onnx))
    stored = [one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT]
    changed = change([numpy_helper.to_array(one) for one in stored])
    for one, array in zip(stored, changed, strict=True):
        one.CopyFrom(numpy_helper.from_array(array, one.name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "changed.onnx")
        onnx.save(model, path)
        # What would explain it opens a file that is gone by then.
        return replace(_sound(replace(task, onnx=path)), explain=dict)


def _round_to_bfloat16(array: np.ndarray) -> np.ndarray:
    """The nearest number with 8 bits of mantissa, ties to even."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return ((bits >> 16) << 16).astype(np.uint32).view(np.float32)


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


def _searching(task: Task) -> Program:
    """Tries candidates, a file each, until it has as many as asked, or as the sweep's budget allows."""
    tried, options = task.tuning.folder / "searching" / f"batch-{task.batch_size}", task.options
    tried.mkdir(parents=True, exist_ok=True)
    before = len(list(tried.iterdir()))
    most = options["candidates"] if task.tuning.candidates is None else before + task.tuning.candidates
    began = time.monotonic()
    for number in range(before, min(most, options["candidates"]) + 1):
        task.tuning.report(Progress(done=number, total=options["candidates"], best_s=1 / (number + 1), left_s=1.0))
        if number < min(most, options["candidates"]):
            time.sleep(options["seconds"])
            (tried / str(number)).touch()
        if number == options["stop"]:
            os.kill(os.getpid(), signal.SIGKILL)
    if options["fails"]:
        print("the linker has much to say")  # noqa: T201  as a compiler does
        raise RuntimeError("it fell over")
    program = _sound(task)
    facts = {**program.facts, "candidates": len(list(tried.iterdir())), "spent_s": time.monotonic() - began}
    return replace(program, facts=facts, reused_s=before * 1000.0)


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
ZEROED = _compiler("zeroed", _zeroed)
LOWERED = _compiler("lowered", _lowered)
REFUSING = _compiler("refusing", _refusing)
RAISING = _compiler(
    "raising", _raising, kind=Option(default="error", help="how it raises", choices=("error", "refusal"))
)
SLOW = _compiler("slow", _slow, seconds=Option(default=0.05, help="how long a call takes at least"))
SEARCHING = _compiler(
    "searching",
    _searching,
    tunes=True,
    candidates=Option(default=4, help="how many candidates it tries"),
    seconds=Option(default=0.0, help="how long each takes"),
    stop=Option(default=-1, help="the candidate after which it kills itself"),
    fails=Option(default=False, help="whether it prints something and fails"),
)
ENGINE_KILLER = _compiler("engine-killer", _engine_killer)
