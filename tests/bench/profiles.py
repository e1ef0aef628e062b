"""Measures how long each operator takes inside the networks that labels are of, in ONNX Runtime and in OpenVINO.

`labels.py` measures whole networks; a graph network also learns from the operators that a runtime
executes for them, each in its place. This command exports more networks of the same generators, profiles all of them
and the rewritten networks among the labels in several turns at different times, and writes

    notebooks/data/labels-onnxruntime.nc  the labels with the operators that ONNX Runtime executes and their seconds
    notebooks/data/labels-openvino.nc     and with those of OpenVINO

Run it on a quiet machine; it resumes after any interruption. Two cores need 2 s to export a network, and 0.8 s a turn
to profile it. A network that is not in notebooks/data/labels.nc has the latencies of the turns, without the profiler
and without the drift between both measurements. They are noisier than those of runs, and good enough to learn from.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import json_lines
import numpy as np

from ngbkit import predict
from ngbkit.errors import NgbkitError
from ngbkit.predict import lowering, read
from ngbkit.predict.labels.example_set import TEXTS
from ngbkit.predict.labels.merging import Label, merge_labels
from ngbkit.predict.network_graphs import pack, unpack_graphs
from ngbkit.workloads import timm
from ngbkit.workloads.paper import find_family

ROOT = Path(__file__).parents[2]
LABELS = ROOT / "notebooks" / "data" / "labels.nc"
MANIFEST, MEASURED = "networks.json", "turn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=int, default=360, help="most generated networks (default: 360)")
    parser.add_argument("--turns", type=int, default=3, help="profiles of each network (default: 3)")
    parser.add_argument("--calls", type=int, default=20, help="timed calls of each profile (default: 20)")
    parser.add_argument("--folder", type=Path, default=Path("results/labels"), help="folder of its progress")
    parser.add_argument("--labels", type=Path, default=LABELS, help="the labels of whole networks")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--turn", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.turn is not None:
        measure_turn(args.folder, args.turn, args.calls, args.seed, args.labels)
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    if not (args.folder / MANIFEST).exists():
        write_manifest(args.folder, args.networks, args.seed)
    build_files(args.folder, args.seed)
    for turn in range(args.turns):
        # Another process, which never imports torch: its threads would share the cores with those of the runtimes.
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--turn", str(turn)], check=True)
    write_labels(args.folder, args.turns, args.labels)


def write_manifest(folder: Path, count: int, seed: int) -> None:
    """Export the networks, and write the file of each by its name."""
    from labels import export, generate_networks

    files = {}
    for workload in generate_networks(count, seed):
        files[workload.name] = str(export(workload, folder).relative_to(folder))
        print(f"{len(files)} networks exported, the last is {workload.name}", flush=True)
    (folder / MANIFEST).write_text(json.dumps(files))


def measure_turn(folder: Path, turn: int, calls: int, seed: int, labels: Path) -> None:
    """Profile each network and each labelled variant once, in an order of this turn, and store a line of each."""
    labelled = {graph.digest for graph in predict.load_examples(labels).graphs}
    variants = {name: path for name, path in list_variants(folder).items() if read(path).digest in labelled}
    files = list_networks(folder) | variants
    progress = folder / f"{MEASURED}-{turn}.jsonl"
    measured = {record["name"] for record in json_lines.read(progress)}
    names = np.random.default_rng([seed, turn]).permutation(sorted(files)).tolist()
    for number, name in enumerate(names, start=1):
        if name in measured:
            continue
        record: dict[str, Any] = {"name": name, "time": time.time()}
        for runtime in lowering.RUNTIMES:
            try:
                execution = lowering.execute(files[name], runtime, calls=calls)
            except NgbkitError as error:
                print(f"{name}: {error}", flush=True)
                continue
            record[runtime] = {"latency": execution.latency, "seconds": execution.seconds.tolist()}
            record[runtime] |= {"graph": pack({name: execution.graph})} if turn == 0 else {}
        json_lines.append(progress, record, prints=False)
        if number % 20 == 0:
            print(f"turn {turn}: {number} of {len(names)} networks", flush=True)


def write_labels(folder: Path, turns: int, file: Path) -> None:
    """Write the labels of a file, and those of the turns, with the operators that each runtime executes."""
    records = load_records(folder, turns)
    networks = list_networks(folder)
    files = networks | list_variants(folder)
    # The latencies of variants are compared with those of their networks, in turns: only runs of `labels.py` do that.
    latencies = collect_latencies({name: rows for name, rows in records.items() if name in networks}, files)
    labels = predict.merge(predict.load_examples(file), latencies)
    paths = {read(path).digest: path for path in sorted(folder.glob("files/*/*.onnx"))}
    profiles: dict[str, list[Record]] = {}
    for name, rows in records.items():
        profiles.setdefault(read(files[name]).digest, []).extend(rows)
    for runtime in lowering.RUNTIMES:
        lowered = lower_labels(labels, runtime, paths, profiles)
        print(f"{len(lowered)} graphs in {lowered.save(file.with_stem(f'{file.stem}-{runtime}'))}", flush=True)


def list_networks(folder: Path) -> dict[str, Path]:
    """List the files of the networks by their names."""
    return {name: folder / path for name, path in json.loads((folder / MANIFEST).read_text()).items()}


def list_variants(folder: Path) -> dict[str, Path]:
    """List the files of rewritten networks, by the name of the folder and of the file."""
    return {f"{path.parent.name}/{path.stem}": path for path in sorted(folder.glob("files/*/variant-*.onnx"))}


Record = dict[str, Any]


def load_records(folder: Path, turns: int) -> dict[str, list[Record]]:
    """Load what all turns stored, by the name of the network."""
    records: dict[str, list[Record]] = {}
    for turn in range(turns):
        for record in json_lines.read(folder / f"{MEASURED}-{turn}.jsonl"):
            records.setdefault(record["name"], []).append(record | {"turn": turn})
    return records


def collect_latencies(records: dict[str, list[Record]], files: dict[str, Path]) -> predict.Examples:
    """Collect the latencies without the profiler, all with the noise of all: three turns tell little of a network's."""
    runtimes = [("cpu", runtime) for runtime in lowering.RUNTIMES]
    labels = []
    for name, rows in records.items():
        graph = read(files[name])
        texts = {"names": f"{name} batch 1", "families": find_family(name), "parents": name, "rules": ""}
        for record in rows:
            seconds = np.array([record.get(runtime, {}).get("latency", np.nan) for _, runtime in runtimes])
            labels.append(Label(graph=graph, seconds=seconds, texts=texts, run=record["turn"]))
    merged = merge_labels(labels, runtimes)
    assert merged.errors is not None
    noise = np.sqrt(np.nanmean(merged.errors**2, axis=0))
    return replace(merged, errors=np.where(np.isfinite(merged.seconds), noise, np.nan))


