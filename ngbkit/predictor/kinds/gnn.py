"""The kind `gnn`: a graph network, fitted to the latencies of networks and to the ratios between variants of one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.files import write_atomically
from ngbkit.predictor.example_set import Examples
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.kinds.additive import Linear, fit_prices
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, iterate_columns
from ngbkit.workloads.base import hash_json

if TYPE_CHECKING:
    from typing import Self

    import torch

    from ngbkit.predictor.kinds.network import Encoded, GraphNetwork

# Graphs predicted at once.
_CHUNK = 128
# Relative errors above this size count linearly instead of quadratically.
_HUBER = 0.1


class Gnn:
    """Positive contributions of operators and of the whole graph: one trunk, and a head per runtime.

    Parameters
    ----------
    epochs
        Passes over the examples.
    width, layers
        The size of the trunk.
    learning_rate
        The highest rate; it rises during the first tenth of the epochs and falls afterwards.
    batch
        Graphs per step.
    pairs
        The weight of the ratios between variants of one network, relative to that of the seconds.
    members
        Networks trained from different seeds; the prediction is their mean.
    folder
        The folder of checkpoints from which interrupted training resumes; None: no checkpoints.
    """

    kind: ClassVar[str] = "gnn"

    def __init__(
        self,
        epochs: int = 60,
        width: int = 96,
        layers: int = 4,
        learning_rate: float = 2e-3,
        batch: int = 32,
        pairs: float = 1.0,
        members: int = 1,
        folder: str | Path | None = None,
    ) -> None:
        self._epochs, self._width, self._layers = epochs, width, layers
        self._rate, self._batch, self._pairs, self._members = learning_rate, batch, pairs, members
        self._folder = Path(folder) if folder is not None else None
        self._networks: list[GraphNetwork] = []
        self._runtimes = 0

    def fit(self, examples: Examples, *, seed: int, progress: Progress) -> None:
        """Fit to all examples but single operators; resume from the checkpoint of an interrupted equal call."""
        from ngbkit.predictor.kinds.network import Encoded

        networks = examples.take(np.flatnonzero(~examples.isolated))
        self._runtimes = len(networks.runtimes)
        encoded = [Encoded.build(graph) for graph in networks.graphs]
        self._networks = [
            self._train(
                networks,
                encoded,
                seed + number,
                lambda share, text, member=number: progress(  # type: ignore[misc]
                    (member + share) / self._members, text
                ),
            )
            for number in range(self._members)
        ]

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        import torch

        from ngbkit.predictor.kinds.network import Encoded, collate

        chunks = []
        with torch.no_grad():
            for start in range(0, len(graphs), _CHUNK):
                batch = collate([Encoded.build(graph) for graph in graphs[start : start + _CHUNK]])
                logs = torch.stack([network.eval()(batch) for network in self._networks])
                chunks.append(torch.exp(logs.double().mean(dim=0)).numpy())
        return np.concatenate(chunks) if chunks else np.empty((0, self._runtimes))

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return the seconds that each operator adds, of shape ``(operators, runtimes)``."""
        import torch

        from ngbkit.predictor.kinds.network import Encoded, collate

        with torch.no_grad():
            batch = collate([Encoded.build(graph)])
            parts = torch.stack([network.eval().predict_parts(batch)[1] for network in self._networks])
        return np.asarray(torch.exp(parts.double()).mean(dim=0).numpy())

    def dump_settings(self) -> dict[str, Any]:
        return {
            **{"epochs": self._epochs, "width": self._width, "layers": self._layers, "learning_rate": self._rate},
            **{"batch": self._batch, "pairs": self._pairs, "members": self._members},
        }

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{number}.{name}": value.numpy()
            for number, network in enumerate(self._networks)
            for name, value in network.state_dict().items()
        }

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        import torch

        model = cls(**settings)
        model._runtimes = len(arrays["0.prices"])
        if max(model._members, model._layers) > len(arrays):
            raise ValueError(
                f"{len(arrays)} arrays are too few for {model._members} networks of {model._layers} layers"
            )
        for number in range(model._members):
            weights = {name.partition(".")[2]: value for name, value in arrays.items() if name.startswith(f"{number}.")}
            with torch.device("meta"):  # no memory before the arrays are known to have the sizes of the settings
                network = model._build_network()
            tensors = {name: torch.from_numpy(np.array(value, np.float32)) for name, value in weights.items()}
            network.load_state_dict(tensors, assign=True)
            model._networks.append(network)
        return model

    def _build_network(self) -> GraphNetwork:
        from ngbkit.predictor.kinds.network import GraphNetwork

        return GraphNetwork(self._runtimes, self._width, self._layers)

    def _fit_prices(self, examples: Examples) -> Floats:
        """Return the prices of the additive model that training starts from; 0 for a runtime without any latency."""
        table = Linear.build_columns(examples.graphs)
        prices = np.zeros((self._runtimes, table.shape[1]))
        for runtime, rows in iterate_columns(examples.seconds):
            prices[runtime] = fit_prices(table[rows], examples.seconds[rows, runtime])
        return prices

    def _train(self, examples: Examples, encoded: list[Encoded], seed: int, progress: Progress) -> GraphNetwork:
        import torch

        from ngbkit.predictor.kinds.network import collate

        truth = torch.from_numpy(np.log(examples.seconds)).float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._build_network()
        network.operator_scale.fit(torch.cat([graph.operators for graph in encoded]))
        network.whole_scale.fit(torch.stack([graph.totals for graph in encoded]))
        network.prices.copy_(torch.from_numpy(self._fit_prices(examples)))
        optimizer = torch.optim.AdamW(network.parameters(), lr=self._rate, weight_decay=1e-4)
        checkpoint = _Checkpoint.open(self._folder, self.dump_settings(), examples, seed)
        start = checkpoint.load(network, optimizer) if checkpoint else 0
        for epoch in range(start, self._epochs):
            for group in optimizer.param_groups:
                group["lr"] = self._rate * _compute_rate_share(epoch / self._epochs)
            # Each epoch has a seed of its own, so that it is the same after an interruption.
            generator = np.random.default_rng([seed, epoch])
            network.train()
            total = 0.0
            for indices in _draw_batches(examples.parents, self._batch, generator):
                loss = self._compute_loss(
                    network(collate([encoded[index] for index in indices])), truth[indices], indices, examples
                )
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
                total += loss.item() * len(indices)
            progress(
                (epoch + 1) / self._epochs, f"epoch {epoch + 1} of {self._epochs}, loss {total / len(encoded):.5f}"
            )
            if checkpoint and ((epoch + 1) % checkpoint.every == 0 or epoch + 1 == self._epochs):
                checkpoint.save(network, optimizer, epoch + 1)
        return network.eval()

    def _compute_loss(
        self, predicted: torch.Tensor, truth: torch.Tensor, indices: Sequence[int], examples: Examples
    ) -> torch.Tensor:
        import torch
        from torch.nn.functional import huber_loss

        finite = torch.isfinite(truth)
        target = torch.where(finite, truth, predicted.detach())
        loss = huber_loss(predicted, target, delta=_HUBER, reduction="sum") / finite.sum().clamp(min=1)
        left, right = _list_pairs([examples.parents[index] for index in indices])
        if self._pairs and len(left):
            paired = finite[left] & finite[right]
            gain = torch.where(paired, truth[left] - truth[right], torch.zeros(()))
            predicted_gain = torch.where(paired, predicted[left] - predicted[right], torch.zeros(()))
            weighted = huber_loss(predicted_gain, gain, delta=_HUBER, reduction="sum") / paired.sum().clamp(min=1)
            loss = loss + self._pairs * weighted
        return loss


