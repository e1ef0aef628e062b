"""Faulty compilers, one per fault, as a third-party plugin in one file."""

from __future__ import annotations

import ctypes
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from ngbkit.compilers.base import Compiler, Option, Program, Task, TuningProgress
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
    """Compile and warm up correctly, and hang while timed."""
    program = _sound(task)

    def run() -> Any:
        if any(frame.name == "_time_turn" for frame in traceback.extract_stack()):
            time.sleep(3600)
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
    """Zero the weights of one layer in the middle of the network."""

    def zero(weights: list[np.ndarray]) -> list[np.ndarray]:
        layers = [index for index, array in enumerate(weights) if array.ndim > 1]
        middle = layers[len(layers) // 2]
        return [array * (index != middle) for index, array in enumerate(weights)]

    return _change_weights(task, zero)


def _lowered(task: Task) -> Program:
    """Round every weight to bfloat16, and claim single precision."""
    return _change_weights(task, lambda weights: [_round_to_bfloat16(array) for array in weights])


def _change_weights(task: Task, change: Callable[[list[np.ndarray]], list[np.ndarray]]) -> Program:
    """Compile the graph of `task` by ONNX Runtime with changed float32 weights."""
    import onnx
    from onnx import numpy_helper

    assert task.onnx is not None
    model = onnx.load(str(task.onnx))
    tensors = [tensor for tensor in model.graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT]
    changed = change([numpy_helper.to_array(tensor) for tensor in tensors])
    for tensor, array in zip(tensors, changed, strict=True):
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "changed.onnx")
        onnx.save(model, path)
        # `explain` would open the file after its removal.
        return replace(_sound(replace(task, onnx=path)), explain=dict)


def _round_to_bfloat16(array: np.ndarray) -> np.ndarray:
    """Round to the nearest number with 8 bits of mantissa, ties to even."""
    bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7FFF + ((bits >> 16) & 1)
    return ((bits >> 16) << 16).astype(np.uint32).view(np.float32)


def _refusing(task: Task) -> Program:
    raise UnsupportedError("there is no such chip here")


def _raising(task: Task) -> Program:
    raise RuntimeError(_MESSAGES[task.options["kind"]])


_MESSAGES = {
    "error": "it fell over",
    "refusal": "no kernel for Frobnicate",
    # Half of a surrogate pair, which no encoding has, and what clears a terminal.
    "hostile": "it \ud800 fell \x1b[2Jover",
}


def _slow(task: Task) -> Program:
    program = _sound(task)

    def run() -> Any:
        time.sleep(task.options["seconds"])
        return program.run()

    return replace(program, run=run)


def _searching(task: Task) -> Program:
    """Try candidates, a file each, up to the option."""
    folder, options = task.tuning.folder / "searching" / f"batch-{task.batch_size}", task.options
    folder.mkdir(parents=True, exist_ok=True)
    reused = len(list(folder.iterdir()))
    limit, start = options["candidates"], time.monotonic()
    for number in range(reused, limit + 1):
        task.tuning.report(TuningProgress(done=number, total=limit, best_s=1 / (number + 1), left_s=1.0))
        if number < limit:
            time.sleep(options["seconds"])
            (folder / str(number)).touch()
        if number == options["stop"]:
            os.kill(os.getpid(), signal.SIGKILL)
    if options["fails"]:
        print("the linker has much to say")  # noqa: T201  as a compiler does
        raise RuntimeError("it fell over")
    program = _sound(task)
    facts = {**program.facts, "budget_s": task.tuning.seconds or 0.0, "spent_s": time.monotonic() - start}
    return replace(program, facts=facts, reused_s=reused * 1000.0)


def _engine_killer(task: Task) -> Program:
    """Kill the engine of this child process: the fork server's parent."""
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
RAISING = _compiler("raising", _raising, kind=Option(default="error", help="how it raises", choices=tuple(_MESSAGES)))
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
