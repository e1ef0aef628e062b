"""Exports a network as any sweep does, so that other tools can run exactly the same network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ngbkit import options, runs
from ngbkit.device import preparation
from ngbkit.errors import NgbkitError
from ngbkit.sweep.grid import Grid
from ngbkit.sweep.journal import Journal
from ngbkit.sweep.trials import facts_key
from ngbkit.workloads import building, feeds
from ngbkit.workloads.base import Network, TensorSpec, Workload

# Enough to export the network, and to load everything into memory once.
_REPEATS = 3


def prepare(workload: Workload, compilers: Sequence[str], threads: int) -> dict[str, Any]:
    """Export a network (with at most one value of each factor) by a brief run with each compiler on this machine.

    Returns plain JSON: ``workload``, ``factors``, ``seed``, ``threads``; ``onnx``, the file at batch size 1, or None;
    ``inputs``, ``examples`` and ``artifacts``, in the form that a child receives.
    """
    sweep = Grid(workload, compilers=compilers, repeats=_REPEATS, threads=threads)
    run = runs.start(sweep)
    run.result()
    (group,) = sweep.groups()
    with Journal(run.folder / "journal.sqlite", writable=False) as journal:
        facts = journal.notes("facts").get(facts_key(workload.name, group.factors), {})
    key = preparation.build_key(group.workload, facts.get("content", ""), group.factors, sweep.seed)
    folder = preparation.locate_folder(options.get_state_dir(), group.device, key)
    prepared = preparation.load(folder, [1], exports=True)
    if prepared is None:
        reason = next((failure.error for failure in run.failures()), "its files were deleted")
        raise NgbkitError(f"preparing {workload.name} failed: {reason}.")
    return {
        "workload": group.workload.to_json(),
        "file": group.workload.path,
        "factors": dict(group.factors),
        "seed": sweep.seed,
        "threads": threads,
        "onnx": prepared["onnx"].get("1"),
        "inputs": prepared["inputs"],
        "examples": prepared["examples"],
        "artifacts": str(options.get_state_dir() / options.LAYOUT.artifacts),
    }


def build_network(spec: Mapping[str, Any]) -> Network:
    """Build the network of a spec that `prepare` returned."""
    with options.set_options(seed=spec["seed"]):
        return building.build(preparation.read_workload(spec), spec["factors"])


def draw_inputs(spec: Mapping[str, Any]) -> tuple[list[TensorSpec], list[feeds.Array]]:
    """Draw the inputs that ngbkit feeds to the network of a spec: their specs, and an array each."""
    inputs = [TensorSpec.from_json(data) for data in spec["inputs"]]
    return inputs, feeds.draw(inputs, preparation.read_arrays(spec["examples"]), 1, spec["seed"])
