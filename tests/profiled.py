"""Synthetic profiles of two runtimes that fuse one network differently, for the tests of explanations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import synthetic
import xarray as xr
from drawn import network, sweep

BLOCKS, ROUNDS, CALLS = 4, 12, 3
FUSED, SPLIT = "openvino", "onnxruntime"
_STEPS = (("conv_pw", "Conv"), ("conv_dw", "Conv depthwise"), ("act", "Sigmoid"), ("act", "Mul"), ("conv_pwl", "Conv"))
NODES = [
    (f"node_{block}_{place}", operator, f"blocks.{block}.{name}")
    for block in range(BLOCKS)
    for place, (name, operator) in enumerate(_STEPS)
]


def build_profile(
    runtime: str,
    seed: int = 0,
    *,
    slow: Mapping[int, float] | None = None,
    cost: float = 0.0,
    copies: float = 0.0,
    scale: float = 1.0,
    noise: float = 0.01,
    process: float = 0.0,
) -> dict[str, Any]:
    """Build the profile of a runtime: one fuses each depthwise convolution with its activation, the other does not.

    `slow` has the seconds that nodes take more; `cost` is that of the profiler in each kernel, in seconds; `process` is
    the relative deviation of each kernel from the same in another process.
    """
    generator = np.random.default_rng(seed)
    kernels: list[dict[str, Any]] = []
    for block in range(BLOCKS):
        first = 5 * block
        groups = [[0], [1, 2, 3], [4]] if runtime == FUSED else [[0], [1], [2], [3], [4]]
        kernels += [
            {
                "name": NODES[first + group[0]][0],
                "kind": NODES[first + group[0]][1] + ("+SiLU" if len(group) > 1 else ""),
                "nodes": [first + node for node in group],
                "role": "compute",
            }
            for group in groups
        ]
    if copies:
        kernels.append({"name": "reorder", "kind": "Reorder", "nodes": [], "role": "copy"})
    bases = [
        copies
        if kernel["role"] == "copy"
        else scale * (1e-3 if NODES[kernel["nodes"][0]][1].startswith("Conv") else 4e-4)
        + sum((slow or {}).get(node, 0.0) for node in kernel["nodes"])
        for kernel in kernels
    ]
    bases = [base * np.exp(generator.normal(0, process)) for base in bases]
    shape = (len(kernels), ROUNDS, CALLS)
    # Columns take turns: what the machine does from round to round is the same for all.
    drift = np.exp(np.random.default_rng(0).normal(0, 0.02, (1, ROUNDS, 1)).cumsum(axis=1))
    seconds = np.array(bases)[:, None, None] * drift * np.exp(generator.normal(0, noise, shape)) + cost
    between = 2e-4 * drift[0]
    plain = (seconds - cost).sum(axis=0) + between
    for kernel, values in zip(kernels, seconds, strict=True):
        kernel["seconds"] = values.tolist()
    return {
        "nodes": [list(node) for node in NODES],
        "kernels": kernels,
        "calls": {"plain": plain.tolist(), "profiled": (seconds.sum(axis=0) + between).tolist()},
        "source": {"digest": "abc", "form": "onnx"},
        "notes": [],
    }


def add_profiles(data: xr.Dataset, profiles: Mapping[str, Mapping[str, Any]]) -> xr.Dataset:
    """Add the profile of each column to all its trials, and the latencies of their calls."""
    texts = xr.full_like(data["status"], "", dtype=object)
    latency = data["latency"].copy()
    for name, profile in profiles.items():
        texts.loc[{"compiler": name}] = json.dumps(profile)
        plain = np.median(np.array(profile["calls"]["plain"]), axis=1)
        rounds = data["round"].sel(compiler=name).values
        latency.loc[{"compiler": name}] = np.where(rounds >= 0, plain[np.maximum(rounds, 0)], np.nan)
    return data.assign(profile=texts, latency=latency)


def make_explained(batch_sizes: tuple[int, ...] = (1,), **more: Any) -> xr.Dataset:
    """A dataset of one network in two runtimes, with their profiles."""
    data = synthetic.make_dataset(sweep(network("net"), compilers=(FUSED, SPLIT), batch_sizes=batch_sizes))
    profiles = {name: build_profile(name, seed, **more) for seed, name in enumerate((FUSED, SPLIT))}
    return add_profiles(data, profiles)
