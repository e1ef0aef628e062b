"""Plants a slowdown in one operator, and counts how often `explain` ranks it first; and compares networks with copies.

    python tests/bench/planted_slowdown.py results/planted           # measure what is missing, and report
    python tests/bench/planted_slowdown.py results/planted --report  # report what is there

An operator of a network, a convolution or a matrix product, is widened by so many channels that a call takes about a
fifth longer by the profile of the unchanged network in ONNX Runtime; the further channels are cut off again. Each
network, its planted versions and its copies take turns in the same rounds. A case is ranked first where the piece with
the largest gap contains the operator; a copy has a false alarm where any piece is guilty. The dataset of each network
is in a file, and is not measured again.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import ngbkit
from ngbkit.metrics.statistics import estimate_share
from ngbkit.predict.network_graphs import export_network
from ngbkit.sweep.conversion import parse_workload
from ngbkit.why.explain import explain
from ngbkit.why.explanation import Explanation
from ngbkit.why.trial_profile import parse_profile

NETWORKS = ("resnet18", "efficientnet_b3", "deit3_small_patch16_224")
RUNTIMES = ("onnxruntime", "openvino")
SLOWDOWN = 0.2
# Operators of a smaller part of a call would have to be many times as wide.
_LEAST_SHARE = 0.02
_AXES = {"Conv": (0, 1), "MatMul": (1, -1)}  # of the weight that is widened, and of the output that is cut


def list_candidates(path: Path) -> list[tuple[str, float]]:
    """Profile a network in ONNX Runtime, and list the operators with weights of their own, with their shares."""
    data = ngbkit.Sweep([str(path)], ["onnxruntime"], [1], repeats=10, profile=True).run()
    profile = parse_profile(str(np.ravel(data["profile"])[0]))
    model = onnx.load(path)
    weights = {weight.name for weight in model.graph.initializer}
    widened = {
        node.name
        for node in model.graph.node
        if node.op_type in _AXES
        and node.input[1] in weights
        and not any(each.name == "group" and each.i > 1 for each in node.attribute)
    }
    shares = []
    for kernel, seconds in zip(profile.kernels, profile.seconds.mean(axis=1), strict=True):
        names = [name for index in kernel.nodes if (name := profile.nodes[index].name) in widened]
        if len(names) == 1:
            shares.append((names[0], float(seconds / profile.plain.mean())))
    return [(name, share) for name, share in shares if share >= _LEAST_SHARE]


def widen(path: Path, name: str, factor: float, target: Path) -> None:
    """Write a network with an operator of `factor` times as many output channels, which are cut off again."""
    model = copy.deepcopy(onnx.load(path))
    graph = model.graph
    place, node = next((place, node) for place, node in enumerate(graph.node) if node.name == name)
    weight_axis, output_axis = _AXES[node.op_type]
    weights = {weight.name: weight for weight in graph.initializer}
    count = numpy_helper.to_array(weights[node.input[1]]).shape[weight_axis]
    total = count + max(16, math.ceil(count * (factor - 1) / 16) * 16)
    for index, axis in ((1, weight_axis), (2, 0)):
        if len(node.input) > index and node.input[index]:
            array = numpy_helper.to_array(weights[node.input[index]])
            wide = np.take(array, np.arange(total) % count, axis=axis)
            graph.initializer.append(numpy_helper.from_array(wide, f"planted_{index}"))
            node.input[index] = f"planted_{index}"
    for label, value in (("starts", 0), ("ends", count), ("axes", output_axis)):
        graph.initializer.append(numpy_helper.from_array(np.array([value]), f"planted_{label}"))
    output, node.output[0] = node.output[0], "planted_wide"
    cut = helper.make_node(
        "Slice", ["planted_wide", "planted_starts", "planted_ends", "planted_axes"], [output], name="planted_cut"
    )
    graph.node.insert(place + 1, cut)
    del graph.value_info[:]
    onnx.save(model, target)


def measure(network: str, folder: Path, cases: int, copies: int) -> None:
    """Measure a network beside its planted versions and its copies, and write the dataset."""
    with TemporaryDirectory(prefix="ngbkit-planted-") as scratch:
        base = Path(scratch, "base.onnx")
        export_network(parse_workload(network), 1, Path(scratch)).rename(base)
        candidates = list_candidates(base)
        generator = np.random.default_rng(NETWORKS.index(network) if network in NETWORKS else 0)
        chosen = generator.choice(len(candidates), min(cases, len(candidates)), replace=False)
        paths, planted = [base], dict[str, str]()
        for number, index in enumerate(chosen.tolist()):
            path = Path(scratch, f"planted{number}.onnx")
            planted[path.stem], share = candidates[index]
            widen(base, planted[path.stem], 1 + SLOWDOWN / share, path)
            paths.append(path)
        for number in range(copies):
            path = Path(scratch, f"copy{number}.onnx")
            model = onnx.load(base)
            model.doc_string = f"copy {number}"
            onnx.save(model, path)
            paths.append(path)
        sweep = ngbkit.Sweep([*map(str, paths)], list(RUNTIMES), [1], repeats=24, together=True, profile=True)
        data = sweep.run()
        data.attrs["planted"] = json.dumps(planted)
        ngbkit.save(data, folder / f"{network}.nc", overwrite=True)


def iterate_cases(data: Any) -> Iterator[tuple[str, str, Explanation]]:
    """Explain each version of a network against the unchanged one: the runtime, the operator or ``""``, the result."""
    planted = json.loads(data.attrs["planted"])
    for label in data["workload"].values.tolist():
        for runtime in RUNTIMES if label != "base" else ():
            try:
                yield runtime, planted.get(label, ""), explain(data, "base", label, compiler=runtime)
            except ngbkit.NgbkitError as error:
                print(f"{label} in {runtime}: {error}")


def report(folder: Path) -> None:
    """Print the counts by network and runtime, and a line per case."""
    totals = {"ranked first": [0, 0], "false alarms": [0, 0]}
    for file in sorted(folder.glob("*.nc")):
        for runtime, node, result in iterate_cases(ngbkit.load(file)):
            attribution = result.attribution
            worst = int(np.argmax(attribution.gaps))
            slowdown = result.speedup - 1
            disagreement = abs(attribution.total / result.timed_gap - 1) if result.timed_gap else math.nan
            mapped = " ".join(f"{100 * share:.1f} %" for share in result.mapped)
            if node:
                is_first = node in result.pieces[worst].nodes
                totals["ranked first"][0] += is_first
                totals["ranked first"][1] += 1
                verdict = "first" if is_first else f"not first: {result.pieces[worst].name}"
                verdict += "" if attribution.is_guilty[worst] else ", not guilty"
                print(
                    f"{file.stem} {runtime} {node}: {verdict}; the call takes {100 * slowdown:.1f} % longer; pieces "
                    f"{100 * disagreement:.1f} % from the timed gap; mapped {mapped}"
                )
            else:
                guilty = [result.pieces[index].name for index in np.flatnonzero(attribution.is_guilty)]
                scores = attribution.gaps / np.maximum(attribution.seconds.mean(axis=0), 1e-9)
                heavy = attribution.seconds.mean(axis=0) > 0.01 * attribution.seconds.sum(axis=1).mean()
                totals["false alarms"][0] += bool(guilty)
                totals["false alarms"][1] += 1
                print(
                    f"{file.stem} {runtime} copy: guilty {', '.join(guilty) or 'none'}; pieces of over 1 % of a call "
                    f"differ by {100 * float(np.std(scores[heavy])):.1f} % (standard deviation)"
                )
    for name, (hits, total) in totals.items():
        share, low, high = estimate_share(hits, total)
        print(f"{name}: {hits} of {total} ({100 * share:.0f} %, 95 % interval {100 * low:.0f} to {100 * high:.0f} %)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--networks", default=",".join(NETWORKS))
    parser.add_argument("--cases", type=int, default=7, help="planted versions of each network (default: 7)")
    parser.add_argument("--copies", type=int, default=4, help="copies of each network (default: 4)")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for network in () if args.report else args.networks.split(","):
        if not (args.folder / f"{network}.nc").exists():
            measure(network, args.folder, args.cases, args.copies)
    report(args.folder)


if __name__ == "__main__":
    main()