class _Checkpoint:
    """The state that training resumes from: weights and the optimizer's state, as plain arrays."""

    every = 10

    def __init__(self, folder: Path, key: str) -> None:
        self._path = folder / f"training-{key}.safetensors"

    @classmethod
    def open(
        cls, folder: Path | None, settings: Mapping[str, Any], examples: Examples, seed: int
    ) -> _Checkpoint | None:
        """Open the checkpoint of these settings, examples and seed; None without a folder."""
        if folder is None:
            return None
        seconds = [[None if value != value else float(value) for value in row] for row in examples.seconds]
        key = {"settings": dict(settings), "seed": seed, "graphs": [graph.digest for graph in examples.graphs]}
        return cls(folder, hash_json({**key, "seconds": seconds}))

    def save(self, network: GraphNetwork, optimizer: torch.optim.Optimizer, epochs: int) -> None:
        from safetensors.torch import save_file

        states = optimizer.state_dict()["state"]
        arrays = {f"network.{name}": value for name, value in network.state_dict().items()}
        arrays |= {
            f"optimiser.{index}.{name}": value for index, state in states.items() for name, value in state.items()
        }
        with write_atomically(self._path) as temporary:
            save_file(
                {name: value.contiguous() for name, value in arrays.items()}, temporary, {"epochs": json.dumps(epochs)}
            )

    def load(self, network: GraphNetwork, optimizer: torch.optim.Optimizer) -> int:
        """Restore the weights and the optimizer, and return the number of finished epochs."""
        if not self._path.exists():
            return 0
        from safetensors import safe_open

        with safe_open(self._path, framework="pt") as file:
            epochs = int(json.loads((file.metadata() or {})["epochs"]))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a mapping
        network.load_state_dict(_select(arrays, "network"))
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in _select(arrays, "optimiser").items():
            index, _, slot = name.partition(".")
            state.setdefault(int(index), {})[slot] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
        return epochs


def _select(arrays: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in arrays.items() if name.startswith(f"{prefix}.")}


def _compute_rate_share(share: float) -> float:
    """Return the factor of the learning rate: it rises during the first tenth, and falls along a cosine."""
    if share < 0.1:
        return 0.1 + 9 * share
    return 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


def _draw_batches(parents: Sequence[str], size: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """Yield all indices in random batches; variants of a network are adjacent, so that they share a batch."""
    names = sorted(set(parents))
    rank = dict(zip(names, generator.permutation(len(names)).tolist(), strict=True))
    shuffled = generator.permutation(len(parents)).tolist()
    ordered = sorted(shuffled, key=lambda index: rank[parents[index]])
    starts = generator.permutation(range(0, len(ordered), size)).tolist()
    yield from (ordered[start : start + size] for start in starts)


def _list_pairs(parents: Sequence[str]) -> tuple[list[int], list[int]]:
    """Pair each variant in a batch with the next two of its network only, so that large families do not dominate."""
    groups: dict[str, list[int]] = {}
    for index, parent in enumerate(parents):
        groups.setdefault(parent, []).append(index)
    pairs = [
        (group[index], group[(index + step) % len(group)])
        for group in groups.values()
        for step in (1, 2)
        for index in range(len(group))
        if len(group) > step
    ]
    return [left for left, _ in pairs], [right for _, right in pairs]
