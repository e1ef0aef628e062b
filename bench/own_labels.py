"""Writes the table and the networks of the gallery on labels: cells of NAS-Bench-201, as a table from elsewhere.

The latencies are those of ``notebooks/data/labels.nc``, with the errors of their means over several runs. The files
have the operators and shapes that ran, and constants in place of weights, so that fifty networks fit in a repository:
``python bench/own_labels.py``.
"""

from __future__ import annotations

import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from generate import build_nasbench201
from onnx import helper, numpy_helper

from ngbkit import predictor
from ngbkit.predictor.network_graphs import export_network

DATA = Path(__file__).parents[1] / "notebooks" / "data"
NETWORKS = DATA / "networks"
COLUMN = ("cpu", "onnxruntime")
FAMILY = "nasbench"
MOST = 60


def main() -> None:
    """Write a file per network, and a row per file."""
    labels = predictor.load_examples(DATA / "labels.nc")
    column = labels.runtimes.index(COLUMN)
    assert labels.errors is not None
    usable = np.isfinite(labels.seconds[:, column]) & np.isfinite(labels.errors[:, column])
    chosen = [
        index
        for index in np.flatnonzero(usable).tolist()
        if labels.families[index] == FAMILY and not labels.rules[index]
    ][:MOST]
    NETWORKS.mkdir(exist_ok=True)
    rows = []
    for number, index in enumerate(chosen):
        file = NETWORKS / f"{number:02d}.onnx"
        write_network(labels.parents[index], file)
        digest = predictor.read(file).digest
        assert digest == labels.graphs[index].digest, labels.names[index]
        error = 100 * float(np.expm1(labels.errors[index, column]))
        rows.append([f"{NETWORKS.name}/{file.name}", f"{1e3 * labels.seconds[index, column]:.4f}", f"{error:.1f}"])
    with (DATA / "labels.csv").open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["file", "milliseconds", "error_percent"])
        writer.writerows(rows)
    size = sum(file.stat().st_size for file in NETWORKS.iterdir())
    print(f"{len(rows)} networks, {size / 1e3:.0f} kB")


def write_network(name: str, path: Path) -> None:
    """Export a cell, such as ``nasbench-012340-16x1-32``, with constants in place of weights and short names."""
    _, cell, stack, size = name.split("-")
    channels, cells = stack.split("x")
    workload = build_nasbench201(
        [int(digit) for digit in cell], channels=int(channels), cells=int(cells), size=int(size)
    )
    with TemporaryDirectory() as folder:
        model = onnx.load(export_network(workload, 1, Path(folder)))
    shrink(model)
    onnx.checker.check_model(model)
    onnx.save(model, path)


def shrink(model: Any) -> None:
    """Replace each large constant by an operator that fills its shape, and remove what no reader needs."""
    graph = model.graph
    fills = []
    for tensor in list(graph.initializer):
        if np.prod(tensor.dims) > 16 and tensor.data_type == onnx.TensorProto.FLOAT:
            graph.initializer.remove(tensor)
            graph.initializer.append(numpy_helper.from_array(np.array(tensor.dims, np.int64), f"{tensor.name}_shape"))
            value = helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [0.01])
            fills.append(helper.make_node("ConstantOfShape", [f"{tensor.name}_shape"], [tensor.name], value=value))
    nodes = [*fills, *graph.node]
    names: dict[str, str] = {value.name: value.name for value in (*graph.input, *graph.output)} | {"": ""}
    for node in nodes:
        node.name = node.doc_string = ""
        del node.metadata_props[:]
        for values in (node.input, node.output):
            values[:] = [names.setdefault(value, f"v{len(names)}") for value in values]
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:], graph.metadata_props[:], model.metadata_props[:]
    model.doc_string = graph.doc_string = ""


if __name__ == "__main__":
    main()
