"""The profiler of AOTInductor: another package of the network, into which Inductor has compiled torch's profiler.

The code of a package lists its calls of kernels in the order in which torch's profiler reports them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngbkit.compilers.profiles import inductor
from ngbkit.compilers.profiles.inductor import KernelCall
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.errors import UnsupportedError

SETTINGS: Mapping[str, Any] = {**inductor.SETTINGS, "cpp.enable_kernel_profile": True}
"""Inductor's settings under which torch's profiler is compiled into each kernel, and the nodes of each are listed."""

_NOTE = "the profile is of a second package, into which torch's profiler is compiled; the timed one is without"
_UNREPORTED = "a kernel of a template, as max_autotune chooses them, reports no time: it counts as time between kernels"
_KERNELS = "kernel_information.json"
# In the code of a package: comments on a kernel, then one of a library that is recorded, or one of Inductor, which
# records itself.
_STEP = re.compile(
    rf"{inductor.COMMENTS}"
    r"|RAIIAtenRecordFunctionHandle record_\w+\(\"(?P<library>[^\"]+)\""
    r"|^\s*(?P<kernel>cpp_\w+)\(",
    re.MULTILINE,
)
# The definition of a kernel, rather than its declaration.
_DEFINITION = re.compile(r"[^;{]*\b(cpp_\w+)\([^;{]*\{")
# The prefix of the kernels of a graph.
_GRAPH = re.compile(r"^graph_\d+_")


def open_profiler(package: Path, source: SourceGraph, run: Callable[[], Any]) -> Profiler:
    """Open a profiler of the calls of a package that was built with `SETTINGS`."""
    texts = [path.read_text() for path in sorted(package.rglob("*.cpp"))]
    calls = [call for text in texts for call in list_calls(text, find_copies("\n".join(texts)))]
    origins: dict[str, list[str]] = {}
    for path in package.rglob(_KERNELS):
        origins |= inductor.find_origins(json.loads(path.read_text()))
    recorder = _EventRecorder(calls, run)

    def read() -> Profile:
        is_unreported = any(math.isnan(seconds) for row in recorder.seconds for seconds in row)
        notes = [_NOTE, _UNREPORTED] if is_unreported else [_NOTE]
        return inductor.build_profile(calls, origins, source, recorder.seconds, notes)

    return Profiler(run=run, read=read, prepare=recorder.start, finish=recorder.stop)


def list_calls(text: str, copies: set[str]) -> Iterator[KernelCall]:
    """List the calls of kernels in the C++ code of a package, in order."""
    comments: list[re.Match[str]] = []
    for step in _STEP.finditer(find_body(text)):
        name = step["library"] or step["kernel"]
        if name:
            yield inductor.build_call(name, comments, moves=name in copies)
            comments = []
        else:
            comments.append(step)


def find_body(text: str) -> str:
    """Find the code of one call of a network in the C++ code of a package; empty in other files."""
    return text.partition("void AOTInductorModel::run_impl(")[2].partition("} // AOTInductorModel::run_impl")[0]


def find_copies(text: str) -> set[str]:
    """Find the names of kernels in C++ code that only load and store values."""
    parts = re.split(r'extern "C"', text)[1:]
    kernels = {match[1]: part for part in parts if (match := _DEFINITION.match(part))}
    return {name for name, part in kernels.items() if inductor.is_copy(part)}


class _EventRecorder:
    """The seconds of each kernel in each profiled call, from the events of torch's profiler."""

    def __init__(self, calls: Sequence[KernelCall], run: Callable[[], Any]) -> None:
        self._names = [call.name for call in calls]
        self._run = run
        self._profiler: Any = None
        self.seconds: list[list[float]] = []

    def start(self) -> None:
        """Start torch's profiler; a first call wakes the threads that fell asleep meanwhile."""
        from torch.autograd import profiler

        self._profiler = profiler.profile()
        self._profiler.__enter__()
        self._run()

    def stop(self) -> None:
        """Stop the profiler, and match its events with the calls of kernels."""
        self._profiler.__exit__(None, None, None)
        names = set(self._names)
        events = [
            (_GRAPH.sub("", event.name), 1e-6 * event.time_range.elapsed_us())
            for event in sorted(self._profiler.function_events, key=lambda event: event.time_range.start)
        ]
        events = [event for event in events if event[0] in names]
        # A kernel of a template, such as a matrix product of max_autotune, reports no time.
        reported = {name for name, _ in events}
        expected = [name for name in self._names if name in reported]
        if not expected or [name for name, _ in events] != 2 * expected:
            raise UnsupportedError(
                f"torch's profiler reports {len(events)} kernels in two calls of a package with {len(self._names)}, or "
                "in another order: they cannot be told apart."
            )
        second = (seconds for _, seconds in events[len(expected) :])
        self.seconds.append([next(second) if name in reported else math.nan for name in self._names])
