"""A network exported as any sweep of ours does it, for those who are to run the very same thing by other means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngbkit import options, runs
from ngbkit.device import preparation
from ngbkit.errors import NgbkitError
from ngbkit.sweep.grid import Sweep
from ngbkit.workloads.base import Workload

# Enough to have the network exported, and everything once in memory.
_REPEATS = 3


def prepare(workload: Workload, compilers: Sequence[str], threads: int) -> dict[str, Any]:
    """Measure a network briefly with each compiler on this machine, which leaves its files behind.

    Parameters
    ----------
    workload
        With at most one value of each factor.
    compilers
        Those whose files are needed.
    threads
        Of every runtime.

    Returns
    -------
    dict
        Plain JSON: ``workload``, ``factors``, ``seed``, ``threads``; ``onnx``, the file at batch size 1, or None;
        ``inputs``, ``examples`` and ``artifacts``, as a child is told of them.

    Raises
    ------
    NgbkitError
        The run failed, or the network cannot be built.
    """
    sweep = Sweep(workload, compilers=compilers, repeats=_REPEATS, threads=threads)
    run = runs.start(sweep)
    run.result()
    (group,) = sweep.groups()
    key = preparation.key(group.workload, group.factors, sweep.seed, run.id)
    folder = preparation.cache(options.get_state_dir(), group.device) / key
    prepared = preparation.ready(folder, [1])
    if prepared is None:
        reason = next((failure.error for failure in run.failures()), "its files are gone")
        raise NgbkitError(f"{workload.name} could not be prepared: {reason}.")
    return {
        "workload": group.workload.to_json(),
        "factors": dict(group.factors),
        "seed": sweep.seed,
        "threads": threads,
        "onnx": prepared["onnx"].get("1"),
        "inputs": prepared["inputs"],
        "examples": prepared["examples"],
        "artifacts": str(options.get_state_dir() / options.LAYOUT.artifacts),
    }
