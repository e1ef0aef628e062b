"""Measures the examples that predictors are fitted to: generated and rewritten networks on this machine's runtimes.

Run it on a quiet machine; it resumes after any interruption. It measures as many networks as fit into its minutes, and
writes notebooks/data/05-labels.nc: seconds and graphs, without weights.

    plain       cells, stacks and networks of timm, on ONNX Runtime and OpenVINO
    slow        some of them on inductor and untuned TVM as well, which take much longer to compile
    variants    random rewritings of some of them, interleaved with their originals
    operators   single operators of these
    again       the networks of `plain` once more, in other orders, repeatedly (with --again)

The speed of a shared machine drifts; latencies of different times are comparable only if each network is measured at
several times, beside others: `ngbkit.predictor.collect` then removes the drift between runs.
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

from ngbkit import Sweep, predictor, registry, runs
from ngbkit.errors import NgbkitError
from ngbkit.files import hash_file
from ngbkit.optimizer.editing import open_model
from ngbkit.optimizer.rules import RULES
from ngbkit.predictor import examples, generate, graphs, network_graphs
from ngbkit.predictor.rows import VARIANTS
from ngbkit.runs.progress_display import describe, watch
from ngbkit.workloads import counts, onnx
from ngbkit.workloads.base import Source, Workload

ROOT = Path(__file__).parents[2]
OUT = ROOT / "notebooks" / "data" / "05-labels.nc"
FAST, SLOW = ["onnxruntime", "openvino"], ["inductor", "tvm"]
SETTINGS: dict[str, Any] = {"repeats": 24, "min_rounds": 12, "max_seconds": 8.0, "timeout_s": 300.0}
#: Fewer samples of more runs, because the drift between runs matters.
BRIEF_SETTINGS: dict[str, Any] = {"repeats": 10, "min_rounds": 5}
#: The limits of a useful network: more work takes too long per call.
LEAST_MACS, MOST_MACS = 1e6, 1.2e9
#: One in so many networks is measured on the slow compilers, and one in so many is rewritten.
SLOW_ONE_IN, REWRITTEN_ONE_IN = 12, 2
STEP, VARIANTS_EACH, OPERATORS_EACH, MOST_STEPS = 12, 6, 8, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="time budget for new steps (default: 60)")
    parser.add_argument("--networks", type=int, default=360, help="most generated networks (default: 360)")
    parser.add_argument("--folder", type=Path, default=Path("results/labels"), help="folder of its progress")
    parser.add_argument("--again", action="store_true", help="measure the existing networks again, and no new ones")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    state_file = args.folder / "runs.json"
    state: dict[str, Any] = json.loads(state_file.read_text()) if state_file.exists() else {"runs": {}, "rules": {}}
    deadline = time.monotonic() + 60 * args.minutes
    steps = (
        _build_repetitions(state["runs"], args.seed)
        if args.again
        else _build_steps(args.folder, args.networks, args.seed)
    )
    for name, sweep, rules in steps:
        if time.monotonic() > deadline:
            break
        run = runs.resume(state["runs"][name]) if name in state["runs"] else runs.start(sweep)
        state["runs"][name] = run.id
        state["rules"] |= rules
        state_file.write_text(json.dumps(state))
        watch(run, lambda run: None)  # a line per step suffices
        print(f"{name}: {run.state}, {describe(run)}", flush=True)
        if run.error is not None:
            raise run.error
    measured = [runs.load_dataset(runs.find(run_id)) for run_id in state["runs"].values()]
    for data in measured:
        data.attrs[VARIANTS] = json.dumps(state["rules"])
    collected = predictor.collect(measured)
    print(f"{len(collected)} graphs in {examples.save(collected, OUT)}")


Step = tuple[str, Sweep, dict[str, str]]


def _build_steps(folder: Path, count: int, seed: int) -> Iterator[Step]:
    """Yield the parts in turn, so that any time budget covers some of each."""
    networks = _generate_networks(count, seed)
    for number in range(-(-count // STEP)):
        part = list(islice(networks, STEP))
        if not part:
            return
        yield f"plain-{number}", Sweep(part, compilers=FAST, **SETTINGS), {}
        slow = part[::SLOW_ONE_IN]
        yield f"slow-{number}", Sweep(slow, compilers=SLOW, **{**SETTINGS, "repeats": 12}), {}
        for workload in part[::REWRITTEN_ONE_IN]:
            yield from _rewrite(workload, folder, seed)


def _build_repetitions(run_ids: dict[str, str], seed: int) -> Iterator[Step]:
    """Yield all networks of the plain parts in new groups, endlessly."""
    plain = [name for name in run_ids if name.startswith("plain-")]
    networks = [workload for name in plain for workload in runs.read_sweep(runs.find(run_ids[name])).workloads]
    turn = 1 + max([int(name.split("-")[1]) for name in run_ids if name.startswith("again-")], default=-1)
    while True:
        order = np.random.default_rng([seed, 4, turn]).permutation(len(networks))
        for number, indices in enumerate(np.array_split(order, -(-len(networks) // STEP))):
            part = [networks[index] for index in indices]
            yield f"again-{turn}-{number}", Sweep(part, compilers=FAST, **{**SETTINGS, **BRIEF_SETTINGS}), {}
        turn += 1


def _generate_networks(count: int, seed: int) -> Iterator[Workload]:
    """Yield networks of all sorts in turn, with neither too little nor too much work."""
    generators = (generate.generate_cells, generate.generate_stacks, generate.generate_zoo)
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


def _rewrite(workload: Workload, folder: Path, seed: int) -> Iterator[Step]:
    """Yield the sweeps of a network beside random rewritings of it, and of its single operators."""
    directory = folder / "files" / workload.name.replace("/", "_").replace("{", "-").replace("}", "")
    directory.mkdir(parents=True, exist_ok=True)
    start = network_graphs.export_network(workload, 1, directory)
    model = open_model(ir.load(start))
    generator = np.random.default_rng([seed, *map(ord, workload.name)])
    variants = dict(islice(_draw_variants(model, generator, directory), VARIANTS_EACH))
    if variants:
        rules = {hash_file(file): rule for file, rule in variants.items()}
        parent = onnx.file(start, name=workload.name)
        parent = replace(parent, artifacts={**parent.artifacts, **{hash_file(file): file for file in variants}})
        columns = [f'{compiler}{{"graph":"{digest}"}}' for compiler in FAST for digest in rules]
        yield f"variants-{workload.name}", Sweep(parent, compilers=[*FAST, *columns], **SETTINGS), rules
    operators = list(islice(_list_operators(model, directory), OPERATORS_EACH))
    if operators:
        yield f"operators-{workload.name}", Sweep(operators, compilers=FAST, **SETTINGS), {}


def _draw_variants(model: ir.Model, generator: np.random.Generator, directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield random walks of one to three rewritings to distinct graphs; a rule is drawn first, then a site."""
    digests = {graphs.annotate(model.clone().graph).digest}
    for attempt in range(4 * VARIANTS_EACH):
        variant, names = model, []
        for _ in range(int(generator.integers(1, MOST_STEPS + 1))):
            sites_by_rule = {name: sites for name, rule in RULES.items() if (sites := rule.sites(variant))}
            if not sites_by_rule:
                break
            name = str(generator.choice(sorted(sites_by_rule)))
            variant = RULES[name].apply(variant, sites_by_rule[name][int(generator.integers(len(sites_by_rule[name])))])
            names.append(name)
        digest = graphs.annotate(variant.clone().graph).digest
        if names and digest not in digests:
            digests.add(digest)
            target = directory / f"variant-{attempt}.onnx"
            ir.save(variant, target)
            yield target, "+".join(sorted(set(names)))


