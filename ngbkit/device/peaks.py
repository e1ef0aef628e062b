"""Peak rates of this device: its own measured FLOP/s and bytes/s in f32, as the limit of achieved rates.

The peak is the highest rate that any library here reaches. A BLAS alone may not reach the chip's: torch's had
57 GFLOP/s on an AMD processor whose convolutions by oneDNN had 122. So the first installed runtime of `RUNTIMES`
computes convolutions beside NumPy's matrix products, and the higher rate is the peak. Each is measured in a process of
its own, so that the engine never loads a runtime.
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
from ngbkit.files import write_atomically
from ngbkit.hardware import conditions, environment, subprocesses
from ngbkit.hardware.conditions.machine import warn_of_other_work
from ngbkit.hardware.resources import read_available_memory_bytes
from ngbkit.options import LAYOUT
from ngbkit.registry import find_version
from ngbkit.user_text import parse_json
from ngbkit.workloads.subprocesses import build_arguments

Work = Callable[[], None]

# Matrices that fit a core's own cache: larger ones would measure the memory as well.
SIZES = (192, 256, 384)
# Channels, height = width and kernel of convolutions that every runtime has optimised kernels for.
CONVOLUTIONS = ((64, 56, 3), (128, 28, 3), (512, 14, 1))
# The best rate is that of the best window this long, over all threads: a few calls of the largest product, and short
# enough to fit between two disturbances.
WINDOW_S = 0.005
# Arrays are this many times larger than the caches, and at least this large; a thread processes them in pieces.
CACHES, LEAST_BYTES, PIECE_BYTES = 4, 1 << 28, 1 << 22
# Imported fastest first: torch takes seconds.
RUNTIMES = ("openvino", "onnxruntime", "torch")
_LIMIT_S = 120.0
# What was measured beside other work is measured again so much later: not in each run of somebody who tries variants.
_AGAIN_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The highest f32 rates of a device with that many threads: operations a second, and bytes of memory a second."""

    flops: float
    bytes_per_s: float
    threads: int


def load_or_measure(state_dir: Path, threads: int) -> Peaks:
    """Load this device's peaks from `peaks.json`, or measure them if chip, cores, threads or packages have changed.

    Peaks that were measured beside other work are stored too, and measured again an hour later; the higher ones count.
    """
    file = state_dir / LAYOUT.peaks
    entries, key = read_entries(file), build_key(threads)
    entry = entries.get(key)
    if entry is not None and (entry["quiet"] or time.time() - entry["measured_at"] < _AGAIN_S):
        return Peaks(**entry["peaks"])
    was_quiet = _is_quiet()
    peaks = measure(threads)
    if entry is not None:
        peaks = Peaks(
            flops=max(peaks.flops, entry["peaks"]["flops"]),
            bytes_per_s=max(peaks.bytes_per_s, entry["peaks"]["bytes_per_s"]),
            threads=threads,
        )
    entries[key] = {"peaks": asdict(peaks), "quiet": was_quiet and _is_quiet(), "measured_at": time.time()}
    with write_atomically(file) as temporary:
        temporary.write_text(json.dumps(entries, indent=1))
    return peaks


def measure(threads: int, seconds: float = 1.0) -> Peaks:
    """Measure the peaks now, in about `seconds` and a runtime's load time; DeviceError if NumPy's measurement fails."""
    rates = [_measure_in_child("numpy", threads, seconds * 0.7)]
    if runtime := _find_runtime():
        with suppress(DeviceError):  # a runtime that does not run here sets no peak either
            rates.append(_measure_in_child(runtime, threads, seconds * 0.3))
    return Peaks(flops=max(rate["flops"] for rate in rates), bytes_per_s=rates[0]["bytes_per_s"], threads=threads)


