"""Measures each int8 column over a script of its vendor's documentation, interleaved, in several pairs of processes.

    python bench/vendor_int8.py results/vendor_int8.json
    python bench/vendor_int8.py answers

`answers` prints instead the agreement and the signal to quantisation noise (dB) of ngbkit's quantisers and of those
scripts, for a ViT, a BERT and a ResNet with the same samples; torch's modules run in eager mode. With PYTHONPATH at
another checkout it prints those of its quantisers.

Claim: the ratio is from 0.97 to 1.03. The scripts are byhand/ngbkit_int8_by_hand.py. Each pair is written as soon as it
is measured, and a second call measures those that are missing. The ratio is the mean over pairs of the median over
rounds, beside the lowest and the highest pair: two processes of one program differ by a few per cent.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from ngbkit import Sweep, registry, set_options
from ngbkit.cluster import engines
from ngbkit.compilers.quantiser import Quantisation, Quantiser
from ngbkit.workloads import building, cell, export

BY_HAND = Path(__file__).parent / "byhand"
COLUMNS = {
    "onnxruntime": ("int8", "resnet18"),
    "openvino": ("int8", "resnet18"),
    "inductor": ("int8", "resnet18"),
    "executorch": ("int8", "resnet18"),
    "onnxruntime-dynamic": ("int8-dynamic", "deit_tiny_patch16_224"),
    "identity": ("int8-dynamic", "deit_tiny_patch16_224"),
}
TARGET = (0.97, 1.03)
# By hand a user says what the network is, as the pages on NNCF and on ONNX Runtime ask.
NETWORKS = {"deit_tiny_patch16_224": True, "bert": True, "resnet18": False}
QUANTISERS = ("nncf", "onnxruntime-static", "onnxruntime-dynamic", "torchao-dynamic", "pt2e-inductor", "xnnpack")
BERT = """
import torch
from torch import nn
from transformers import BertConfig, BertModel
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        sizes = dict(vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256)
        self.bert = BertModel(BertConfig(**sizes, max_position_embeddings=64), add_pooling_layer=False)
        self.head = nn.Linear(128, 6)
    def forward(self, input_ids, attention_mask):
        return self.head(self.bert(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[:, 0])
model = Net().eval()
inputs = {"input_ids": torch.randint(0, 500, (2, 32)), "attention_mask": torch.ones(2, 32, dtype=torch.int64)}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the JSON file of all pairs; or the word answers")
    parser.add_argument("-c", "--columns", default=",".join(COLUMNS), help="columns to compare")
    parser.add_argument("--rounds", type=int, default=8, help="rounds, each with a sample of both sides")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of processes, both sides compiled anew in each")
    parser.add_argument("--network", help="the network of all columns")
    args = parser.parse_args()
    sys.path.insert(0, str(BY_HAND))
    if str(args.results) == "answers":
        print_answers([args.network] if args.network else list(NETWORKS))
        return
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(BY_HAND), os.environ.get("PYTHONPATH")]))
    pairs: list[dict[str, Any]] = json.loads(args.results.read_text()) if args.results.exists() else []
    args.results.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(args.pairs):
        for column in args.columns.split(","):
            network = args.network or COLUMNS[column][1]
            if sum((pair["column"], pair["network"]) == (column, network) for pair in pairs) < args.pairs:
                # A folder of its own: the same sweep in the same folder is the run that has finished.
                with tempfile.TemporaryDirectory() as folder, set_options(state_dir=folder):
                    pairs.append(_measure_pair(column, network, args.rounds))
                    engines.close()
                args.results.write_text(json.dumps(pairs, indent=1))
    for column in args.columns.split(","):
        _print_ratio(column, [pair for pair in pairs if pair["column"] == column])


def _measure_pair(column: str, network: str, rounds: int) -> dict[str, Any]:
    """Measure both sides, each compiled anew; the median over rounds of the logarithm of our latency over theirs."""
    precision, compiler = COLUMNS[column][0], column.removesuffix("-dynamic")
    labels = [json_label(compiler, precision), f"{compiler}-{precision}-by-hand"]
    sweep = Sweep(network, labels, calibrate="random", repeats=rounds, min_rounds=rounds)
    run = sweep.start()
    data = run.result()
    pair: dict[str, Any] = {"column": column, "network": network}
    failures = [f"{run.trial(failure.trial_id).compiler}: {failure.error}" for failure in run.failures()]
    if failures:
        return {**pair, "problem": "; ".join(failures)}
    ours, theirs = (data["latency"].sel(compiler=label).squeeze().values for label in labels)
    contended = [float(data["contended"].sel(compiler=label).mean()) for label in labels] if "contended" in data else []
    return {
        **pair,
        "log_ratio": float(np.nanmedian(np.log(ours) - np.log(theirs))),
        "ours_s": float(np.nanmedian(ours)),
        "theirs_s": float(np.nanmedian(theirs)),
        "contended": contended,
    }


