"""Measures the examples that predictors are fitted to: generated and rewritten networks on this machine's runtimes.

Run it on a quiet machine; it resumes after any interruption. It measures as many parts as fit into its minutes, and
writes notebooks/data/labels.nc: seconds and graphs, without weights. Two cores need some two hours for 120 networks
in three turns: 5 s for a network, 20 s for the variants of one, 26 s for its operators, 70 s for the slow compilers.

    plain       cells, stacks and networks of timm, on ONNX Runtime and OpenVINO
    slow        some of them on inductor and untuned TVM as well, which take much longer to compile
    variants    random rewritings of some of them, in turns with their originals
    operators   single operators of these
    kinds       single operators of all networks, so that some of each kind are there

The speed of a shared machine drifts from minute to minute. So the networks of a part take turns in the same rounds,
beside two anchors that are in every part; and networks and variants are measured in several runs (`--turns`), plain
networks among others each time: all parts once, then these again. `ngbkit.predict.collect` takes the drift between
runs from that, and how well each label is known.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from itertools import count as count_up
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from opposite_rules import ALL_RULES
from parts import measure
from plugin_path import put_on_path

from ngbkit import Sweep, predict, registry
from ngbkit.errors import NgbkitError
from ngbkit.files import hash_file
from ngbkit.predict import network_graphs, onnx_graphs
from ngbkit.predict.features import list_priced
from ngbkit.predict.labels.rows import VARIANTS
from ngbkit.predict.optimizer.editing import open_model
from ngbkit.workloads import counts, onnx, timm
from ngbkit.workloads.base import Source, Workload

put_on_path(Path(__file__).parent / "layers")
import generated  # noqa: E402  of the folder that was put on the path

ROOT = Path(__file__).parents[2]
OUT = ROOT / "notebooks" / "data" / "labels.nc"
FAST, SLOW = ["onnxruntime", "openvino"], ["inductor", "tvm"]
SETTINGS: dict[str, Any] = {"repeats": 24, "min_rounds": 12, "max_seconds": 8.0, "timeout_s": 300.0, "together": True}
#: The limits of a useful network: more work takes too long per call.
LEAST_MACS, MOST_MACS = 1e6, 1.2e9
#: One in so many networks is measured on the slow compilers, and one in so many is rewritten.
SLOW_ONE_IN, REWRITTEN_ONE_IN = 20, 3
PARTS = ("plain", "slow", "variants", "operators", "kinds")
#: The parts that are measured again in each turn.
REPEATED = ("plain-", "variants-", "kinds-")
STEP, VARIANTS_EACH, OPERATORS_EACH, KINDS_EACH, MOST_STEPS = 10, 6, 8, 8, 3
#: Networks in every part, of calls of different kinds: many small operators, and a few large ones.
ANCHORS = ("mobilenetv3_small_100", "resnet18")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="time budget for new steps (default: 60)")
    parser.add_argument("--networks", type=int, default=120, help="most generated networks (default: 120)")
    parser.add_argument("--folder", type=Path, default=Path("results/labels"), help="folder of its progress")
    parser.add_argument("--turns", type=int, default=3, help="runs of each network and variant (default: 3)")
    parser.add_argument("--out", type=Path, default=OUT, help="file of the labels")
    parser.add_argument("--parts", default=",".join(PARTS), help="separated by commas (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    parts = tuple(args.parts.split(","))
    if unknown := set(parts) - set(PARTS):
        parser.error(f"invalid --parts: got {', '.join(sorted(unknown))}; expected some of {', '.join(PARTS)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    rules_file = args.folder / "rules.json"
    rules: dict[str, str] = json.loads(rules_file.read_text()) if rules_file.exists() else {}

    def list_parts() -> Iterator[tuple[str, Sweep]]:
        anchors = [timm.model(name) for name in ANCHORS]
        for name, sweep, added in _repeat(
            build_steps(args.folder, args.networks, args.seed, parts), anchors, args.turns, args.seed
        ):
            rules.update(added)
            rules_file.write_text(json.dumps(rules))
            yield name, sweep

    measured = measure(list_parts(), args.folder, minutes=args.minutes)
    for data in measured:
        data.attrs[VARIANTS] = json.dumps(rules)
    if not measured:
        print("no part was measured")
        return
    collected = predict.collect(measured)
    print(f"{len(collected)} graphs in {collected.save(args.out)}")


Step = tuple[str, Sweep, dict[str, str]]


def _repeat(first: Iterator[Step], anchors: list[Workload], turns: int, seed: int) -> Iterator[Step]:
    """Yield all parts, then all parts again, beside the anchors; a plain network has other neighbours each time."""
    steps = []
    for step in first:
        steps.append(step)
        yield _add_anchors(step, anchors, 0)
    plain = [workload for name, sweep, _ in steps if name.startswith("plain-") for workload in sweep.workloads]
    for turn in range(1, turns):
        generator = np.random.default_rng([seed, 4, turn])
        parts = np.array_split(generator.permutation(len(plain)), max(-(-len(plain) // STEP), 1))
        sweeps = [Sweep([plain[index] for index in part], compilers=FAST, **SETTINGS) for part in parts if len(part)]
        again: list[Step] = [(f"plain-{number}", sweep, {}) for number, sweep in enumerate(sweeps)]
        again += [step for step in steps if step[0].startswith(REPEATED) and not step[0].startswith("plain-")]
        yield from (_add_anchors(again[index], anchors, turn) for index in generator.permutation(len(again)))


def _add_anchors(step: Step, anchors: list[Workload], turn: int) -> Step:
    """Name a step by its turn, and add the anchors to its networks; slow compilers have none."""
    name, sweep, rules = step
    if name.startswith(("plain-", "operators-", "kinds-")):
        ids = {workload.id for workload in sweep.workloads}
        missing = [anchor for anchor in anchors if anchor.id not in ids]
        sweep = Sweep([*missing, *sweep.workloads], compilers=sweep.compilers, **SETTINGS)
    return f"{name}-{turn}", sweep, rules


def build_steps(folder: Path, count: int, seed: int, parts: Sequence[str]) -> Iterator[Step]:
    """Yield the steps of some parts in turn, so that any time budget covers some of each; `kinds` come last."""
    measured: set[str] = set()
    networks = generate_networks(count, seed)
    every: list[Workload] = []
    for first in range(0, count, STEP):
        part = list(islice(networks, min(STEP, count - first)))
        if not part:
            break
        every += part
        if "plain" in parts:
            yield f"plain-{first // STEP}", Sweep(part, compilers=FAST, **SETTINGS), {}
        for index, workload in enumerate(part, start=first):
            if index % SLOW_ONE_IN == 0 and "slow" in parts:
                slow = Sweep(workload, compilers=SLOW, **{**SETTINGS, "repeats": 12})
                yield f"slow-{first // STEP}", slow, {}
            if index % REWRITTEN_ONE_IN == 0:
                yield from _rewrite(workload, folder, seed, parts, measured)
    if "kinds" in parts:
        files = [export(workload, folder) for workload in every]
        directory = folder / "files" / "kinds"
        directory.mkdir(parents=True, exist_ok=True)
        operators = extract_places(choose_places(files, KINDS_EACH, measured), directory)
        for number in count_up():
            if not (part := list(islice(operators, STEP))):
                return
            yield f"kinds-{number}", Sweep(part, compilers=FAST, **SETTINGS), {}


def generate_networks(count: int, seed: int) -> Iterator[Workload]:
    """Yield networks of all sorts in turn, with neither too little nor too much work."""
    generators = (generated.generate_cells, generated.generate_stacks, generated.generate_zoo)
    for workload in chain.from_iterable(
        zip(*(generate_sort(-(-count // 3), seed) for generate_sort in generators), strict=False)
    ):
        source: Source = registry.load(registry.WORKLOADS, workload.source)
        try:
            macs = counts.count(source.build(workload, {})).macs or 0
        except NgbkitError as error:
            print(f"{workload.name}: left out, {error}", flush=True)
            continue
        if LEAST_MACS <= macs <= MOST_MACS:
            yield workload


def export(workload: Workload, folder: Path) -> Path:
    """Return the ONNX file of a network, in a folder of its own; an earlier call has exported it."""
    directory = folder / "files" / workload.name.replace("/", "_").replace("{", "-").replace("}", "")
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "network.onnx"
    if not file.exists():
        network_graphs.export_network(workload, 1, directory).replace(file)
    return file


def _rewrite(workload: Workload, folder: Path, seed: int, parts: Sequence[str], measured: set[str]) -> Iterator[Step]:
    """Yield the sweeps of a network beside random rewritings of it, and of its single operators."""
    if not {"variants", "operators"} & set(parts):
        return
    start = export(workload, folder)
    directory = start.parent
    model = open_model(ir.load(start))
    generator = np.random.default_rng([seed, *map(ord, workload.name)])
    variants = dict(islice(_draw_variants(model, generator, directory), VARIANTS_EACH))
    if variants and "variants" in parts:
        rules = {hash_file(file): rule for file, rule in variants.items()}
        parent = onnx.file(start, name=workload.name)
        parent = replace(parent, artifacts={**parent.artifacts, **{hash_file(file): file for file in variants}})
        columns = [f'{compiler}{{"graph":"{digest}"}}' for compiler in FAST for digest in rules]
        yield f"variants-{workload.name}", Sweep(parent, compilers=[*FAST, *columns], **SETTINGS), rules
    if "operators" not in parts:
        return
    operators = list(islice(extract_operators(model, directory, measured), OPERATORS_EACH))
    if operators:
        yield f"operators-{workload.name}", Sweep(operators, compilers=FAST, **SETTINGS), {}


def _draw_variants(model: ir.Model, generator: np.random.Generator, directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield random walks of one to three rewritings to distinct graphs; a rule is drawn first, then a site."""
    digests = {onnx_graphs.annotate(model.clone().graph).digest}
    for attempt in range(4 * VARIANTS_EACH):
        variant, names = model, []
        for _ in range(int(generator.integers(1, MOST_STEPS + 1))):
            sites_by_rule = {name: sites for name, rule in ALL_RULES.items() if (sites := rule.sites(variant))}
            if not sites_by_rule:
                break
            name = str(generator.choice(sorted(sites_by_rule)))
            sites = sites_by_rule[name]
            variant = ALL_RULES[name].apply(variant, sites[int(generator.integers(len(sites)))])
            names.append(name)
        digest = onnx_graphs.annotate(variant.clone().graph).digest
        if names and digest not in digests:
            digests.add(digest)
            target = directory / f"variant-{attempt}.onnx"
            ir.save(variant, target)
            yield target, "+".join(sorted(set(names)))


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


if __name__ == "__main__":
    main()
