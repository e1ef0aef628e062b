"""Quantised graphs of a preparation: an ONNX file at a batch size in another precision, with its recipe, written once.

batch-4.quantised-KEY.onnx      the graph, or the file of the quantiser's own format
batch-4.quantised-KEY.json      the recipe, its duration, and the size of the graph
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import registry
from ngbkit.compilers.quantiser import Quantisation, Quantiser
from ngbkit.device import preparation
from ngbkit.files import write_atomically
from ngbkit.registry import find_version
from ngbkit.workloads import samples
from ngbkit.workloads.base import TensorSpec, Workload, hash_json


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


def build_recipe(quantiser: Quantiser, workload: Workload, seed: int, accelerator: str = "cpu") -> dict[str, Any]:
    """Build the recipe: the method, the samples and the versions of the tools, and the accelerator, if it is no CPU."""
    place = {"accelerator": accelerator.partition(":")[0]} if accelerator != "cpu" else {}
    calibration = {"calibration": workload.calibration, "seed": seed} if quantiser.calibrates else {}
    return {
        "quantiser": quantiser.name,
        **calibration,
        **place,
        "versions": {package: find_version(package) for package in quantiser.packages},
    }


def read(folder: Path, batch_size: int, recipe: Mapping[str, Any]) -> QuantisedGraph | None:
    """Read the record of a quantised graph; None if it has not been written."""
    try:
        return QuantisedGraph(**json.loads(_locate(folder, batch_size, recipe).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def quantise(message: Mapping[str, Any]) -> dict[str, Any]:
    """Quantise the ONNX file of a message, in a child, and return the record of the graph."""
    quantiser: Quantiser = registry.load(registry.QUANTISERS, message["quantiser"])
    record = _locate(Path(message["folder"]), message["batch_size"], message["recipe"])
    target = record.with_suffix(quantiser.suffix)
    inputs = [TensorSpec.from_json(spec) for spec in message["inputs"]]
    batches: list[dict[str, np.ndarray]] = []
    if quantiser.calibrates:
        workload = preparation.read_workload(message)
        examples = preparation.read_arrays(message["examples"])
        calibrating = samples.calibrate(workload, inputs, examples, message["seed"])
        names = [spec.name for spec in inputs]
        batches = [dict(zip(names, arrays, strict=True)) for arrays in calibrating.batches(message["batch_size"])]
    start = time.perf_counter()
    settings = quantiser.quantise(
        Quantisation(
            source=Path(message["onnx"]),
            target=target,
            batches=batches,
            threads=message["threads"],
            accelerator=message["accelerator"].partition(":")[0],
        )
    )
    seconds = time.perf_counter() - start
    graph = QuantisedGraph(
        path=str(target),
        recipe={**message["recipe"], **settings, "batches": len(batches)},
        seconds=seconds,
        file_bytes=sum(file.stat().st_size for file in target.parent.glob(f"{target.stem}.*") if file != record),
    )
    with write_atomically(record) as temporary:
        temporary.write_text(json.dumps(asdict(graph)))
    return asdict(graph)


def _locate(folder: Path, batch_size: int, recipe: Mapping[str, Any]) -> Path:
    return folder / f"batch-{batch_size}.quantised-{hash_json(recipe)[:12]}.json"
