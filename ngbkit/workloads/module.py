"""Live modules of a notebook: exported where they live, travelling as programs and ONNX, and never as pickles.

What travels is torch.export's archive: a zip of the graph as JSON and of raw tensor bytes. That format has three
places for a pickle (example inputs, tensors of a subclass, script objects), and `torch.export.load` runs whatever is in
them. So none of them is written, and an archive with anything in one of them is refused before torch sees it.
"""

from __future__ import annotations

import copy
import json
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options
from ngbkit.errors import UnsupportedError, WorkloadError
from ngbkit.workloads import export, feeds, files, inputs
from ngbkit.workloads.base import Factors, Network, Source, TensorSpec, Workload
from ngbkit.workloads.randomise import randomise, run

if TYPE_CHECKING:
    import torch

_ANY = "any"
_MARKS = ("archive_format", "archive_version", "byteorder")


def from_module(
    name: str, module: torch.nn.Module, example_inputs: Any, *, batch_sizes: Iterable[int] | None = None
) -> Workload:
    """A module object as a workload, whatever cell its class was typed in. The module itself is left as it is.

    A copy in ``eval()`` is exported; what its initialisation left blank is re-drawn from the option `seed`.

    Parameters
    ----------
    name
        Its label.
    module
        Trained or not.
    example_inputs
        A tensor with a leading batch dimension, a tuple or list of these, or a dict of them by argument. Their rows are
        what the network will be fed.
    batch_sizes
        None exports one program for every batch size. Where the module cannot be exported so, name the batch sizes that
        the sweep needs: one program each.

    Raises
    ------
    WorkloadError
        It is no module, the inputs do not fit it, or torch cannot export it.

    Examples
    --------
    >>> import torch
    >>> from_module("line", torch.nn.Linear(4, 2), torch.randn(1, 4)).source
    'module'
    """
    network = _prepare(name, module, example_inputs)
    sizes: list[int | None] = [None] if batch_sizes is None else [_batch_size(size) for size in batch_sizes]
    artifacts: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(dir=files.store().parent) as folder:
        programs = {
            str(size or _ANY): _kept(_write(name, network, size, Path(folder) / "program.pt2"), artifacts)
            for size in sizes
        }
        spec = {
            "programs": programs,
            "onnx": _write_onnx(network, Path(folder), artifacts) if batch_sizes is None else None,
            "examples": _kept(_write_examples(network, Path(folder) / "examples.npz"), artifacts),
            "inputs": [one.to_json() for one in network.inputs],
        }
    return Workload(name=name, source="module", spec=spec, artifacts=artifacts)


def build(workload: Workload, factors: Factors) -> Network:  # noqa: ARG001  a program varies no factor
    """The exported program as a module, and its ONNX file where there is one."""
    import numpy as np

    spec, places = workload.spec, workload.artifacts
    specs = [TensorSpec.from_json(one) for one in spec["inputs"]]
    programs = {size: _read(places[digest]) for size, digest in spec["programs"].items()}
    with np.load(places[spec["examples"]], allow_pickle=False) as rows:
        examples = {one.name: rows[f"arr_{index}"] for index, one in enumerate(specs)}
    sizes = [int(size) for size in programs if size != _ANY]
    return Network(
        inputs=specs,
        module=programs[_ANY] if not sizes else _by_batch(programs),
        onnx=places[spec["onnx"]] if spec["onnx"] else None,
        batch_size=sizes[0] if len(sizes) == 1 else None,
        examples=examples,
        baseline="torch eager (exported program)",
    )


def parse(text: str) -> Workload | None:  # noqa: ARG001  the form of every source
    """None: a live module has no name on a command line."""
    return None


def complete(prefix: str) -> Iterator[str]:  # noqa: ARG001  the form of every source
    """Nothing."""
    return iter(())


SOURCE = Source(
    name="module",
    summary="live modules of a notebook, by ngbkit.from_module",
    build=build,
    parse=parse,
    complete=complete,
)


def _prepare(name: str, module: Any, example_inputs: Any) -> Network:
    import torch

    if not isinstance(module, torch.nn.Module):
        raise WorkloadError(f"{name} is a {type(module).__name__}; valid is a torch.nn.Module.")
    try:
        own = copy.deepcopy(module).cpu().eval()
    except Exception as error:
        raise WorkloadError(f"{name} cannot be copied ({error}). Build it in a %%ngbench cell instead.") from error
    specs, examples = inputs.from_values(example_inputs, own)
    keywords = [one.name for one in specs] if isinstance(example_inputs, Mapping) else None
    flat = inputs.in_order(own, keywords)
    sample = [examples[one.name] for one in specs]
    inputs.try_out(name, flat, specs, sample)
    randomise(own, options.get_options()["seed"], lambda: run(flat, sample))
    return Network(inputs=specs, module=flat, examples=examples)


