"""Live modules of a notebook, exported at the client and sent as programs and ONNX, never as pickles.

A program is torch.export's archive: a zip of the graph as JSON and of raw tensor bytes. That format has three places
for a pickle (example inputs, tensors of a subclass, script objects), and `torch.export.load` executes their content; it
also evaluates the expressions of sizes, and writes the names of arguments into code. So ngbkit writes no pickle, and
rejects an archive with one, or with a text that is code, before torch loads it.
"""

from __future__ import annotations

import copy
import json
import keyword
import re
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import UnsupportedError, WorkloadError
from ngbkit.files import Store
from ngbkit.workloads import export, feeds, inputs
from ngbkit.workloads.base import Factors, Network, Source, TensorSpec, Workload
from ngbkit.workloads.export_refusals import describe_refusal
from ngbkit.workloads.onnx_inputs import BatchAxes

if TYPE_CHECKING:
    import torch

_ANY = "any"
_MARKS = ("archive_format", "archive_version", "byteorder")
# sympy evaluates a size as Python. These are classes, keywords and numbers; Symbol and Float evaluate no text.
_SIZE = re.compile(r"(Symbol\('\w+|Float\('[\d.e+-]+)'|\b[A-Z]\w*\b|\b[a-z_]+=|\b\d+\b|[(), +*/-]")


def from_module(
    name: str,
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    batch_sizes: Iterable[int] | None = None,
    batch_axis: BatchAxes | None = None,
) -> Workload:
    """A workload of a module object, whichever cell defines its class. The module itself is not changed.

    A copy in ``eval()`` is exported; values that its initialisation left constant are re-drawn from the option `seed`.

    Parameters
    ----------
    name
        The label.
    module
        The module, trained or not.
    example_inputs
        A tensor with a leading batch dimension, a tuple or list of these, or a dict of them by argument, nested as the
        module takes them. The network is fed their rows; a scalar, or a tensor of one row beside others of more, is the
        same for every sample.
    batch_sizes
        None exports one program for every batch size. If that fails, name the batch sizes of the sweep: each gets its
        own program.
    batch_axis
        The dimension of inputs that is the batch, by input name, None for an input without one. Default: the first.

    Raises
    ------
    WorkloadError
        `module` is not a module, it rejects the inputs, or torch cannot export it.

    Examples
    --------
    >>> import torch
    >>> from_module("line", torch.nn.Linear(4, 2), torch.randn(1, 4)).source
    'module'
    """
    import numpy as np

    network = _prepare(name, module, example_inputs, batch_axis or {}, is_named=bool(batch_axis or batch_sizes))
    if network.batch_size is not None:
        batch_sizes = [network.batch_size]
    sizes: list[int | None] = [None] if batch_sizes is None else [_check_batch_size(size) for size in batch_sizes]
    artifacts: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(dir=options.make_state_dir()) as folder:
        programs = {
            str(size or _ANY): _store(_write_program(name, network, size, Path(folder) / "program.pt2"), artifacts)
            for size in sizes
        }
        examples = Path(folder, "examples.npz")
        np.savez(examples, *(network.examples[spec.name] for spec in network.inputs))
        spec = {
            "programs": programs,
            "onnx": _write_onnx(network, Path(folder), artifacts) if batch_sizes is None else None,
            "examples": _store(examples, artifacts),
            "inputs": [tensor.to_json() for tensor in network.inputs],
            **({"batch_reason": network.batch_reason} if network.batch_reason else {}),
        }
    return Workload(name=name, source="module", spec=spec, artifacts=artifacts, batch_axis=dict(batch_axis or {}))


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a program varies no factor
    """Load the exported program as a module, with its ONNX file if there is one."""
    import numpy as np

    spec, paths = workload.spec, workload.artifacts
    tensors = [TensorSpec.from_json(tensor) for tensor in spec["inputs"]]
    programs = {size: _load_program(paths[digest]) for size, digest in spec["programs"].items()}
    with np.load(paths[spec["examples"]], allow_pickle=False) as rows:
        examples = {tensor.name: rows[f"arr_{index}"] for index, tensor in enumerate(tensors)}
    sizes = [int(size) for size in programs if size != _ANY]
    return Network(
        inputs=tensors,
        module=programs[_ANY] if not sizes else _dispatch_by_batch(programs, tensors),
        onnx=paths[spec["onnx"]] if spec["onnx"] else None,
        batch_size=sizes[0] if len(sizes) == 1 else None,
        batch_reason=spec.get("batch_reason", ""),
        examples=examples,
        baseline="torch eager (exported program)",
    )


