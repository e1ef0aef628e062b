"""The profiler of ExecuTorch: the operators of XNNPACK and ExecuTorch's own kernels, in the trace of a second program.

XNNPACK reports its operators in the order of their execution, without the nodes that they come from. The graphs that
its backend was given have these, so that both are aligned by the kinds of operators. Nodes are those of `torch.export`,
which ExecuTorch's debug handles refer to.
"""

from __future__ import annotations

import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit.compilers.profiles import provenance, torch_graph
from ngbkit.compilers.profiles.profile import Profile, Profiler
from ngbkit.compilers.profiles.provenance import Executed
from ngbkit.compilers.profiles.source_graph import SourceGraph
from ngbkit.compilers.profiles.torch_graph import Operation

if TYPE_CHECKING:
    import numpy as np
    import torch

_METHOD = "forward"
_CALL, _KERNEL = "Method::execute", "native_call_"
_PREFIX = re.compile(r"^XNN(Static)?|(?<=Concatenate)\d")
# One word for each operator, which XNNPACK's operators and the nodes of its graphs have different names for. A
# convolution of single pixels is a matrix product.
_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("conv2d", "depthwiseconv2d", "convolution", "fullyconnected"), "product"),
    "convtranspose2d": "deconvolution",
    **dict.fromkeys(("globalavgpooling2d", "globalaveragepooling"), "mean"),
    "avgpooling2d": "averagepooling",
    "maxpooling2d": "maxpooling",
    "argmaxpooling2d": "argmaxpooling",
    **dict.fromkeys(("copy", "staticreshape"), "reshape"),
    **dict.fromkeys(("divide", "division"), "div"),
    "resizebilinear2d": "resizebilinear",
}
_MOVES = re.compile(r"transpose|copy|convert|reshape|slice|constantpad|concatenate|split|expand|permute|view|cat|clone")
_ROUNDED = "XNNPACK reports its operators in whole microseconds"

# A kernel of a call: the number of its instruction, its name, and its number among those of that name.
_Key = tuple[int, str, int]


@contextmanager
def record_graphs() -> Iterator[dict[bytes, Any]]:
    """Record the graphs that XNNPACK's backend is given, by what it makes of them."""
    from executorch.backends.xnnpack import xnnpack_preprocess

    serialize = xnnpack_preprocess.serialize_xnnpack_binary
    graphs: dict[bytes, Any] = {}

    def serialize_recorded(graph: Any, constants: Any) -> bytes:
        content: bytes = serialize(graph, constants)
        graphs[content] = graph
        return content

    xnnpack_preprocess.serialize_xnnpack_binary = serialize_recorded
    try:
        yield graphs
    finally:
        xnnpack_preprocess.serialize_xnnpack_binary = serialize


def list_handles(exported: torch.export.ExportedProgram, lowered: Any) -> dict[int, list[str]]:
    """List the nodes of an exported graph by the debug handle of what they became, which emission overwrites."""
    keys = {node.name for node in exported.graph.nodes if node.op == "call_function"}
    module = lowered.exported_program().graph_module
    graphs = [
        module.graph,
        *(part.original_module.graph for part in module.children() if hasattr(part, "original_module")),
    ]
    handles: defaultdict[int, list[str]] = defaultdict(list)
    for node in (node for graph in graphs for node in graph.nodes if node.op == "call_function"):
        names = handles[node.meta.get("debug_handle", 0)]
        names += [name for name in _iterate_origins(node.meta.get("from_node") or ()) if name in keys - {*names}]
    return dict(handles)


def _iterate_origins(sources: Sequence[Any]) -> Iterator[str]:
    """Yield the names of the oldest nodes that a node comes from."""
    for source in sources:
        if source.from_node:
            yield from _iterate_origins(source.from_node)
        else:
            yield source.name


def describe(
    exported: torch.export.ExportedProgram,
    handles: Mapping[int, Sequence[str]],
    program: Any,
    graphs: Mapping[bytes, Any],
) -> dict[str, Any]:
    """Describe a program as plain JSON: the operations of the network, and the operators of each instruction."""
    contents = [entry.data for entry in program.executorch_program.backend_delegate_data]
    plan = program.executorch_program.execution_plan[0]
    instructions: dict[int, list[dict[str, Any]]] = {}
    for index, instruction in enumerate(plan.chains[0].instructions):
        call = instruction.instr_args
        if hasattr(call, "delegate_index"):
            content = bytes(contents[plan.delegates[call.delegate_index].processed.index])
            nodes = graphs[content].xnodes if content in graphs else ()
            instructions[index] = [_describe_node(node, handles) for node in nodes]
        elif hasattr(call, "op_index"):
            handle = program.debug_handle_map[_METHOD].get(index, 0)
            instructions[index] = [{"kind": "", "nodes": handles.get(handle, []), "inputs": [], "outputs": []}]
    operations = [asdict(operation) for operation in torch_graph.list_captured(exported.graph)]
    return {"operations": operations, "instructions": instructions}


def _describe_node(node: Any, handles: Mapping[int, Sequence[str]]) -> dict[str, Any]:
    """Describe a node of XNNPACK's graph: its kind, its nodes, and the numbers of the values it reads and computes."""
    values = {name: value for name, value in vars(node.xnode_union).items() if name.endswith("_id")}
    return {
        "kind": _PREFIX.sub("", type(node.xnode_union).__name__).lower(),
        "nodes": handles.get(node.debug_handle, []),
        "inputs": [value for name, value in values.items() if not name.startswith("output")],
        "outputs": [value for name, value in values.items() if name.startswith("output")],
    }