def measure_numpy(threads: int, seconds: float) -> dict[str, float]:
    """Measure FLOP/s of matrix products and bytes/s of passes over memory, in Python threads: NumPy releases the GIL.

    NumPy's BLAS must be limited to one thread (``OPENBLAS_NUM_THREADS=1``) before it is loaded.
    """
    share_s = seconds / (len(SIZES) + 3)
    flops = max(_measure_rate([_build_product(size) for _ in range(threads)], 2.0 * size**3, share_s) for size in SIZES)
    arrays = _build_arrays(threads)
    # Copying reads one array and writes one, adding reads two and writes one, a scalar product only reads. A read that
    # precedes a store is not counted (as in STREAM: https://www.cs.virginia.edu/stream/ref.html).
    passes: tuple[tuple[Callable[..., Any], int], ...] = ((np.copyto, 2), (_add, 3), (np.dot, 2))
    memory = max(
        _measure_rate([_build_pass(operation, *pair) for pair in arrays], float(streams * PIECE_BYTES), share_s)
        for operation, streams in passes
    )
    return {"flops": flops, "bytes_per_s": memory}


def measure_runtime(name: str, threads: int, seconds: float) -> dict[str, float]:
    """Measure FLOP/s of convolutions by a runtime of `RUNTIMES`, which has its own threads."""
    rates = []
    for channels, side, kernel in CONVOLUTIONS:
        call = _CONVOLUTIONS[name](channels, side, kernel, threads)
        rates.append(2.0 * channels**2 * kernel**2 * side**2 / _measure_fastest(call, seconds / len(CONVOLUTIONS)))
    return {"flops": max(rates)}


def _build_product(size: int) -> Work:
    """Build a call that multiplies matrices of its own."""
    matrix, out = np.full((size, size), 1e-3, np.float32), np.empty((size, size), np.float32)
    return lambda: (np.matmul(matrix, matrix, out=out), None)[1]


