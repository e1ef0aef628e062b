"""Networks of a single operator each, taken from other networks; `labels.py` measures them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from ngbkit.predict import onnx_graphs
from ngbkit.predict.features import list_priced
from ngbkit.predict.optimizer.editing import open_model
from ngbkit.workloads import onnx
from ngbkit.workloads.base import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place of an operator: the file of a network and a node of its opened model; with the criteria of choice."""

    file: Path
    node: str
    digest: str
    priced: tuple[str, ...]
    bytes: int


def extract_operators(model: ir.Model, directory: Path, measured: set[str]) -> Iterator[Workload]:
    """Yield each operator of an opened model that is not in `measured` as a network of its own, and add it there."""
    digests = {operator.name: operator.digest for operator in onnx_graphs.annotate(model.clone().graph).operators}
    for node in model.graph:
        digest = digests.get(node.name or "")
        if digest is not None and digest not in measured and is_plain(node):
            measured.add(digest)
            yield save_single(node, digest, model, directory)


def choose_places(files: Iterable[Path], each: int, measured: set[str]) -> list[Place]:
    """Choose operators of networks so that `each` of all that has a price is there, from small to large.

    Operators in `measured` count as chosen before. Rare prices come first, since their operators have others, too.
    """
    places = {place.digest: place for file in files for place in _list_places(file)}
    by_price: dict[str, list[Place]] = {}
    for place in places.values():
        for name in place.priced:
            by_price.setdefault(name, []).append(place)
    chosen: dict[str, Place] = {}
    for candidates in sorted(by_price.values(), key=len):
        count_chosen = sum(place.digest in chosen or place.digest in measured for place in candidates)
        rest = [place for place in candidates if place.digest not in chosen and place.digest not in measured]
        rest.sort(key=lambda place: (place.bytes, place.digest))
        count = min(max(each - count_chosen, 0), len(rest))
        indices = np.unique(np.linspace(0, len(rest) - 1, count).round().astype(int))
        chosen |= {rest[index].digest: rest[index] for index in indices}
    return list(chosen.values())


def extract_places(places: Iterable[Place], directory: Path) -> Iterator[Workload]:
    """Yield the operators at these places, each as a network of its own."""
    by_file: dict[Path, list[Place]] = {}
    for place in places:
        by_file.setdefault(place.file, []).append(place)
    for file, members in by_file.items():
        model = open_model(ir.load(file))
        nodes = {node.name: node for node in model.graph}
        for place in members:
            yield save_single(nodes[place.node], place.digest, model, directory)


def _list_places(file: Path) -> Iterator[Place]:
    model = open_model(ir.load(file))
    operators = {operator.name: operator for operator in onnx_graphs.annotate(model.clone().graph).operators}
    for node in model.graph:
        operator = operators.get(node.name or "")
        if operator is not None and is_plain(node):
            priced = tuple(list_priced(operator))
            yield Place(file=file, node=operator.name, digest=operator.digest, priced=priced, bytes=operator.bytes)


def is_plain(node: ir.Node) -> bool:
    """Return whether all values of a node are images, tokens or vectors of floats, of known shapes."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    flowing = [value for value in values if value.const_value is None]
    shaped = all(value.shape is not None and all(isinstance(side, int) for side in value.shape) for value in values)
    return shaped and all(value.dtype == ir.DataType.FLOAT and value.shape for value in flowing)


def save_single(node: ir.Node, digest: str, model: ir.Model, directory: Path) -> Workload:
    """Save an operator as a model of its own, named by its digest."""
    inputs = [value for value in dict.fromkeys(node.inputs) if value is not None and value.const_value is None]
    file = directory / f"operator-{digest}.onnx"
    ir.save(ir.Model(ir.convenience.extract(model.graph, inputs, node.outputs), ir_version=model.ir_version), file)
    return onnx.file(file, name=f"operator-{digest}")