def build_files(folder: Path, seed: int) -> None:
    """Build the variants and the single operators again that `labels.py` measured."""
    from labels import ANCHORS, PARTS, build_steps, export

    built = folder / "built"
    if not built.exists():
        for _ in build_steps(folder, 120, seed, [part for part in PARTS if part != "kinds"]):
            pass
        for name in ANCHORS:
            export(timm.model(name), folder)
        built.touch()


def lower_labels(
    labels: predict.Examples, runtime: str, paths: dict[str, Path], profiles: dict[str, list[Record]]
) -> predict.Examples:
    """Return the labels of a runtime with the operators that it executes, and their seconds where they were profiled.

    Labels of networks that are built no more are left out, since their graphs are those of an earlier timm or exporter.
    """
    column = labels.runtimes.index(("cpu", runtime))
    lowered = []
    for place, graph in enumerate(labels.graphs):
        if graph.digest not in paths or not np.isfinite(labels.seconds[place, column]):
            continue
        rows = [record[runtime] for record in profiles.get(graph.digest, []) if runtime in record]
        packed = next((row["graph"] for row in rows if "graph" in row), None)
        try:
            packed_graphs = unpack_graphs(packed).values() if packed else ()
            (executed,) = packed_graphs or (lowering.lower(paths[graph.digest], runtime),)
        except NgbkitError as error:
            print(f"{labels.names[place]}: left out, {error}", flush=True)
            continue
        shares = [np.array(row["seconds"], float) / np.nansum(np.array(row["seconds"], float)) for row in rows]
        errors = None if labels.errors is None else labels.errors[place, [column]]
        texts = {name: getattr(labels, name)[place] for name in TEXTS}
        profile = np.mean(shares, axis=0)[:, None] if shares else None
        seconds = labels.seconds[place, [column]]
        lowered.append(Label(graph=executed, seconds=seconds, errors=errors, texts=texts, profile=profile))
    print(f"{runtime}: {len(lowered)} of {len(labels)} graphs can be built", flush=True)
    return merge_labels(lowered, [labels.runtimes[column]])


if __name__ == "__main__":
    main()