_seen_operators: set[str] = set()


def _list_operators(model: ir.Model, directory: Path) -> Iterator[Workload]:
    """Yield operators that no earlier network had, each as a network."""
    annotated = {operator.name: operator.digest for operator in graphs.annotate(model.clone().graph).operators}
    for node in model.graph:
        digest = annotated.get(node.name or "")
        if digest is None or digest in _seen_operators or not _is_plain(node):
            continue
        _seen_operators.add(digest)
        target = directory / f"operator-{digest}.onnx"
        ir.save(_build_single(node, model), target)
        yield onnx.file(target, name=f"operator-{digest}")


def _is_plain(node: ir.Node) -> bool:
    """Whether all values of a node are images, tokens or vectors of floats, of known shapes."""
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    flowing = [value for value in values if value.const_value is None]
    shaped = all(value.shape is not None and all(isinstance(side, int) for side in value.shape) for value in values)
    return shaped and all(value.dtype == ir.DataType.FLOAT and len(value.shape) > 0 for value in flowing)


def _build_single(node: ir.Node, model: ir.Model) -> ir.Model:
    """Build a model of one operator."""
    copies: dict[ir.Value, ir.Value] = {}
    for value in node.inputs:
        if value is not None and value not in copies:
            copy = ir.Value(name=value.name, shape=value.shape, type=value.type, const_value=value.const_value)
            copies[value] = copy
    outputs = [ir.Value(name=value.name, shape=value.shape, type=value.type) for value in node.outputs]
    single = ir.node(
        node.op_type,
        [None if value is None else copies[value] for value in node.inputs],
        dict(node.attributes.items()),
        domain=node.domain,
        outputs=outputs,
        name=node.name,
    )
    inputs = [value for value in copies.values() if value.const_value is None]
    constants = [value for value in copies.values() if value.const_value is not None]
    graph = ir.Graph(
        inputs, outputs, nodes=[single], initializers=constants, opset_imports=model.opset_imports, name="alone"
    )
    return ir.Model(graph, ir_version=model.ir_version)


if __name__ == "__main__":
    main()
