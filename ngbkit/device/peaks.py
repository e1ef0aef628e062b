"""What this device can do at most: its own measured FLOP/s and bytes/s in f32, which achieved rates are held against.

The peak is the best that anything here reaches. A BLAS alone may fall short of the chip: torch's reached 57 GFLOP/s on
an AMD processor whose convolutions by oneDNN reached 122. So the first runtime of `RUNTIMES` that is installed computes
convolutions beside NumPy's matrix products, and the higher rate is the peak. Each is measured in a process of its own,
so that the engine never loads a runtime.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ngbkit.errors import DeviceError
from ngbkit.hardware import conditions, environment, subprocesses
from ngbkit.hardware.conditions.machine import others
from ngbkit.hardware.resources import available_memory_bytes
from ngbkit.registry import version

Work = Callable[[], None]

# Matrices that fit a core's own cache: larger ones measure the memory as well.
SIZES = (192, 256, 384)
# Channels, height = width and kernel of convolutions that every runtime's kernels are made for.
CONVOLUTIONS = ((64, 56, 3), (128, 28, 3), (512, 14, 1))
# The best rate is that of the best stretch this long, over all threads: a few calls of the largest product, and short
# enough to lie between two disturbances.
WINDOW_S = 0.005
# Arrays are this many times larger than the caches, and at least this large; a thread takes them in pieces.
CACHES, LEAST_BYTES, PIECE_BYTES = 4, 1 << 28, 1 << 22
# Imported fastest first: torch takes seconds.
RUNTIMES = ("openvino", "onnxruntime", "torch")
_LIMIT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The most that a device did in f32 with so many threads: operations a second, and bytes a second of memory."""

    flops: float
    bytes_per_s: float
    threads: int


def load_or_measure(state_dir: Path, threads: int) -> Peaks:
    """This device's peaks: from `peaks.json`, unless chip, cores, threads or packages have changed since.

    Peaks that were measured beside other work are kept too, and measured again the next time; the higher ones count.
    """
    file = state_dir / "peaks.json"
    kept, key = _kept(file), _key(threads)
    known = kept.get(key)
    if known is not None and known["quiet"]:
        return Peaks(**known["peaks"])
    quiet_before = _quiet()
    peaks = measure(threads)
    if known is not None:
        peaks = Peaks(
            flops=max(peaks.flops, known["peaks"]["flops"]),
            bytes_per_s=max(peaks.bytes_per_s, known["peaks"]["bytes_per_s"]),
            threads=threads,
        )
    kept[key] = {"peaks": asdict(peaks), "quiet": quiet_before and _quiet()}
    state_dir.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(kept, indent=1))
    fresh.replace(file)
    return peaks


def measure(threads: int, seconds: float = 1.0) -> Peaks:
    """Measure the peaks now, with `threads` threads, in about so many seconds and what a runtime takes to load.

    Raises
    ------
    DeviceError
        Not even NumPy's could be measured; the message holds the end of what the process wrote.
    """
    measured = [_in_child("numpy", threads, seconds * 0.7)]
    if runtime := _installed():
        with suppress(DeviceError):  # a runtime that does not run here sets no peak either
            measured.append(_in_child(runtime, threads, seconds * 0.3))
    return Peaks(flops=max(one["flops"] for one in measured), bytes_per_s=measured[0]["bytes_per_s"], threads=threads)


def measure_numpy(threads: int, seconds: float) -> dict[str, float]:
    """FLOP/s of matrix products and bytes/s of passes over memory, by as many Python threads: NumPy lets go of the GIL.

    NumPy's BLAS must be held to one thread (``OPENBLAS_NUM_THREADS=1``) before it is loaded.
    """
    part = seconds / (len(SIZES) + 3)
    flops = max(_rate([_product(size) for _ in range(threads)], 2.0 * size**3, part) for size in SIZES)
    arrays = _arrays(threads)
    # Copying reads one array and writes one, adding reads two and writes one, a scalar product only reads. What a store
    # reads first, where it does, is not counted (as STREAM counts: https://www.cs.virginia.edu/stream/ref.html).
    passes: tuple[tuple[Callable[..., Any], int], ...] = ((np.copyto, 2), (_add, 3), (np.dot, 2))
    memory = max(
        _rate([_pass(over, *own) for own in arrays], float(streams * PIECE_BYTES), part) for over, streams in passes
    )
    return {"flops": flops, "bytes_per_s": memory}


def measure_runtime(name: str, threads: int, seconds: float) -> dict[str, float]:
    """FLOP/s of convolutions by a runtime of `RUNTIMES`, which keeps its own threads."""
    rates = []
    for channels, side, kernel in CONVOLUTIONS:
        call = _CONVOLUTIONS[name](channels, side, kernel, threads)
        rates.append(2.0 * channels**2 * kernel**2 * side**2 / _fastest(call, seconds / len(CONVOLUTIONS)))
    return {"flops": max(rates)}


def _product(size: int) -> Work:
    """A call that multiplies matrices of its own."""
    left, out = np.full((size, size), 1e-3, np.float32), np.empty((size, size), np.float32)
    return lambda: (np.matmul(left, left, out=out), None)[1]