def print_answers(networks: list[str]) -> None:
    """Print agreement and noise of each quantiser, ngbkit's and by hand, a line each."""
    import torch

    for name in networks:
        for quantiser in QUANTISERS:
            for side in ("ngbkit", "by hand"):
                (workload,) = cell.from_source(BERT, name=name) if name == "bert" else Sweep(name).workloads
                network = building.build(workload, {})
                samples = [_draw_sample(network.inputs, seed) for seed in range(160)]
                with tempfile.TemporaryDirectory() as folder, torch.no_grad():
                    source = Path(folder) / "network.onnx"
                    export.export(network, source, seed=0, batch_size=1)
                    expected = _run(network.module, samples[32:])
                    try:
                        quantise = _quantise if side == "ngbkit" else _quantise_by_hand
                        target = quantise(quantiser, source, network.module, samples[:32], NETWORKS[name])
                        got = _run(target, samples[32:])
                    except Exception as error:  # noqa: BLE001  a failure is a result
                        print(f"{name:24}{quantiser:22}{side:10}{type(error).__name__}: {error}"[:120], flush=True)
                        continue
                agreement = float((got.argmax(1) == expected.argmax(1)).mean())
                noise = np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
                sqnr = float(np.mean(-20 * np.log10(noise)))
                print(f"{name:24}{quantiser:22}{side:10}{agreement:6.3f} {sqnr:6.1f} dB", flush=True)


def _draw_sample(inputs: Any, seed: int) -> dict[str, np.ndarray]:
    """Draw a picture of coarse patches, or tokens of a length that varies."""
    generator = np.random.default_rng(seed)
    if len(inputs) == 1:
        patches = generator.standard_normal((1, 3, 14, 14)).repeat(16, 2).repeat(16, 3)
        noise = 0.3 * generator.standard_normal(patches.shape)
        return {inputs[0].name: (generator.uniform(0.5, 1.5) * patches + noise).astype(np.float32)}
    tokens, mask = generator.integers(0, 500, (1, 32)), np.arange(32)[None] < generator.integers(4, 33)
    return dict(zip((spec.name for spec in inputs), (tokens, mask.astype(np.int64)), strict=True))


def _run(target: Any, samples: list[dict[str, np.ndarray]]) -> np.ndarray:
    """Run a module or a file on samples."""
    if isinstance(target, Path) and target.suffix == ".xml":
        import openvino

        compiled = openvino.Core().compile_model(str(target), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        return np.concatenate([next(iter(compiled(sample).values())) for sample in samples])
    if isinstance(target, Path):
        import onnxruntime

        session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
        return np.concatenate([session.run(None, sample)[0] for sample in samples])
    import torch

    return np.concatenate([target(*map(torch.from_numpy, sample.values())).numpy() for sample in samples])


def _quantise(name: str, source: Path, module: Any, samples: list[dict[str, np.ndarray]], _: bool) -> Any:
    quantiser: Quantiser = registry.load(registry.QUANTISERS, name)
    target = source.with_name(f"quantised{quantiser.suffix}")
    form = {"source": None, "module": module} if quantiser.load else {"source": source, "module": None}
    quantiser.quantise(Quantisation(**form, target=target, batches=samples, threads=2))
    return quantiser.load(target, module) if quantiser.load else target


def _quantise_by_hand(
    name: str, source: Path, module: Any, samples: list[dict[str, np.ndarray]], is_transformer: bool
) -> Any:
    """Quantise as the scripts of byhand/ngbkit_int8_by_hand.py do, with several samples."""
    scripts = importlib.import_module("ngbkit_int8_by_hand")
    return scripts.quantise(name, source, module, samples, is_transformer)


def json_label(compiler: str, precision: str) -> str:
    """Return the label of a column in a precision."""
    return f"{compiler}{json.dumps({'precision': precision}, separators=(',', ':'))}"


def _print_ratio(column: str, pairs: list[dict[str, Any]]) -> None:
    logs = [pair["log_ratio"] for pair in pairs if "log_ratio" in pair]
    for pair in pairs:
        if "problem" in pair:
            print(f"{column:22}{pair['network']:24}{pair['problem'][:160]}")
    if not logs:
        return
    ratio, low, high = np.exp([statistics.fmean(logs), min(logs), max(logs)])
    ours, theirs = (
        1e3 * statistics.median(pair[side] for pair in pairs if side in pair) for side in ("ours_s", "theirs_s")
    )
    verdict = "" if TARGET[0] <= ratio <= TARGET[1] else "  outside 0.97 to 1.03"
    print(
        f"{column:22}{pairs[0]['network']:24}{ours:8.2f} ms {theirs:8.2f} ms  {ratio:.3f}  {low:.3f} to {high:.3f}"
        f" of {len(logs)} pairs{verdict}"
    )


if __name__ == "__main__":
    main()
