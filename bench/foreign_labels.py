"""Builds two sets of labels that others measured, from clones of the repositories that publish them.

    cells   300 networks of NAS-Bench-201 on six devices, of the repository of HELP (Lee, Lee, Chong and Hwang,
            NeurIPS 2021): ``--cells path/of/HELP``
    timm    networks of timm on two CPUs under inductor and two GPUs, of its own benchmarks:
            ``--timm path/of/pytorch-image-models``

The sets stay out of this repository: they are written to ``results/foreign``. Networks of timm are exported, once,
which takes some ten minutes; a second call resumes.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from generate import CELL, _is_connected
from onnx import TensorProto, helper

from ngbkit import predictor
from ngbkit.errors import NgbkitError
from ngbkit.predictor.network_graphs import graph
from ngbkit.workloads import timm as zoo

OUT = Path("results/foreign")
DEVICES = {
    **{"gold_6226": ("xeon", "pytorch"), "titan_rtx_1": ("titan", "pytorch"), "raspi4": ("pi", "tflite")},
    **{"pixel3": ("phone", "tflite"), "eyeriss": ("eyeriss", "model"), "fpga": ("fpga", "model")},
}
TABLES = {
    "results/benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv": ("i9", "inductor"),
    "results/benchmark-infer-fp32-nchw-pt240-cpu-i7_12700h-dynamo.csv": ("i7", "inductor"),
    "results/benchmark-infer-amp-nchw-pt240-cu124-rtx4090.csv": ("rtx4090", "pytorch"),
    "results/benchmark-infer-amp-nchw-pt240-cu124-rtx3090.csv": ("rtx3090", "pytorch"),
}
EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, help="a clone of HELP")
    parser.add_argument("--timm", type=Path, help="a clone of pytorch-image-models")
    parser.add_argument("--networks", type=int, default=300, help="the most networks of each set (default: 300)")
    parser.add_argument("--each", type=int, default=6, help="the most networks of a family of timm (default: 6)")
    parser.add_argument("--gmacs", type=float, default=6.0, help="the largest network of timm (default: 6)")
    args = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    if args.cells:
        build_cells(args.cells, args.networks)
    if args.timm:
        build_zoo(args.timm, args.networks, args.each, args.gmacs)


def show(repository: Path, file: str) -> bytes:
    """Return a file of the last commit of a clone, with or without a work tree."""
    return subprocess.run(["git", "-C", repository, "show", f"HEAD:{file}"], check=True, capture_output=True).stdout


def build_cells(repository: Path, count: int) -> None:
    """Write the labels of random cells, with the operators of no effect and without: `cells-dead.nc` and `cells.nc`."""
    import torch

    def load(name: str) -> Any:
        return torch.load(io.BytesIO(show(repository, f"data/nasbench201/{name}.pt")), weights_only=True)

    indices = load("str_arch2idx")
    columns = {runtime: np.asarray(load(f"latency/{file}"), float).ravel() for file, runtime in DEVICES.items()}
    generator = np.random.default_rng(0)
    chosen: dict[str, tuple[int, ...]] = {}
    names = sorted(indices)
    for number in generator.permutation(len(names)).tolist():
        cell = tuple(CELL.index(part.partition("~")[0]) for part in names[number].replace("|+|", "|").split("|")[1:-1])
        if _is_connected(cell) and len(chosen) < count:
            chosen[names[number]] = cell
    seconds = np.stack([column[[indices[name] for name in chosen]] for column in columns.values()], axis=1) * 1e-3
    seconds[~(seconds > 0)] = np.nan
    for keep_dead in (False, True):
        with TemporaryDirectory() as folder:
            path = Path(folder) / "cell.onnx"
            graphs = []
            for cell in chosen.values():
                onnx.save(build_model(cell), path)
                graphs.append(predictor.read(path, keep_dead=keep_dead))
        labels = predictor.examples(
            graphs,
            seconds,
            runtime=list(columns),
            name=["".join(map(str, cell)) for cell in chosen.values()],
            family=["+".join(CELL[kind] for kind in sorted({*cell} - {0})) for cell in chosen.values()],
        )
        print(labels, labels.save(OUT / f"cells{'-dead' if keep_dead else ''}.nc"), flush=True)


class Model:
    """The nodes and the weights of a network, one after the other."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def add(self, kind: str, *values: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(values), [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def conv(self, value: str, inputs: int, outputs: int, kernel: int, stride: int = 1) -> str:
        name = f"w{len(self.weights)}"
        shape = [outputs, inputs, kernel, kernel]
        self.weights.append(
            helper.make_tensor(name, TensorProto.FLOAT, shape, bytes(4 * int(np.prod(shape))), raw=True)
        )
        sides = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "strides": [stride] * 2}
        return self.add("Conv", value, name, **sides)


