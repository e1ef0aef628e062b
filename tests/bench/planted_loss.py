"""Plants a loss of two points of accuracy in int8 files of digits, and counts how often a sweep says so.

    python tests/bench/planted_loss.py measure results/planted_loss.jsonl     # 20 networks, about 15 s each
    python tests/bench/planted_loss.py report results/planted_loss.jsonl

Each seed trains a small CNN on scikit-learn's digits. ONNX Runtime's static int8 is the honest column; in the other one
a few weights of that file are changed until it loses two points over 20,000 shifted and noisy held-out digits. A sweep
then judges both by 2,000 of these, with labels, against f32 of the same runtime. A column is flagged where the verdict
names it. No time is measured, so that load does not matter. Finished seeds are in the file and are not run again.
"""

from __future__ import annotations

import argparse
import bisect
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from json_lines import append, read
from onnx import numpy_helper
from plugin_path import put_on_path, write_plugin

import ngbkit
from ngbkit import metrics, registry
from ngbkit.cluster import engines
from ngbkit.compilers.quantiser import Quantisation
from ngbkit.metrics.conclusions import conclude
from ngbkit.metrics.statistics import estimate_share

SEEDS, POPULATION, EVALUATED, LOSS = 20, 20_000, 2_000, 0.02
HONEST, PLANTED = 'onnxruntime{"precision":"int8"}', 'onnxruntime{"precision":"int8-planted"}'
PLUGIN = """
import os, shutil
from ngbkit.compilers.quantiser import Quantiser


def copy(quantisation):
    shutil.copyfile(os.environ["NGBKIT_BENCH_PLANTED"], quantisation.target)
    return {}


QUANTISER = Quantiser(
    name="planted", summary="copies a file with changed weights", precision="int8-planted", compilers=("onnxruntime",),
    packages=("onnxruntime",), install="pip install onnxruntime", quantise=copy,
)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["measure", "report"])
    parser.add_argument("file", type=Path)
    parser.add_argument("--most", type=int, default=SEEDS, help="seeds to run now")
    args = parser.parse_args()
    if args.action == "measure":
        measure(args.file, args.most)
    report(args.file)


def measure(file: Path, most: int) -> None:
    """Run the seeds that have no line yet, each with an engine that finds its planted file."""
    finished = {row["seed"] for row in read(file)}
    with tempfile.TemporaryDirectory() as plugin:
        write_plugin(Path(plugin), "ngbkit.quantisers", "planted", PLUGIN, "QUANTISER")
        put_on_path(Path(plugin))
        for seed in [seed for seed in range(SEEDS) if seed not in finished][:most]:
            with tempfile.TemporaryDirectory() as folder, ngbkit.set_options(state_dir=f"{folder}/state"):
                os.environ["NGBKIT_BENCH_PLANTED"] = f"{folder}/planted.onnx"
                append(file, run_seed(seed, Path(folder)))
                engines.close()


def run_seed(seed: int, folder: Path) -> dict[str, Any]:
    """Train, quantise, plant, and judge by a sweep."""
    generator = np.random.default_rng(seed)
    files = {name: folder / f"{name}.onnx" for name in ("digits", "honest", "planted")}
    (train_x, train_y), (held_x, held_y) = load_digits(seed)
    train(train_x, train_y, seed, files["digits"])
    shifted_x, shifted_y = distort(held_x, held_y, POPULATION, generator)
    calibration = distort(train_x, train_y, 256, generator)[0]
    quantiser = registry.load(registry.QUANTISERS, "onnxruntime-static")
    sources: dict[str, Any] = {"source": files["digits"], "module": None, "target": files["honest"]}
    quantiser.quantise(Quantisation(batches=[{"image": calibration}], threads=1, **sources))
    right = answer(files["honest"], shifted_x) == shifted_y
    changed = plant(files["honest"], files["planted"], shifted_x, shifted_y, right, generator)
    shares = {name: float((answer(file, shifted_x) == shifted_y).mean()) for name, file in files.items()}
    rows = generator.choice(POPULATION, EVALUATED, replace=False)
    sweep = ngbkit.Sweep(
        str(files["digits"]),
        ["onnxruntime", HONEST, PLANTED],
        repeats=4,
        calibrate={"image": distort(train_x, train_y, 256, generator)[0]},
        evaluate={"image": shifted_x[rows], "labels": shifted_y[rows]},
    )
    dataset = sweep.run()
    losses = "\n".join(conclude(dataset).lines).partition("Loses accuracy: ")[2].splitlines()[:1]
    result: dict[str, Any] = {"seed": seed, "accuracy": shares["digits"], "changed_weights": changed}
    for name, label in (("honest", HONEST), ("planted", PLANTED)):
        result[name] = {
            "true_loss": shares["digits"] - shares[name],
            "change": metrics.accuracy_change(dataset).sel(compiler=label).item(),
            "chance": metrics.accuracy_chance(dataset).sel(compiler=label).item(),
            "flagged": any(f"{label} on" in line for line in losses),
        }
    return result


def load_digits(seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    parts = train_test_split(images, digits.target, test_size=0.5, random_state=seed, stratify=digits.target)
    yield parts[0], parts[2]
    yield parts[1], parts[3]


def distort(
    images: np.ndarray, labels: np.ndarray, count: int, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw images, each shifted by up to a pixel and with noise."""
    rows = generator.integers(0, len(images), count)
    top, left = generator.integers(0, 3, (2, count, 1))
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    ys, xs = top + np.arange(8), left + np.arange(8)
    crops = padded[rows[:, None, None], 0, ys[:, :, None], xs[:, None, :]][:, None]
    noise = 0.05 * generator.standard_normal(crops.shape)
    return (crops + noise).astype(np.float32), labels[rows]


