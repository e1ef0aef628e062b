"""The task that the message of a trial describes: the network in its form, its inputs, and what compiles it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ngbkit import options
from ngbkit.compilers.base import GRAPH, Compiler, Task, Tuning, TuningProgress
from ngbkit.device import preparation, quantised_graphs
from ngbkit.device.isolation.channel import Message
from ngbkit.errors import UsageError
from ngbkit.hardware.accelerators import cuda
from ngbkit.sweep.column import Column
from ngbkit.workloads import building, feeds
from ngbkit.workloads.base import TensorSpec
from ngbkit.workloads.precision import PRECISION


def build_task(message: Message, compiler: Compiler, column: Column, report: Callable[[Message], None]) -> Task:
    """Build the task of a trial."""
    module, onnx = None, None
    quantised: Message | None = message["quantised"]
    if message["form"] == "module":
        workload = preparation.read_workload(message)
        with options.set_options(seed=message["seed"]):
            network = building.build(workload, message["factors"])
        module, inputs, examples = network.module, network.inputs, network.examples
        if quantised is not None and module is not None:
            module = quantised_graphs.load_module(quantised["quantiser"], quantised["path"], module)
    else:
        onnx = Path(quantised["path"] if quantised else message["onnx"])
        if column.options.get(GRAPH):
            onnx = _link_graph(onnx, str(column.options[GRAPH]), preparation.build_locator(message["artifacts"]))
        inputs = [TensorSpec.from_json(spec) for spec in message["inputs"]]
        examples = preparation.read_arrays(message["examples"])
    # Both are networks that the compiler gets in place of the network itself.
    replaced = (GRAPH, *([PRECISION] if quantised else []))
    cache, accelerator = Path(message["cache"]), message["accelerator"].partition(":")[0]
    if accelerator == "cuda":
        cuda.set_cache(cache / "cuda")
    return Task(
        form=message["form"],
        module=module,
        onnx=onnx,
        inputs=tuple(inputs),
        arrays=tuple(feeds.draw(inputs, examples, message["batch_size"], message["seed"])),
        batch_size=message["batch_size"],
        options=compiler.settle({name: value for name, value in column.settings.items() if name not in replaced}),
        threads=message["threads"],
        cache=cache,
        tuning=_build_tuning(message["tuning"], report),
        accelerator=accelerator,
        precision=message["precision"],
    )


def _link_graph(onnx: Path, digest: str, locate: Callable[[str], Path]) -> Path:
    """Link an artifact beside the network's own file, under a name whose suffix runtimes recognise."""
    artifact = locate(digest)
    if not artifact.exists():
        raise UsageError(f"{GRAPH}={digest!r} is no artifact of this workload: add the file to its artifacts.")
    link = onnx.with_name(f"graph-{digest}.onnx")
    with contextlib.suppress(FileExistsError):
        link.symlink_to(artifact)
    return link


def _build_tuning(message: Message, report: Callable[[Message], None]) -> Tuning:
    def report_progress(progress: TuningProgress) -> None:
        report({"progress": asdict(progress)})

    return Tuning(folder=Path(message["folder"]), seconds=message["seconds"], report=report_progress)
