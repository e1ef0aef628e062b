"""Times and answers of four networks in f32, bf16 or f16, and int8, by three runtimes on this machine.

    python bench/precisions.py results/precisions

Three networks of timm have random weights and are judged by their agreement with f32 on smoothed noise; a small network
for scikit-learn's digits is trained here and judged by its labels. A second call measures the trials that are missing.
The table has each column's gains and costs with their 95 % intervals.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import ngbkit
from ngbkit.cluster import engines

NETWORKS = ("resnet18", "mobilenetv3_small_100", "deit_tiny_patch16_224")
COMPILERS = ("identity", "onnxruntime", "openvino", "inductor")
PRECISIONS = "f32,f16,bf16,int8"
SAMPLES = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the folder of a dataset for each of the two kinds of networks")
    parser.add_argument("-w", "--networks", default=",".join((*NETWORKS, "digits")), help="networks to measure")
    parser.add_argument("-c", "--compilers", default=",".join(COMPILERS), help="compilers to measure")
    args = parser.parse_args()
    args.results.mkdir(parents=True, exist_ok=True)
    networks = args.networks.split(",")
    common: dict[str, Any] = {
        "compilers": args.compilers.split(","),
        "precisions": PRECISIONS,
        "precision": "3%",
    }
    published = [name for name in networks if name != "digits"]
    if published:
        noise = {"0": draw_pictures()}
        _measure(ngbkit.Sweep(published, **common, calibrate=noise), args.results / "published.nc")
    if "digits" in networks:
        workload, calibrating, labelled = train_digits()
        _measure(ngbkit.Sweep(workload, **common, calibrate=calibrating, evaluate=labelled), args.results / "digits.nc")
    engines.close()


def _measure(sweep: ngbkit.Sweep, path: Path) -> None:
    run = sweep.start()
    dataset = run.result()
    ngbkit.save(dataset, path)
    for failure in run.failures():
        sys.stdout.write(f"{run.trial(failure.trial_id).compiler}: {failure.status}, {failure.error[:150]}\n")
    sys.stdout.write(f"{dataset.ngb.precisions()}\n")


def draw_pictures() -> np.ndarray:
    """Draw noise that is smooth as pictures are, so that activations are of the usual range."""
    generator = np.random.default_rng(0)
    coarse = generator.standard_normal((SAMPLES, 3, 14, 14))
    return np.kron(coarse, np.ones((16, 16))).astype(np.float32)


def train_digits() -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Train a small convolutional network for a few seconds; return it with samples, and with labelled others."""
    import torch
    from sklearn.datasets import load_digits
    from torch import nn

    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    order = np.random.default_rng(0).permutation(len(images))
    training, testing = order[:1000], order[1000:]
    network = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()),
        *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    pairs = torch.utils.data.TensorDataset(torch.from_numpy(images[training]), torch.from_numpy(labels[training]))
    for _ in range(8):
        for batch, target in torch.utils.data.DataLoader(pairs, 50, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(batch), target).backward()
            optimiser.step()
    example = torch.from_numpy(images[training][:2])
    workload = ngbkit.from_module("digits", network.eval(), (example,))
    return workload, {"0": images[training][:200]}, {"0": images[testing], "labels": labels[testing]}


if __name__ == "__main__":
    main()