def open_profiler(
    path: Path, inputs: Sequence[torch.Tensor], description: Mapping[str, Any], modules: Mapping[str, torch.nn.Module]
) -> Profiler:
    """Open a program in a file once more, with a trace of its calls; `modules` are those of the network by path."""
    program, execute = open_traced(path, inputs)

    def read() -> Profile:
        operations = [Operation(**{**each, "inputs": tuple(each["inputs"])}) for each in description["operations"]]
        source = torch_graph.build(operations, modules)
        return build_profile(source, description["instructions"], list_calls(read_events(program)))

    return Profiler(run=execute, read=read)


def open_traced(path: Path, inputs: Sequence[torch.Tensor]) -> tuple[Any, Callable[[], Any]]:
    """Open a program in a file with a trace, and return it with a call of it."""
    from executorch.extension.pybindings import portable_lib

    program = portable_lib._load_program(str(path), enable_etdump=True)
    method = program.load_method(_METHOD)
    method.set_inputs(inputs)
    return program, method.execute


def read_events(program: Any) -> list[Any]:
    """Read the events that a program has traced."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    with tempfile.TemporaryDirectory(prefix="ngbkit-profile-") as folder:
        trace = Path(folder, "trace.etdump")
        program.write_etdump_result_to_file(str(trace))
        runs = deserialize_from_etdump_flatcc(trace.read_bytes()).run_data
    return [event.profile_event for run in runs for event in run.events or () if event.profile_event]


def list_calls(events: Sequence[Any]) -> list[dict[_Key, float]]:
    """List the seconds of each kernel by call; the event of a call is behind those in it."""
    calls: list[dict[_Key, float]] = []
    seconds: dict[_Key, float] = {}
    for event in events:
        name = event.delegate_debug_id_str or event.name or ""
        if name == _CALL:
            calls.append(seconds)
            seconds = {}
        elif event.delegate_debug_id_str or name.startswith(_KERNEL):
            number = sum(key[:2] == (event.instruction_id, name) for key in seconds)
            seconds[event.instruction_id, name, number] = 1e-9 * (event.end_time - event.start_time)
    return calls


def build_profile(
    source: SourceGraph, instructions: Mapping[str, Sequence[Mapping[str, Any]]], calls: Sequence[Mapping[_Key, float]]
) -> Profile:
    """Build the profile of some calls of a program whose instructions were described when it was compiled."""
    import numpy as np

    keys = list(dict.fromkeys(key for call in calls for key in call))
    executed = list_executed(keys, instructions, source)
    seconds: np.ndarray = np.array([[call.get(key, np.nan) for key in keys] for call in calls], dtype=np.float64)
    return Profile(
        nodes=source.nodes,
        kernels=provenance.map_kernels(source.nodes, executed),
        seconds=seconds.reshape(len(calls), len(keys)),
        form="module",
        notes=(_ROUNDED,),
        delays=False,
    )


def list_executed(
    keys: Sequence[_Key], instructions: Mapping[str, Sequence[Mapping[str, Any]]], source: SourceGraph
) -> list[Executed]:
    """List kernels with the nodes of the operators that they are aligned to, and the kernels of the same delegate."""
    executed: list[Executed] = []
    for instruction in dict.fromkeys(key[0] for key in keys):
        kernels = [name for number, name, _ in keys if number == instruction]
        nodes = instructions.get(str(instruction), ())
        producers: dict[int, int] = {}
        outputs: Sequence[int] = ()
        for kernel, place in zip(kernels, align(kernels, nodes), strict=True):
            node = {} if place is None else nodes[place]
            # An operator that XNNPACK has added changes the values of the one before it.
            inputs = outputs if place is None else node["inputs"]
            outputs = outputs if place is None else node["outputs"]
            sources = dict.fromkeys(producers[value] for value in inputs if value in producers)
            producers.update(dict.fromkeys(outputs, len(executed)))
            claims = tuple(source.names[key] for key in node.get("nodes", ()) if key in source.names)
            executed.append(
                Executed(
                    name=kernel.removeprefix(_KERNEL),
                    kind=kernel.removeprefix(_KERNEL).partition(" #")[0],
                    inputs=tuple(sources),
                    claims=claims,
                    moves=bool(_MOVES.match(_find_word(kernel))),
                    # An activation is fused with what it follows.
                    operator=source.nodes[claims[0]].operator.partition(" ")[0] if claims else "",
                )
            )
    return executed


def align(kernels: Sequence[str], nodes: Sequence[Mapping[str, Any]]) -> list[int | None]:
    """Align kernels to nodes of a graph, both in order, so that most fit; None where none does."""
    if len(kernels) == len(nodes) == 1:
        return [0]
    heads = [*map(_find_word, kernels)]
    kinds = [_WORDS.get(node["kind"], node["kind"]) for node in nodes]
    # The longest common subsequence: the numbers of pairs in what follows each pair of places.
    lengths = [[0] * (len(kinds) + 1) for _ in range(len(heads) + 1)]
    for row, head in reversed(list(enumerate(heads))):
        for column, kind in reversed(list(enumerate(kinds))):
            skipped = max(lengths[row + 1][column], lengths[row][column + 1])
            lengths[row][column] = lengths[row + 1][column + 1] + 1 if head == kind else skipped
    places: list[int | None] = []
    column = 0
    for row, head in enumerate(heads):
        while column < len(kinds) and head != kinds[column] and lengths[row][column + 1] > lengths[row + 1][column]:
            column += 1
        is_pair = column < len(kinds) and head == kinds[column]
        places.append(column if is_pair else None)
        column += is_pair
    return places


def _find_word(kernel: str) -> str:
    """Find the word for the operator in the name of a kernel: ``"add"`` of ``"Add (ND) #1"``."""
    head = re.sub(r"[^a-z0-9]", "", kernel.removeprefix(_KERNEL).partition("(")[0].partition(".")[0].lower())
    return _WORDS.get(head, head)