def build_model(cell: tuple[int, ...], channels: int = 16, cells: int = 5) -> Any:
    """Build a network of NAS-Bench-201 whose normalisations are folded; edges of `none` are absent."""
    model = Model()
    value = model.conv("x", 3, channels, 3)
    for stage in range(3):
        width = channels << stage
        if stage:
            first = model.conv(model.add("Relu", value), width // 2, width, 3, 2)
            pooled = model.add("AveragePool", value, kernel_shape=[2, 2], strides=[2, 2])
            second = model.conv(model.add("Relu", first), width, width, 3)
            value = model.add("Add", second, model.conv(pooled, width // 2, width, 1))
        for _ in range(cells):
            value = add_cell(model, value, cell, width)
    value = model.add("Flatten", model.add("GlobalAveragePool", model.add("Relu", value)))
    model.weights.append(
        helper.make_tensor("head", TensorProto.FLOAT, [4 * channels, 10], bytes(160 * channels), raw=True)
    )
    value = model.add("MatMul", value, "head")
    image, classes = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 32, 32]), (value, [1, 10]))
    )
    network = helper.make_graph(model.nodes, "cell", [image], [classes], model.weights)
    return helper.make_model(network, opset_imports=[helper.make_opsetid("", 17)])


def add_cell(model: Model, value: str, cell: tuple[int, ...], width: int) -> str:
    nodes = {0: value}
    for node in (1, 2, 3):
        terms = []
        for (start, end), kind in zip(EDGES, cell, strict=True):
            if end != node or start not in nodes or CELL[kind] == "none":
                continue
            if CELL[kind] == "skip_connect":
                terms.append(nodes[start])
            elif CELL[kind] == "avg_pool_3x3":
                pads = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1]}
                terms.append(model.add("AveragePool", nodes[start], **pads))
            else:
                kernel = 1 if CELL[kind] == "nor_conv_1x1" else 3
                terms.append(model.conv(model.add("Relu", nodes[start]), width, width, kernel))
        for term in terms:
            nodes[node] = term if node not in nodes else model.add("Add", nodes[node], term)
    return nodes[3]


def build_zoo(repository: Path, count: int, each: int, gmacs: float) -> None:
    """Write the labels of networks of timm at their own resolution: some of each module of timm, in random order."""
    import timm

    tables = {
        runtime: {row["model"]: row for row in csv.DictReader(io.StringIO(show(repository, file).decode()))}
        for file, runtime in TABLES.items()
    }
    rows, *others = tables.values()
    generator = np.random.default_rng(0)
    members: dict[str, list[str]] = {}
    for name in generator.permutation(sorted(rows)).tolist():
        row = rows[name]
        if not timm.is_model(name) or name.startswith("test_") or float(row["infer_gmacs"] or 99) > gmacs:
            continue
        size = timm.get_pretrained_cfg(name)
        if (
            size is None
            or size.input_size[-1] != int(row["infer_img_size"])
            or not all(name in table for table in others)
        ):
            continue
        family = timm.model_entrypoint(name).__module__.rpartition(".")[2]
        if len(members.setdefault(family, [])) < each:
            members[family].append(name)
    names = [names[turn] for turn in range(each) for names in members.values() if turn < len(names)]
    graphs: dict[str, Any] = {}
    for name in names:
        try:
            graphs[name] = graph(zoo.model(name))
            print(len(graphs), name, flush=True)
        except (NgbkitError, RuntimeError) as error:
            print(f"{name}: left out, {str(error)[:80]}", flush=True)
            continue
        if len(graphs) % 20 == 0 or len(graphs) == count:
            save_zoo(graphs, tables, members)
        if len(graphs) == count:
            break


def save_zoo(
    graphs: dict[str, Any], tables: dict[tuple[str, str], dict[str, Any]], members: dict[str, list[str]]
) -> None:
    families = {name: family for family, names in members.items() for name in names}
    # Of the GPUs, a sample's share of a large batch.
    seconds = [[1 / float(table[name]["infer_samples_per_sec"]) for table in tables.values()] for name in graphs]
    labels = predictor.examples(
        list(graphs.values()),
        np.array(seconds),
        runtime=list(tables),
        name=list(graphs),
        family=[families[name] for name in graphs],
    )
    print(labels, labels.save(OUT / "timm.nc"), flush=True)


if __name__ == "__main__":
    main()