def train(images: np.ndarray, labels: np.ndarray, seed: int, target: Path) -> None:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))
    optimiser = torch.optim.AdamW(network.parameters(), 3e-3)
    for _ in range(600):
        inputs, targets = distort(images, labels, 128, generator)
        loss = nn.functional.cross_entropy(network(torch.tensor(inputs)), torch.tensor(targets))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    batch = {0: torch.export.Dim("batch")}
    torch.onnx.export(
        network.eval(),
        (torch.tensor(images[:2]),),
        target,
        input_names=["image"],
        dynamic_shapes=(batch,),
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def answer(file: Path, images: np.ndarray) -> np.ndarray:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])
    answers: np.ndarray = session.run(None, {"image": images})[0].argmax(1)
    return answers


def plant(
    source: Path,
    target: Path,
    images: np.ndarray,
    labels: np.ndarray,
    right: np.ndarray,
    generator: np.random.Generator,
) -> int:
    """Change weights of the largest int8 tensor until it loses two points; return how many."""
    model = onnx.load(source)
    int8 = onnx.TensorProto.INT8
    tensors = [tensor for tensor in model.graph.initializer if tensor.data_type == int8 and len(tensor.dims) > 1]
    tensor = max(tensors, key=lambda tensor: int(np.prod(tensor.dims)))
    honest = numpy_helper.to_array(tensor)
    order = generator.permutation(honest.size)
    signs = np.where(generator.random(honest.size) < 0.5, -127, 127).astype(np.int8)

    def measure_loss(count: int) -> float:
        weights = honest.copy().ravel()
        weights[order[:count]] = signs[:count]
        tensor.CopyFrom(numpy_helper.from_array(weights.reshape(honest.shape), tensor.name))
        onnx.save(model, target)
        return float(right.mean() - (answer(target, images) == labels).mean())

    high = 1
    while measure_loss(high) < LOSS:
        high *= 2
    # The loss grows nearly always with the number of weights.
    count = bisect.bisect_left(range(high), LOSS, high // 2, key=measure_loss)
    measure_loss(count)
    return count


def report(file: Path) -> None:
    """Print the rates with their intervals, and the seeds."""
    results = read(file)
    print(f"seeds {', '.join(str(row['seed']) for row in results)}; {EVALUATED} labelled samples each")
    for name in ("planted", "honest"):
        flagged, losses = (np.array([row[name][key] for row in results]) for key in ("flagged", "true_loss"))
        _, low, high = estimate_share(int(flagged.sum()), len(results))
        print(
            f"{name}: flagged {flagged.sum()} of {len(results)} (95 % interval {low:.2f} to {high:.2f}); true loss "
            f"{100 * losses.min():.2f} to {100 * losses.max():.2f} points, mean {100 * losses.mean():.2f}"
        )
    weights, accuracies = ([row[name] for row in results] for name in ("changed_weights", "accuracy"))
    print(
        f"weights changed: {min(weights)} to {max(weights)}; f32 {min(accuracies):.3f} to {max(accuracies):.3f} right"
    )


if __name__ == "__main__":
    main()
