"""Counts how often 95 % intervals cover the truth where processes differ and rounds resemble each other.

    python tests/bench/coverage.py            # a table, in some minutes; nothing is measured

Seeded noise: each wave of a trial differs by a normal deviate of its process, and rounds by a first-order
autoregression, some with the tails of Student's t of three degrees; the pace of a wave is common to its columns. A
machine has two compilers beside the baseline, and networks at three depths and two batch sizes; the group of the larger
one has an anchor, and a pace of its own. Nothing is asserted.
"""

from __future__ import annotations

import argparse
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from ngbkit import metrics
from ngbkit.sweep.variables import WAVE_STRIDE

COMPILERS, DEPTHS, BATCHES = ("identity", "onnxruntime", "openvino"), (1, 2, 4), (1, 4)
#: The true latencies of a layer, and how they grow with the depth and the batch size, by compiler.
LAYERS_S, EXPONENTS, BATCH_EXPONENTS = (
    np.array([0.01, 0.007, 0.004]),
    np.array([1.0, 0.95, 0.9]),
    np.array([0.9, 0.8, 0.7]),
)
ROUNDS_SD, PACE_SD = 0.02, 0.05
METRICS, OF_BATCHES = ("speedup", "rtr", "ase", "bsr", "depth_slope", "retention"), ("rtr", "ase", "bsr")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machines", type=int, default=40)
    parser.add_argument("--networks", type=int, nargs="+", default=[1, 6])
    args = parser.parse_args()
    settings = product(args.networks, (0.005, 0.02, 0.08), (0.0, 0.8), (None, 3), ((1, 10), (2, 6), (3, 10), (5, 6)))
    rows = []
    for networks, process_sd, resemblance, tails, (waves, rounds) in settings:
        data = simulate((args.machines, networks), (waves, rounds), process_sd, resemblance, tails)
        covered = {name: count_covered(data, name) for name in METRICS}
        speedup = metrics.speedup(data, ci=0.95).sel(compiler=list(COMPILERS[1:]))
        half = float((np.log(speedup["ci_high"] / speedup["ci_low"]) / 2).median())
        labels = {
            "networks": networks,
            "processes": process_sd,
            "rounds alike": resemblance,
            "tails": tails or "normal",
        }
        rows.append({**labels, "waves": waves, "rounds": rounds, **covered, "half width": half})
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.3f"))


def simulate(
    shape: tuple[int, int], waves: tuple[int, int], process_sd: float, resemblance: float, tails: int | None
) -> xr.Dataset:
    """Simulate so many machines and networks, ``(waves, rounds)`` each, with one sample a round."""
    generator = np.random.default_rng(0)
    count, rounds = waves
    trials = (*shape, len(DEPTHS), len(COMPILERS) + 1, len(BATCHES))  # the last column is the anchor
    paced = (*shape, len(DEPTHS), 1, len(BATCHES))

    def draw_series(sizes: tuple[int, ...]) -> np.ndarray:
        steps = generator.normal(size=(*sizes, rounds))
        if tails:
            steps = generator.standard_t(tails, (*sizes, rounds)) / np.sqrt(tails / (tails - 2))
        series = steps.copy()
        for place in range(1, rounds):
            series[..., place] = resemblance * series[..., place - 1] + np.sqrt(1 - resemblance**2) * steps[..., place]
        return series

    logs = [
        generator.normal(0, process_sd / np.sqrt(2), (*trials, 1))
        + ROUNDS_SD * draw_series(trials)
        + PACE_SD * (generator.normal(size=(*paced, 1)) + draw_series(paced))
        for _ in range(count)
    ]
    truth = compute_truth()
    anchors = np.broadcast_to(truth[:, :1, :1], (len(DEPTHS), 1, len(BATCHES)))
    latency = np.concatenate([truth, anchors], axis=1)[..., None] * np.exp(np.concatenate(logs, axis=-1))
    numbers = np.concatenate([wave * WAVE_STRIDE + np.arange(rounds) for wave in range(count)])
    dims = ("device", "workload", "depth", "compiler", "batch_size", "repeat")
    data = xr.Dataset(
        {
            "latency": (dims, latency),
            "round": (dims, np.broadcast_to(numbers, latency.shape).astype(np.int32)),
        },
        {**build_coords(shape), "compiler": [*COMPILERS, "anchor"]},
    )
    anchor = data.sel(compiler="anchor", drop=True)
    return data.sel(compiler=[*COMPILERS]).assign(anchor_latency=anchor["latency"], anchor_round=anchor["round"])


def count_covered(data: xr.Dataset, name: str) -> float:
    """Count the share of the intervals of a metric that cover its true value."""
    metric = getattr(metrics, name)
    exact = xr.Dataset(
        {"latency": (("depth", "compiler", "batch_size", "repeat"), compute_truth()[..., None])},
        {dim: value for dim, value in build_coords((1, 1)).items() if dim not in ("device", "workload")},
    )
    select: dict[str, Any] = {"compiler": list(COMPILERS[1:])} | ({"batch_size": 4} if name in OF_BATCHES else {})
    result, truth = (part.sel(select) for part in (metric(data, ci=0.95), metric(exact)))
    return float(((result["ci_low"] <= truth) & (truth <= result["ci_high"])).mean())


def compute_truth() -> np.ndarray:
    """Compute the latencies without noise, ``(depth, compiler, batch_size)``."""
    of_batches = np.array(BATCHES) ** BATCH_EXPONENTS[:, None]
    return np.asarray((LAYERS_S * np.array(DEPTHS)[:, None] ** EXPONENTS)[..., None] * of_batches)


def build_coords(shape: tuple[int, int]) -> dict[str, list[Any]]:
    machines, networks = ([f"{kind}{number}" for number in range(size)] for kind, size in zip("mn", shape, strict=True))
    depths: dict[str, list[Any]] = {"depth": [*DEPTHS], "compiler": [*COMPILERS], "batch_size": [*BATCHES]}
    return {"device": machines, "workload": networks, **depths}


if __name__ == "__main__":
    main()
