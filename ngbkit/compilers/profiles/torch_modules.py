"""The profiler of eager torch: the operators that each module calls, by torch's own profiler, in ranges of the modules.

Hooks open a range for each module in profiled calls alone. An operator of torch's library that a module calls is a
kernel, with what it calls in turn; it is a source node of its own, since nothing is fused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles import torch_graph
from ngbkit.compilers.profiles.profile import Kernel, Profile, Profiler, SourceNode

if TYPE_CHECKING:
    import torch

_RANGE = "ngbkit:"
_NOTE = "torch reports operators by module, without the values between them"


def open_profiler(module: torch.nn.Module, call: Callable[[], Any]) -> Profiler:
    """Open a profiler of the calls of a module on a CPU."""
    recorder = _OperatorRecorder(module)
    return Profiler(run=call, read=recorder.read, prepare=recorder.start, finish=recorder.stop)


class _OperatorRecorder:
    """The operators of each profiled call: the seconds by module, operator, and how often the module called it."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._modules = dict(module.named_modules())
        self._handles: list[Any] = []
        self._profiler: Any = None
        self._calls: list[dict[tuple[str, str, int], float]] = []

    def start(self) -> None:
        """Open the ranges of all modules, and start torch's profiler."""
        from torch.autograd import profiler

        for path, module in self._modules.items():
            ranges: list[Any] = []
            self._handles.append(module.register_forward_pre_hook(_build_opener(path, ranges)))
            self._handles.append(module.register_forward_hook(_build_closer(ranges)))
        self._profiler = profiler.profile()
        self._profiler.__enter__()

    def stop(self) -> None:
        """Stop the profiler, and record the operators of the call."""
        self._profiler.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        counts: Counter[tuple[str, str]] = Counter()
        seconds: dict[tuple[str, str, int], float] = {}
        for path, operator, spent_s in _list_operators(self._profiler.function_events):
            seconds[path, operator, counts[path, operator]] = spent_s
            counts[path, operator] += 1
        self._calls.append(seconds)

    def read(self) -> Profile:
        """Read the profile of all calls so far; an operator that a call lacks has no seconds in it."""
        import numpy as np

        keys = list(dict.fromkeys(key for call in self._calls for key in call))
        rows = [[call.get(key, np.nan) for key in keys] for call in self._calls]
        counts: Counter[str] = Counter()
        names = [torch_graph.name_node(path, torch_graph.simplify(operator), counts) for path, operator, _ in keys]
        return Profile(
            nodes=[
                SourceNode(name=name, operator=operator, module=path)
                for name, (path, operator, _) in zip(names, keys, strict=True)
            ],
            kernels=[
                Kernel(name=name, kind=operator, nodes=(index,))
                for index, (name, (_, operator, _)) in enumerate(zip(names, keys, strict=True))
            ],
            seconds=np.array(rows, dtype=np.float64).reshape(len(rows), len(keys)),
            form="module",
            notes=(_NOTE,),
        )


def _build_opener(path: str, ranges: list[Any]) -> Callable[..., None]:
    from torch.autograd.profiler import record_function

    def open_range(*_: object) -> None:
        ranges.append(record_function(f"{_RANGE}{path}"))
        ranges[-1].__enter__()

    return open_range


def _build_closer(ranges: list[Any]) -> Callable[..., None]:
    def close_range(*_: object) -> None:
        ranges.pop().__exit__(None, None, None)

    return close_range


def _list_operators(events: Any) -> Iterator[tuple[str, str, float]]:
    """Yield the operators that modules call themselves, in order: the module, the operator, and its seconds."""
    for event in sorted(events, key=lambda event: event.time_range.start):
        parent = event.cpu_parent
        if parent is not None and parent.name.startswith(_RANGE) and not event.name.startswith(_RANGE):
            yield parent.name.removeprefix(_RANGE), event.name, 1e-6 * event.time_range.elapsed_us()
