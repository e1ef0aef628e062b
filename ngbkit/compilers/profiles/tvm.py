"""The profiler of TVM's virtual machine on a CPU: a second machine, which reports each call before and after it runs.

The machine has names of fused functions alone. A second import of the network, fused as the first, has their nodes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles import provenance, source_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import SourceGraph

if TYPE_CHECKING:
    import numpy as np

    from ngbkit.compilers.tvm_relax.library import Library
    from ngbkit.compilers.tvm_relax.origins import FunctionCall

# A reshape is a call of a function in the list of calls, and of the machine itself when it runs.
_RESHAPE = "vm.builtin.reshape"
# Functions that move or convert values.
_MOVES = frozenset(
    {
        *("broadcast_to", "cast", "concatenate", "expand_dims", "flatten", "layout_transform", "pad", "permute_dims"),
        *("reshape", "split", "squeeze", "strided_slice", "dynamic_strided_slice", "tile", "transpose"),
    }
)
_CHANGED = (
    "a second import of the network has other functions than the one that was measured: kernels are not mapped to nodes"
)


def open_profiler(
    onnx: Path, library: Library, inputs: Sequence[Any], trace: Callable[[Path], Sequence[FunctionCall]]
) -> Profiler:
    """Open a second machine of a library on the same tensors; `trace` lists the calls of the network in a file."""
    recorder = _FunctionRecorder(functions=frozenset(library.calls))
    machine = library.open_machine()
    machine.set_instrument(recorder.record)

    def read() -> Profile:
        source = source_graph.read(onnx)
        with tempfile.TemporaryDirectory(prefix="ngbkit-profile-") as folder:
            traced = trace(source_graph.write_named(onnx, Path(folder)))
        executed, notes = list_executed(library.calls, traced, source)
        return Profile(
            nodes=source.nodes,
            kernels=provenance.map_kernels(source.nodes, executed),
            seconds=build_table(library.calls, recorder.calls),
            notes=notes,
            delays=False,
        )

    return Profiler(run=library.bind(inputs, machine), read=read, prepare=recorder.open_call)


@dataclass(slots=True)
class _FunctionRecorder:
    """The functions of each call in order, and the seconds of each."""

    functions: frozenset[str]
    calls: list[list[tuple[str, float]]] = field(default_factory=list)
    _start_s: float = 0.0

    def open_call(self) -> None:
        """Begin a new call of the network."""
        self.calls.append([])

    def record(self, _: Any, name: str, is_before: bool, *__: Any) -> None:
        """Record the end of a function, or the time before it starts; the machine's own steps are no kernels."""
        end_s = time.perf_counter()
        if not is_before and (name in self.functions or name == _RESHAPE):
            self.calls[-1].append((name, end_s - self._start_s))
        self._start_s = time.perf_counter()


def build_table(names: Sequence[str], calls: Sequence[Sequence[tuple[str, float]]]) -> np.ndarray:
    """Build the table of seconds, a row per call, in the order of `names`; NaN where a function did not run."""
    import numpy as np

    table = np.full((len(calls), len(names)), np.nan)
    for row, call in zip(table, calls, strict=True):
        place = 0
        for name, spent_s in call:
            index = next((each for each in range(place, len(names)) if name in (names[each], _RESHAPE)), None)
            if index is not None:
                row[index], place = spent_s, index + 1
    return table


def list_executed(
    names: Sequence[str], traced: Sequence[FunctionCall], source: SourceGraph
) -> tuple[list[Executed], tuple[str, ...]]:
    """List the functions of a network with the nodes that they claim, and a note if these are unknown."""
    if len(names) != len(traced) or not all(call.matches(name) for name, call in zip(names, traced, strict=True)):
        return [Executed(name=name, kind=name) for name in names], (_CHANGED,)
    return [_describe(name, call, source) for name, call in zip(names, traced, strict=True)], ()


def _describe(name: str, call: FunctionCall, source: SourceGraph) -> Executed:
    moves = _MOVES.issuperset(call.operators)
    claims = [source.names[node] for node in call.nodes if node in source.names]
    return Executed(
        name=name,
        kind="+".join(call.operators),
        inputs=call.inputs,
        # A change of a layout has the label of the node that it is for.
        claims=tuple(index for index in claims if source.nodes[index].moves or not moves),
        moves=moves,
    )