def _batch_size(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise WorkloadError(f"batch size {size!r} does not fit; valid is an integer from 1 up.")
    return size


def _kept(path: Path, artifacts: dict[str, Path]) -> str:
    digest, kept = files.keep(path)
    artifacts[digest] = kept
    return digest


def _write(name: str, network: Network, batch_size: int | None, path: Path) -> Path:
    import torch

    assert network.module is not None
    arrays = feeds.draw(network.inputs, network.examples, batch_size or 2, 0)
    shapes = None if batch_size else export.dynamic_batch(network.module, len(arrays))
    try:
        tensors = tuple(torch.from_numpy(array) for array in arrays)
        program = torch.export.export(network.module, tensors, dynamic_shapes=shapes)
    except Exception as error:
        reason = str(error).strip().partition("\n")[0]
        way_out = "" if batch_size else " Where only its batch is in the way, name the sizes: batch_sizes=(1, 8)."
        raise WorkloadError(f"torch cannot export {name}: {type(error).__name__}: {reason}.{way_out}") from error
    _forget(program)
    torch.export.save(program, path)
    _refuse_pickles(path)
    return path


def _forget(program: torch.export.ExportedProgram) -> None:
    """Drop what an archive would pickle, the example inputs, and what says where the code lay on this machine."""
    program.example_inputs = None
    for graph in program.graph_module.modules():
        for node in graph.graph.nodes if hasattr(graph, "graph") else ():
            node.meta.pop("stack_trace", None)


def _write_onnx(network: Network, folder: Path, artifacts: dict[str, Path]) -> str | None:
    path = folder / "program.onnx"
    try:
        export.export(network, path, seed=0)
    except UnsupportedError:
        return None  # the device will try again and record the reason, where a compiler needs the ONNX
    if len(list(folder.glob("program.onnx*"))) > 1:
        return None  # too large for one file: cheaper to export on the device than to carry twice
    return _kept(path, artifacts)


def _write_examples(network: Network, path: Path) -> Path:
    import numpy as np

    np.savez(path, *(network.examples[one.name] for one in network.inputs))
    return path


def _read(path: Path) -> torch.nn.Module:
    import torch

    _refuse_pickles(path)
    with path.open("rb") as stream:
        try:
            program = torch.export.load(stream)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            raise WorkloadError(
                f"torch {torch.__version__} does not read this exported program: {reason}. "
                "Export and run it with the same version of torch."
            ) from error
    return _plain(program.module(check_guards=False))


def _plain(program: torch.fx.GraphModule) -> torch.nn.Module:
    """The program without export's own assertions and hooks: what is timed is the user's network, and it can be traced.

    ``torch.jit.trace`` knows ``tensor.size()`` and no symbolic integers, and ``double()`` would trip the assertions on
    dtypes.
    """
    import torch

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


def _by_batch(programs: Mapping[str, torch.nn.Module]) -> torch.nn.Module:
    import torch

    class ByBatch(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.programs = torch.nn.ModuleDict(programs)

        def forward(self, *tensors: torch.Tensor) -> Any:
            size = str(int(tensors[0].shape[0]))
            if size not in self.programs:
                raise UnsupportedError(
                    f"this module was exported for batch size {', '.join(programs)}; {size} was asked. "
                    "Name it too in from_module(…, batch_sizes=…)."
                )
            return self.programs[size](*tensors)

    return ByBatch().eval() if len(programs) > 1 else next(iter(programs.values()))


def _refuse_pickles(path: Path) -> None:
    """Raise `WorkloadError` unless the archive holds nothing but JSON and raw tensor bytes."""
    try:
        with zipfile.ZipFile(path) as archive:
            found = [reason for one in archive.infolist() for reason in _suspicions(archive, one)]
    except (zipfile.BadZipFile, ValueError, KeyError) as error:
        raise WorkloadError(
            f"{path.name} is no exported program, or a damaged one: {error}. Export it again."
        ) from None
    if found:
        raise WorkloadError(
            f"the exported program would need pickle, for {', '.join(found)}, and ngbkit loads none. "
            "Keep to plain tensors and no script objects, or build the module in a %%ngbench cell."
        )


def _suspicions(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Sequence[str]:
    inner = member.filename.partition("/")[2]
    if inner.startswith("data/sample_inputs/"):
        return ["example inputs"] if member.file_size else []
    if inner.endswith("_config.json"):
        payloads = json.loads(archive.read(member))["config"]
        return [key for key, payload in payloads.items() if payload["use_pickle"] or not _is_raw(payload["path_name"])]
    known = inner in _MARKS or inner.startswith(".data/") or (inner.startswith("models/") and inner.endswith(".json"))
    return [] if known or _is_raw(inner.rpartition("/")[2]) else [inner]


def _is_raw(name: str) -> bool:
    return re.fullmatch(r"(weight|tensor)_\d+", name) is not None
