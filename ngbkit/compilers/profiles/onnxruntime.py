"""The profiler of ONNX Runtime on a CPU: a second session, whose optimised graph and events are read.

Names survive in its optimised graph: a fusion appends to the name of a node (``node_MatMul_12/MatMulAddFusion``), a
convolution in a blocked layout has the name of its output (``relu_1_nchwc``), and values between keep theirs.
"""

from __future__ import annotations

import json
import re
import tempfile
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ngbkit.compilers import onnxruntime_session as strict
from ngbkit.compilers.base import Task
from ngbkit.compilers.profiles import provenance, source_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import MOVES, SourceGraph

# The suffix that ONNX Runtime appends to the name of a node.
_EVENT = "_kernel_time"
# The event of a whole call.
_CALL = "model_run"
# Suffixes of names that its transformations derive from those of nodes and values.
_SUFFIX = re.compile(r"(_token_\d+|_nchwc|_new_reshape|_quant|/[^/]*/?)$")
_COPIES = MOVES | {"MemcpyFromHost", "MemcpyToHost", "ReorderInput", "ReorderOutput"}


def open_profiler(task: Task, settings: Any) -> Profiler:
    """Open the file of a task in a profiled session of these settings, which must be new."""
    assert task.onnx is not None
    folder = tempfile.TemporaryDirectory(prefix="ngbkit-profile-")
    profiled = ProfiledSession(task.onnx, Path(folder.name), settings)
    call = strict.build_cpu_calls(profiled.session, task)[0]

    def read() -> Profile:
        with folder:
            return profiled.read()

    return Profiler(run=call, read=read)


class ProfiledSession:
    """A session on an ONNX file, whose nodes it names, with its optimised graph and its events."""

    def __init__(self, onnx: Path, folder: Path, settings: Any) -> None:
        self.onnx, self.optimised = source_graph.write_named(onnx, folder), folder / "executed.onnx"
        strict.write_to(settings, self.optimised)
        settings.enable_profiling = True
        settings.profile_file_prefix = str(folder / "profile")
        settings.log_severity_level = 3  # it warns that such a graph only fits this machine
        self.session = strict.open_session(self.onnx, settings, strict.CPU)
        self._events: list[dict[str, Any]] = []

    def read_events(self) -> list[dict[str, Any]]:
        """Read the events of calls and of kernels in them, and end the profiling."""
        if not self._events:
            events = json.loads(Path(self.session.end_profiling()).read_text())
            self._events = [event for event in events if _is_kernel(event) or event["name"] == _CALL]
        return self._events

    def read(self) -> Profile:
        """Read the profile of all calls so far."""
        source = source_graph.read(self.onnx)
        executed = list_executed(self.optimised, source)
        return Profile(
            nodes=source.nodes,
            kernels=provenance.map_kernels(source.nodes, executed),
            seconds=build_table([kernel.name for kernel in executed], self.read_events()),
        )


def build_table(names: Sequence[str], events: Sequence[dict[str, Any]]) -> Any:
    """Build the table of seconds, a row per call; NaN where a kernel has no event."""
    import numpy as np

    starts = sorted(event["ts"] for event in events if event["name"] == _CALL)
    places = {name: index for index, name in enumerate(names)}
    table = np.full((len(starts), len(names)), np.nan)
    for event in filter(_is_kernel, events):
        place = places.get(_get_name(event))  # a node of a subgraph has none: its time is in that of the outer node
        row = bisect_right(starts, event["ts"]) - 1
        if place is not None and row >= 0:
            table[row, place] = np.nansum([table[row, place], 1e-6 * event["dur"]])
    return table


def find_shapes(events: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, ...]]]:
    """Find the shapes of the outputs of each node, by its name: the file lacks some of ONNX Runtime's own operators."""
    return {
        _get_name(event): [tuple(shape) for output in event["args"]["output_type_shape"] for shape in output.values()]
        for event in filter(_is_kernel, events)
    }


def _get_name(event: Mapping[str, Any]) -> str:
    return str(event["name"]).removesuffix(_EVENT)


def _is_kernel(event: Mapping[str, Any]) -> bool:
    return event.get("cat") == "Node" and str(event["name"]).endswith(_EVENT)


def list_executed(path: Path, source: SourceGraph) -> list[Executed]:
    """List the nodes of an optimised graph with the source nodes that their names claim."""
    import onnx

    owners: dict[str, int] = {}
    executed: list[Executed] = []
    for node in onnx.load(str(path), load_external_data=False).graph.node:
        if node.op_type == "Constant":
            continue
        claims = tuple(dict.fromkeys(_list_claims(node, source)))
        inputs = tuple(dict.fromkeys(owners[name] for name in node.input if name in owners))
        owners.update(dict.fromkeys(filter(None, node.output), len(executed)))
        executed.append(
            Executed(
                name=node.name,
                kind=_format_kind(node),
                inputs=inputs,
                claims=claims,
                moves=node.op_type in _COPIES,
                operator=node.op_type,
            )
        )
    return executed


def _list_claims(node: Any, source: SourceGraph) -> Iterator[int]:
    for name in (node.name, *node.output):
        while name:
            if name in source.names:
                yield source.names[name]
                break
            shorter = _SUFFIX.sub("", name)
            if shorter == name:
                break
            name = shorter


def _format_kind(node: Any) -> str:
    """Format the operator of a node, with the activation that a convolution has folded in."""
    activation = next((each.s.decode() for each in node.attribute if each.name == "activation" and each.s), "")
    return "+".join(filter(None, (source_graph.format_kind(node), activation)))