SOURCE = Source(name="module", summary="live modules of a notebook, by ngbkit.from_module", build=build)


def _prepare(name: str, module: Any, example_inputs: Any, batch_axes: BatchAxes, *, is_named: bool) -> Network:
    import torch

    if not isinstance(module, torch.nn.Module):
        raise WorkloadError(f"invalid module {name}: got a {type(module).__name__}; expected a torch.nn.Module.")
    duplicate = _copy(name, module)
    call = replace(inputs.parse_values(example_inputs, duplicate, batch_axes), is_named=is_named)
    return inputs.build_network(name, duplicate, call, options.get_options()["seed"], always=True)


def _copy(name: str, module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module to the CPU in ``eval()``."""
    import torch

    # A tensor that it computed with gradients, as the old weight_norm does, is copied by its value.
    memo = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in vars(part).values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    try:
        duplicate = copy.deepcopy(module, memo).cpu().eval()
    except Exception as error:
        raise WorkloadError(f"{name} cannot be copied ({error}). Build it in a %%ngbench cell instead.") from error
    for part in duplicate.modules():
        if isinstance(part, torch.jit.ScriptModule):  # a copy of these has plain tensors, which export refuses
            for key, parameter in list(part.named_parameters(recurse=False)):
                setattr(part, key, torch.nn.Parameter(parameter.detach(), requires_grad=False))
    return duplicate


def _check_batch_size(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise WorkloadError(f"invalid batch size: got {size!r}; expected an integer >= 1.")
    return size


def _store(path: Path, artifacts: dict[str, Path]) -> str:
    """Move a file into the client's store, register it in `artifacts`, and return its hash."""
    store = Store(options.get_state_dir() / options.LAYOUT.artifacts)
    digest = store.move(path)
    artifacts[digest] = store.locate(digest)
    return digest


def _write_program(name: str, network: Network, batch_size: int | None, path: Path) -> Path:
    import torch

    assert network.module is not None
    arrays = feeds.draw(network.inputs, network.examples, batch_size or 2, 0)
    shapes = None if batch_size else export.build_dynamic_shapes(network.module, network.inputs)
    try:
        tensors = tuple(map(export.to_tensor, arrays))
        program = torch.export.export(network.module, tensors, dynamic_shapes=shapes)
    except Exception as error:
        reason = describe_refusal(error)
        hint = "" if batch_size else " If only its batch cannot be dynamic, name the sizes: batch_sizes=(1, 8)."
        raise WorkloadError(f"torch cannot export {name}: {reason}.{hint}") from error
    _strip(program)
    torch.export.save(program, path)
    _reject_code(path)
    return path


def _strip(program: torch.export.ExportedProgram) -> None:
    """Remove the example inputs, which an archive would pickle, and the paths of the code on this machine."""
    program.example_inputs = None
    export.replace_traced(program)
    for graph in program.graph_module.modules():
        for node in graph.graph.nodes if hasattr(graph, "graph") else ():
            node.meta.pop("stack_trace", None)


def _write_onnx(network: Network, folder: Path, artifacts: dict[str, Path]) -> str | None:
    path = folder / "program.onnx"
    try:
        export.export(network, path, seed=0)
    except UnsupportedError:
        return None  # if a compiler needs the ONNX, the device tries again and records the reason
    if len(list(folder.glob("program.onnx*"))) > 1:
        return None  # too large for one file: cheaper to export on the device than to send twice
    return _store(path, artifacts)


def _load_program(path: Path) -> torch.nn.Module:
    import torch

    _reject_code(path)
    with path.open("rb") as stream:
        try:
            return _strip_assertions(torch.export.load(stream).module(check_guards=False))
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise WorkloadError(
                f"torch {torch.__version__} cannot load this exported program: {reason}. "
                "Export and run it with the same version of torch."
            ) from error


def _strip_assertions(program: torch.fx.GraphModule) -> torch.nn.Module:
    """Remove export's own assertions and hooks, to time the user's network alone and to let it be traced."""
    import torch

    # torch.jit.trace supports tensor.size() but no symbolic integers; double() would violate the assertions on dtypes.
    aten, graph = torch.ops.aten, program.graph
    checks = {aten._assert_tensor_metadata.default, aten._assert_scalar.default}
    for node in list(graph.nodes):
        if node.target in checks:
            graph.erase_node(node)
        elif node.target is aten.sym_size.int:
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.call_method("size", node.args))
            graph.erase_node(node)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(program, graph).eval()