def _build_arrays(threads: int) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Build two arrays a thread, in pieces (pieces x elements), all together far larger than the caches."""
    size = max(LEAST_BYTES, CACHES * environment.read_last_level_cache_bytes())
    pieces = max(2, min(size, read_available_memory_bytes() // 4) // (2 * threads * PIECE_BYTES))
    shape = (pieces, PIECE_BYTES // 4)
    return [(np.ones(shape, np.float32), np.ones(shape, np.float32)) for _ in range(threads)]


def _build_pass(operation: Callable[..., Any], target: NDArray[np.float32], source: NDArray[np.float32]) -> Work:
    """Build a call that processes the next piece of two arrays, cyclically."""
    order = itertools.cycle(range(len(target)))

    def work() -> None:
        piece = next(order)
        operation(target[piece], source[piece])

    return work


def _add(target: NDArray[np.float32], source: NDArray[np.float32]) -> None:
    np.add(target, source, out=target)


def _measure_rate(works: Sequence[Work], amount: float, seconds: float) -> float:
    """Measure the total work a second of concurrent threads, one a callable, in their best window."""
    calls: list[list[tuple[float, float]]] = [[] for _ in works]
    barrier = threading.Barrier(len(works))

    def repeat(work: Work, intervals: list[tuple[float, float]]) -> None:
        work()
        barrier.wait()
        deadline = time.perf_counter() + seconds
        while (start := time.perf_counter()) < deadline:
            work()
            intervals.append((start, time.perf_counter()))

    threads = [threading.Thread(target=repeat, args=pair) for pair in zip(works, calls, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return amount * compute_best_rate(list(itertools.chain(*calls)), WINDOW_S)


def compute_best_rate(calls: Sequence[tuple[float, float]], window_s: float) -> float:
    """Compute the calls a second, from start and end of each, in the best window of that length or the whole time.

    A call on the edge of the window counts by the share of it that is inside.
    """
    spans = np.asarray(calls, float)
    moments = np.concatenate([spans[:, 0], spans[:, 1]])
    order = np.argsort(moments, kind="stable")
    edges = moments[order]
    window_s = min(window_s, edges[-1] - edges[0])
    # The number of calls completed by each moment: a running call progresses evenly.
    speed = 1 / (spans[:, 1] - spans[:, 0])
    speeds = np.cumsum(np.concatenate([speed, -speed])[order])
    progress = np.concatenate([[0.0], np.cumsum(speeds[:-1] * np.diff(edges))])
    starts = edges[edges <= edges[-1] - window_s]
    return float(np.max(np.interp(starts + window_s, edges, progress) - np.interp(starts, edges, progress)) / window_s)


def _measure_fastest(call: Work, seconds: float) -> float:
    """Measure the seconds of the fastest of many calls."""
    call()
    deadline, fastest = time.perf_counter() + seconds, float("inf")
    while (start := time.perf_counter()) < deadline:
        call()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest


def _build_openvino(channels: int, side: int, kernel: int, threads: int) -> Work:
    from ngbkit.compilers.openvino_runtime import get_core, openvino

    opset13 = openvino.opset13

    x = opset13.parameter([1, channels, side, side], np.float32)
    pads = [kernel // 2] * 2
    network = opset13.convolution(x, _build_weights(channels, kernel), [1, 1], pads, pads, [1, 1])
    # bf16 has a different peak.
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32"}
    request = get_core().compile_model(openvino.Model([network], [x]), "CPU", settings).create_infer_request()
    request.set_input_tensor(openvino.Tensor(_build_image(channels, side)))
    return lambda: (request.infer(), None)[1]


def _build_onnxruntime(channels: int, side: int, kernel: int, threads: int) -> Work:
    from onnx import TensorProto, helper, numpy_helper

    from ngbkit.compilers.onnxruntime_runtime import onnxruntime

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, side, side]) for name in "xy")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[kernel // 2] * 4)
    graph = helper.make_graph(
        [node], "peak", [x], [y], [numpy_helper.from_array(_build_weights(channels, kernel), "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": _build_image(channels, side)}
    return lambda: (session.run(None, feeds), None)[1]


def _build_torch(channels: int, side: int, kernel: int, threads: int) -> Work:
    import torch

    torch.set_num_threads(threads)
    x, weights = (
        torch.from_numpy(array).contiguous(memory_format=torch.channels_last)
        for array in (_build_image(channels, side), _build_weights(channels, kernel))
    )
    convolve = torch.inference_mode()(torch.nn.functional.conv2d)
    return lambda: (convolve(x, weights, padding=kernel // 2), None)[1]


_CONVOLUTIONS: dict[str, Callable[[int, int, int, int], Work]] = {
    "openvino": _build_openvino,
    "onnxruntime": _build_onnxruntime,
    "torch": _build_torch,
}


def _build_weights(channels: int, kernel: int) -> NDArray[np.float32]:
    return np.full((channels, channels, kernel, kernel), 1e-3, np.float32)


def _build_image(channels: int, side: int) -> NDArray[np.float32]:
    return np.ones((1, channels, side, side), np.float32)


def _measure_in_child(library: str, threads: int, seconds: float) -> dict[str, float]:
    """Measure with a library in a process of its own."""
    settings = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} if library == "numpy" else {}
    words = ("ngbkit.device.peaks", library, str(threads), str(seconds))
    variables = {**os.environ, "OMP_NUM_THREADS": str(threads), **settings}
    try:
        rates: dict[str, float] = subprocesses.run_json(
            [sys.executable, *build_arguments(*words)], environment=variables, timeout_s=_LIMIT_S
        )
    except DeviceError as error:
        command = " ".join([sys.executable, "-m", *words])
        raise DeviceError(f"measuring the peak with {library} failed: {error}; try `{command}`") from None
    return rates


def _find_runtime() -> str | None:
    """Find the first of `RUNTIMES` that is installed."""
    return next((name for name in RUNTIMES if importlib.util.find_spec(name)), None)


def _is_quiet() -> bool:
    return not list(warn_of_other_work(conditions.observe(0.1)))


def read_entries(file: Path) -> dict[str, Any]:
    """Read earlier measurements; empty if the file is missing or not valid."""
    try:
        entries = parse_json(file.read_text())
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


def build_key(threads: int) -> str:
    """Build the key of a peak, as one line: everything that it depends on."""
    packages = " ".join(f"{name}={find_version(name)}" for name in ("numpy", *RUNTIMES))
    return f"{environment.read_chip()}, {environment.count_usable_cores()} cores, {threads} threads, {packages}"


def _main() -> None:
    library, threads, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    rates = measure_numpy(threads, seconds) if library == "numpy" else measure_runtime(library, threads, seconds)
    sys.stdout.write(json.dumps(rates) + "\n")


if __name__ == "__main__":
    _main()