def _arrays(threads: int) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Two arrays a thread, in pieces (pieces x elements), all together far larger than the caches."""
    wanted = max(LEAST_BYTES, CACHES * environment.last_level_cache_bytes())
    pieces = max(2, min(wanted, available_memory_bytes() // 4) // (2 * threads * PIECE_BYTES))
    shape = (pieces, PIECE_BYTES // 4)
    return [(np.ones(shape, np.float32), np.ones(shape, np.float32)) for _ in range(threads)]


def _pass(over: Callable[..., Any], into: NDArray[np.float32], out_of: NDArray[np.float32]) -> Work:
    """A call that takes the next piece of two arrays, from the first again after the last."""
    order = itertools.cycle(range(len(into)))

    def work() -> None:
        piece = next(order)
        over(into[piece], out_of[piece])

    return work


def _add(into: NDArray[np.float32], out_of: NDArray[np.float32]) -> None:
    np.add(into, out_of, out=into)


def _rate(works: Sequence[Work], amount: float, seconds: float) -> float:
    """The amount of work a second that threads did at the same time, one a callable, in their best stretch."""
    calls: list[list[tuple[float, float]]] = [[] for _ in works]
    together = threading.Barrier(len(works))

    def repeat(work: Work, into: list[tuple[float, float]]) -> None:
        work()
        together.wait()
        ends = time.perf_counter() + seconds
        while (began := time.perf_counter()) < ends:
            work()
            into.append((began, time.perf_counter()))

    threads = [threading.Thread(target=repeat, args=one) for one in zip(works, calls, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return amount * busiest([call for own in calls for call in own], WINDOW_S)


def busiest(calls: Sequence[tuple[float, float]], window_s: float) -> float:
    """Calls a second in the best stretch of that length; a call on its edge counts by the part that lies inside.

    Parameters
    ----------
    calls
        When each began and ended, in seconds.
    window_s
        The length of a stretch; all the time there is where that is shorter.
    """
    spans = np.asarray(calls, float)
    moments = np.concatenate([spans[:, 0], spans[:, 1]])
    order = np.argsort(moments, kind="stable")
    edges = moments[order]
    window_s = min(window_s, edges[-1] - edges[0])
    # How many calls were done by each moment: a call that runs does its part evenly.
    speed = 1 / (spans[:, 1] - spans[:, 0])
    speeds = np.cumsum(np.concatenate([speed, -speed])[order])
    done = np.concatenate([[0.0], np.cumsum(speeds[:-1] * np.diff(edges))])
    starts = edges[edges <= edges[-1] - window_s]
    return float(np.max(np.interp(starts + window_s, edges, done) - np.interp(starts, edges, done)) / window_s)


def _fastest(call: Work, seconds: float) -> float:
    """Seconds that the fastest of many calls took."""
    call()
    ends, best = time.perf_counter() + seconds, float("inf")
    while (began := time.perf_counter()) < ends:
        call()
        best = min(best, time.perf_counter() - began)
    return best


def _openvino(channels: int, side: int, kernel: int, threads: int) -> Work:
    from ngbkit.compilers.openvino_runtime import core, openvino

    opset13 = openvino.opset13

    x = opset13.parameter([1, channels, side, side], np.float32)
    pads = [kernel // 2] * 2
    network = opset13.convolution(x, _weights(channels, kernel), [1, 1], pads, pads, [1, 1])
    # bf16 would be another peak.
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = core().compile_model(openvino.Model([network], [x]), "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(_image(channels, side)))
    return lambda: (request.infer(), None)[1]


def _onnxruntime(channels: int, side: int, kernel: int, threads: int) -> Work:
    from onnx import TensorProto, helper, numpy_helper

    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, side, side]) for name in "xy")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4)
    graph = helper.make_graph([node], "peak", [x], [y], [numpy_helper.from_array(_weights(channels, kernel), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": _image(channels, side)}
    return lambda: (session.run(None, feeds), None)[1]


def _torch(channels: int, side: int, kernel: int, threads: int) -> Work:
    import torch

    torch.set_num_threads(threads)
    x, weights = (
        torch.from_numpy(array).contiguous(memory_format=torch.channels_last)
        for array in (_image(channels, side), _weights(channels, kernel))
    )
    convolve = torch.inference_mode()(torch.nn.functional.conv2d)
    return lambda: (convolve(x, weights, padding=kernel // 2), None)[1]


_CONVOLUTIONS: dict[str, Callable[[int, int, int, int], Work]] = {
    "openvino": _openvino,
    "onnxruntime": _onnxruntime,
    "torch": _torch,
}


def _weights(channels: int, kernel: int) -> NDArray[np.float32]:
    return np.full((channels, channels, kernel, kernel), 1e-3, np.float32)


def _image(channels: int, side: int) -> NDArray[np.float32]:
    return np.ones((1, channels, side, side), np.float32)


def _in_child(what: str, threads: int, seconds: float) -> dict[str, float]:
    """What a process of its own measured."""
    settings = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if what == "numpy" else {}
    command = [sys.executable, "-m", "ngbkit.device.peaks", what, str(threads), str(seconds)]
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), **settings}
    try:
        measured: dict[str, float] = subprocesses.answer(command, environment=variables, timeout_s=_LIMIT_S)
    except DeviceError as error:
        raise DeviceError(f"measuring the peak with {what} failed: {error}; try `{' '.join(command)}`") from None
    return measured


def _installed() -> str | None:
    """The first of `RUNTIMES` that is there."""
    return next((name for name in RUNTIMES if importlib.util.find_spec(name)), None)


def _quiet() -> bool:
    return not list(others(conditions.look(0.1)))


def _kept(file: Path) -> dict[str, Any]:
    """What was measured before; a file that is not one of ours counts as none."""
    try:
        kept = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _key(threads: int) -> str:
    """What a peak holds for, as one line."""
    packages = " ".join(f"{name}={version(name)}" for name in ("numpy", *RUNTIMES))
    return f"{environment.chip()}, {environment.cores_usable()} cores, {threads} threads, {packages}"


def _main() -> None:
    what, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    measured = measure_numpy(threads, seconds) if what == "numpy" else measure_runtime(what, threads, seconds)
    sys.stdout.write(json.dumps(measured) + "\n")


if __name__ == "__main__":
    _main()
