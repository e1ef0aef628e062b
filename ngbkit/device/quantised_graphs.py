"""Quantised networks of a preparation: a file for a batch size in another precision, with its recipe, written once.

batch-4.quantised-KEY.onnx      the ONNX file, or one of the quantiser's own format
batch-4.quantised-KEY.json      the recipe, its duration, and the size of the graph
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ngbkit import options, registry
from ngbkit.compilers.quantiser import Quantisation, Quantiser
from ngbkit.device import preparation
from ngbkit.files import write_atomically
from ngbkit.registry import find_version
from ngbkit.user_text import parse_json
from ngbkit.workloads import building, feeds, samples
from ngbkit.workloads.base import Network, TensorSpec, Workload, hash_json

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedGraph:
    """A quantised graph, the recipe by which it can be made again, and the seconds that it took."""

    path: str
    recipe: Mapping[str, Any]
    seconds: float
    file_bytes: int

    def to_facts(self) -> dict[str, Any]:
        """Return the facts of a trial that runs it."""
        return {"quantised": dict(self.recipe), "quantise_time_s": self.seconds, "file_bytes": self.file_bytes}


def build_recipe(
    quantiser: Quantiser, workload: Workload, seed: int, accelerator: str = "cpu", source: str = ""
) -> dict[str, Any]:
    """Build the recipe: the method and its code, the samples, the versions, a GPU, and the name of the ONNX file."""
    place = {"accelerator": accelerator.partition(":")[0]} if accelerator != "cpu" else {}
    calibration: dict[str, Any] = {}
    if quantiser.calibrates:
        transform = samples.read_transform(workload)
        calibration = {"calibration": workload.calibration, "seed": seed}
        calibration |= {"pictures": transform} if transform else {}
    return {
        "quantiser": quantiser.name,
        "code": _hash_code(quantiser),
        **calibration,
        **place,
        **({"source": source} if source else {}),
        "versions": {package: find_version(package) for package in quantiser.packages},
    }


def _hash_code(quantiser: Quantiser) -> str:
    """Hash the modules beside the one that quantises, which choose its settings."""
    function = getattr(quantiser.quantise, "func", quantiser.quantise)
    files = sorted(Path(inspect.getfile(function)).parent.glob("*.py"))
    return hash_json([file.read_text() for file in files])[:12]


def load_module(name: str, path: str, module: torch.nn.Module) -> torch.nn.Module:
    """Load the module of a quantised file, by the quantiser of that name."""
    quantiser: Quantiser = registry.load(registry.QUANTISERS, name)
    assert quantiser.load is not None
    return quantiser.load(Path(path), module)


def read(folder: Path, batch_size: int, recipe: Mapping[str, Any]) -> QuantisedGraph | None:
    """Read the record of a quantised graph; None if it has not been written."""
    try:
        return QuantisedGraph(**parse_json(_locate(folder, batch_size, recipe).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def quantise(message: Mapping[str, Any]) -> dict[str, Any]:
    """Quantise the network of a message, in a child, and return the record of the graph."""
    quantiser: Quantiser = registry.load(registry.QUANTISERS, message["quantiser"])
    record = _locate(Path(message["folder"]), message["batch_size"], message["recipe"])
    target = record.with_suffix(quantiser.suffix)
    workload = preparation.read_workload(message)
    network = _build_module(workload, message) if quantiser.form == "module" else None
    inputs = network.inputs if network else [TensorSpec.from_json(spec) for spec in message["inputs"]]
    examples = network.examples if network else preparation.read_arrays(message["examples"])
    arrays = [feeds.draw(inputs, examples, message["batch_size"], message["seed"])]
    if quantiser.calibrates:
        calibrating = samples.calibrate(workload, inputs, examples, message["seed"])
        arrays = list(calibrating.batches(message["batch_size"]))
    names = [spec.name for spec in inputs]
    start = time.perf_counter()
    settings = quantiser.quantise(
        Quantisation(
            source=None if network else Path(message["onnx"]),
            module=network.module if network else None,
            target=target,
            batches=[dict(zip(names, batch, strict=True)) for batch in arrays],
            threads=message["threads"],
            accelerator=message["accelerator"].partition(":")[0],
        )
    )
    seconds = time.perf_counter() - start
    graph = QuantisedGraph(
        path=str(target),
        recipe={**message["recipe"], **settings, "batches": len(arrays) * quantiser.calibrates},
        seconds=seconds,
        file_bytes=sum(file.stat().st_size for file in target.parent.glob(f"{target.stem}.*") if file != record),
    )
    with write_atomically(record) as temporary:
        temporary.write_text(json.dumps(asdict(graph)))
    return asdict(graph)


def _build_module(workload: Workload, message: Mapping[str, Any]) -> Network:
    import torch

    torch.set_num_threads(message["threads"])
    with options.set_options(seed=message["seed"]):
        return building.build(workload, message["factors"])


def _locate(folder: Path, batch_size: int, recipe: Mapping[str, Any]) -> Path:
    return folder / f"batch-{batch_size}.quantised-{hash_json(recipe)[:12]}.json"