def _dispatch_by_batch(programs: Mapping[str, torch.nn.Module], specs: Sequence[TensorSpec]) -> torch.nn.Module:
    import torch

    batched = ((place, spec.batch_axis) for place, spec in enumerate(specs) if spec.batch_axis is not None)
    position, axis = next(batched, (0, 0))

    class ByBatch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.programs = torch.nn.ModuleDict(programs)

        def forward(self, *tensors: torch.Tensor) -> Any:
            size = str(int(tensors[position].shape[axis]))
            if size not in self.programs:
                raise UnsupportedError(
                    f"invalid batch size of this module: got {size}; expected {' or '.join(programs)}. "
                    f"Add {size} to from_module(…, batch_sizes=…)."
                )
            return self.programs[size](*tensors)

    return ByBatch().eval() if len(programs) > 1 else next(iter(programs.values()))


def _reject_code(path: Path) -> None:
    """Raise `WorkloadError` unless an archive contains only raw tensor bytes and JSON that runs nothing."""
    try:
        with zipfile.ZipFile(path) as archive:
            pickles = [name for member in archive.infolist() for name in _find_pickles(archive, member)]
    except (zipfile.BadZipFile, ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise WorkloadError(f"{path.name} is not an exported program, or damaged: {error}. Export it again.") from None
    if pickles:
        raise WorkloadError(
            f"the exported program would need pickle, for {', '.join(pickles)}, and ngbkit loads none. "
            "Use plain tensors and no script objects, or build the module in a %%ngbench cell."
        )


def _find_pickles(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Sequence[str]:
    inner = member.filename.partition("/")[2]
    if inner.startswith("data/sample_inputs/"):
        return ["example inputs"] if member.file_size else []
    if inner.endswith("_config.json"):
        payloads = json.loads(archive.read(member))["config"]
        return [key for key, payload in payloads.items() if payload["use_pickle"] or not _is_raw(payload["path_name"])]
    if inner.startswith("models/") and inner.endswith(".json"):
        json.loads(archive.read(member), object_hook=_check_texts)
        return []
    is_plain = inner in _MARKS or inner.startswith(".data/") or _is_raw(inner.rpartition("/")[2])
    return [] if is_plain else [inner]


def _check_texts(part: dict[str, Any]) -> None:
    """Raise ValueError for a size, or a name of an argument, that torch would run as code."""
    names = part.get("forward_arg_names") or []
    codes = [name for name in names if not name.isidentifier() or keyword.iskeyword(name)]
    codes += [part["expr_str"]] if _SIZE.sub("", part.get("expr_str", "")) else []
    if codes:
        raise ValueError(f"it contains code where a size or a name is expected, {str(codes[0])[:60]!r}")


def _is_raw(name: str) -> bool:
    return re.fullmatch(r"(weight|tensor)_\d+", name) is not None
