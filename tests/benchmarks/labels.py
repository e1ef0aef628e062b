"""What predictors learn from: networks drawn up by a seed, and rewritten ones, measured on runtimes of this machine.

Run it on a quiet machine; ended in any way, it goes on where it was. It takes as many networks as fit into the minutes
that it is given, and writes notebooks/data/05-labels.nc: seconds and graphs, and no weights.

    plain       cells, stacks and networks of timm, on ONNX Runtime and OpenVINO
    slow        some of them on inductor and untuned TVM as well, which take much longer to compile
    variants    what rules make of some of them at random, in turns with what they were made of
    operators   single operators of those by themselves
    again       the networks of `plain` once more, in another order, time and again (with --again)

A machine that others share is not always as fast; networks that were measured at different times are only to be
compared where each was measured at several, beside others: `ngbkit.predictor.collect` tells from that how fast the
machine was in each run.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from ngbkit import Sweep, options, predictor, registry, runs
from ngbkit.errors import NgbkitError
from ngbkit.files import hash_file
from ngbkit.optimizer.editing import open_model
from ngbkit.optimizer.rules import RULES
from ngbkit.predictor import examples, generate, graphs
from ngbkit.predictor.examples import VARIANTS
from ngbkit.runs.progress_display import describe, watch
from ngbkit.workloads import counts, onnx
from ngbkit.workloads.base import Source, Workload
from ngbkit.workloads.export import export_for

ROOT = Path(__file__).parents[2]
OUT = ROOT / "notebooks" / "data" / "05-labels.nc"
FAST, SLOW = ["onnxruntime", "openvino"], ["inductor", "tvm"]
HOW: dict[str, Any] = {"repeats": 24, "min_rounds": 12, "max_seconds": 8.0, "timeout_s": 300.0}
#: More often and fewer at a time: what differs is the time.
BRIEF: dict[str, Any] = {"repeats": 10, "min_rounds": 5}
#: More work than this takes too long a call, and less is a network of nothing.
LEAST_MACS, MOST_MACS = 1e6, 1.2e9
#: Of the networks, one in so many is measured on the slow compilers, and one in so many is rewritten.
SLOW_ONE_IN, REWRITTEN_ONE_IN = 12, 2
STEP, VARIANTS_EACH, OPERATORS_EACH, MOST_STEPS = 12, 6, 8, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long it may begin anything new (default: 60)")
    parser.add_argument("--networks", type=int, default=360, help="how many are drawn up at most (default: 360)")
    parser.add_argument("--folder", type=Path, default=Path("results/labels"), help="where it remembers how far it is")
    parser.add_argument("--again", action="store_true", help="measure those that there are again, and no new ones")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    remembered = asked.folder / "runs.json"
    known: dict[str, Any] = json.loads(remembered.read_text()) if remembered.exists() else {"runs": {}, "rules": {}}
    until = time.monotonic() + 60 * asked.minutes
    steps = _again(known["runs"], asked.seed) if asked.again else _steps(asked.folder, asked.networks, asked.seed)
    for name, sweep, rules in steps:
        if time.monotonic() > until:
            break
        run = runs.resume(known["runs"][name]) if name in known["runs"] else runs.start(sweep)
        known["runs"][name] = run.id
        known["rules"] |= rules
        remembered.write_text(json.dumps(known))
        watch(run, lambda run: None)  # a line a step says enough
        print(f"{name}: {run.state}, {describe(run)}", flush=True)
        if run.error is not None:
            raise run.error
    measured = [runs.load_dataset(runs.find(one)) for one in known["runs"].values()]
    for one in measured:
        one.attrs[VARIANTS] = json.dumps(known["rules"])
    found = predictor.collect(measured)
    print(f"{len(found)} graphs in {examples.save(found, OUT)}")


Step = tuple[str, Sweep, dict[str, str]]


def _steps(folder: Path, count: int, seed: int) -> Iterator[Step]:
    """The parts in turns, so that whatever time there is holds some of each."""
    networks = _fitting(count, seed)
    for number in range(-(-count // STEP)):
        part = list(islice(networks, STEP))
        if not part:
            return
        yield f"plain-{number}", Sweep(part, compilers=FAST, **HOW), {}
        slow = part[::SLOW_ONE_IN]
        yield f"slow-{number}", Sweep(slow, compilers=SLOW, **{**HOW, "repeats": 12}), {}
        for workload in part[::REWRITTEN_ONE_IN]:
            yield from _of_one(workload, folder, seed)


def _again(known: dict[str, str], seed: int) -> Iterator[Step]:
    """All networks of the plain parts, in new company every time, for ever."""
    plain = [name for name in known if name.startswith("plain-")]
    networks = [one for name in plain for one in runs.read_sweep(runs.find(known[name])).workloads]
    turn = 1 + max([int(name.split("-")[1]) for name in known if name.startswith("again-")], default=-1)
    while True:
        order = np.random.default_rng([seed, 4, turn]).permutation(len(networks))
        for number, places in enumerate(np.array_split(order, -(-len(networks) // STEP))):
            part = [networks[place] for place in places]
            yield f"again-{turn}-{number}", Sweep(part, compilers=FAST, **{**HOW, **BRIEF}), {}
        turn += 1


def _fitting(count: int, seed: int) -> Iterator[Workload]:
    """Those that are neither nothing nor too much work, of all sorts in turns."""
    sorts = (generate.cells, generate.stacks, generate.zoo)
    for workload in chain.from_iterable(zip(*(sort(-(-count // 3), seed) for sort in sorts), strict=False)):
        source: Source = registry.load(registry.WORKLOADS, workload.source)
        try:
            macs = counts.count(source.build(workload, {})).macs or 0
        except NgbkitError as error:
            print(f"{workload.name}: left out, {error}", flush=True)
            continue
        if LEAST_MACS <= macs <= MOST_MACS:
            yield workload


def _of_one(workload: Workload, folder: Path, seed: int) -> Iterator[Step]:
    """What rules make of a network at random, in turns with it; and its operators by themselves."""
    place = folder / "files" / workload.name.replace("/", "_").replace("{", "-").replace("}", "")
    place.mkdir(parents=True, exist_ok=True)
    source: Source = registry.load(registry.WORKLOADS, workload.source)
    start = export_for(source.build(workload, {}), place, [1], options.get_options()["seed"])[1]
    model = open_model(ir.load(start))
    chance = np.random.default_rng([seed, *map(ord, workload.name)])
    found = dict(islice(_variants(model, chance, place), VARIANTS_EACH))
    if found:
        rules = {hash_file(file): rule for file, rule in found.items()}
        parent = onnx.file(start, name=workload.name)
        parent = replace(parent, artifacts={**parent.artifacts, **{hash_file(file): file for file in found}})
        columns = [f'{one}{{"graph":"{digest}"}}' for one in FAST for digest in rules]
        yield f"variants-{workload.name}", Sweep(parent, compilers=[*FAST, *columns], **HOW), rules
    alone = list(islice(_operators(model, place), OPERATORS_EACH))
    if alone:
        yield f"operators-{workload.name}", Sweep(alone, compilers=FAST, **HOW), {}


def _variants(model: ir.Model, chance: np.random.Generator, place: Path) -> Iterator[tuple[Path, str]]:
    """Random walks of one to three rewritings, each another graph; a rule is drawn first, then a place for it."""
    known = {graphs.of(model.clone().graph).digest}
    for attempt in range(4 * VARIANTS_EACH):
        found, names = model, []
        for _ in range(int(chance.integers(1, MOST_STEPS + 1))):
            fitting = {name: sites for name, one in RULES.items() if (sites := one.sites(found))}
            if not fitting:
                break
            name = str(chance.choice(sorted(fitting)))
            found = RULES[name].apply(found, fitting[name][int(chance.integers(len(fitting[name])))])
            names.append(name)
        digest = graphs.of(found.clone().graph).digest
        if names and digest not in known:
            known.add(digest)
            target = place / f"variant-{attempt}.onnx"
            ir.save(found, target)
            yield target, "+".join(sorted(set(names)))


_measured: set[str] = set()


def _operators(model: ir.Model, place: Path) -> Iterator[Workload]:
    """Operators that no earlier network had, each as a network."""
    annotated = {one.name: one.digest for one in graphs.of(model.clone().graph).operators}
    for node in model.graph:
        digest = annotated.get(node.name or "")
        if digest is None or digest in _measured or not _is_plain(node):
            continue
        _measured.add(digest)
        target = place / f"operator-{digest}.onnx"
        ir.save(_alone(node, model), target)
        yield onnx.file(target, name=f"operator-{digest}")


def _is_plain(node: ir.Node) -> bool:
    """Whether all that it takes and makes is an image, tokens or a vector of floats, of known shapes."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    flowing = [value for value in values if value.const_value is None]
    known = all(one.shape is not None and all(isinstance(side, int) for side in one.shape) for one in values)
    return known and all(one.dtype == ir.DataType.FLOAT and len(one.shape) > 0 for one in flowing)


def _alone(node: ir.Node, model: ir.Model) -> ir.Model:
    taken: dict[ir.Value, ir.Value] = {}
    for value in node.inputs:
        if value is not None and value not in taken:
            copy = ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)
            taken[value] = copy
    made = [ir.Value(name=value.name, shape=value.shape, type=value.type) for value in node.outputs]
    own = ir.node(
        node.op_type,
        [None if value is None else taken[value] for value in node.inputs],
        dict(node.attributes.items()),
        domain=node.domain,
        outputs=made,
        name=node.name,
    )
    inputs = [value for value in taken.values() if value.const_value is None]
    constants = [value for value in taken.values() if value.const_value is not None]
    graph = ir.Graph(inputs, made, nodes=[own], initializers=constants, opset_imports=model.opset_imports, name="alone")
    return ir.Model(graph, ir_version=model.ir_version)


if __name__ == "__main__":
    main()
