"""A graph network, learned from whole networks and from the differences between variants of one."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.files import replacing
from ngbkit.predictor.examples import Examples
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.kinds.additive import Linear, prices
from ngbkit.predictor.kinds.base import Arrays, Floats, Progress, by_runtime
from ngbkit.workloads.base import content_hash

if TYPE_CHECKING:
    from typing import Self

    import torch

    from ngbkit.predictor.kinds.network import Encoded, GraphNetwork

# Graphs that are predicted at once.
_AT_ONCE = 128
# From a relative error of this size on, one counts in proportion and no longer by its square.
_HUBER = 0.1


class Gnn:
    """Positive contributions of operators and a term for the whole, one trunk, and a head a runtime.

    Parameters
    ----------
    epochs
        How often every example is seen.
    width, layers
        Of the trunk.
    learning_rate
        The highest; it rises in the first tenth and falls from there on.
    batch
        Graphs in a step.
    pairs
        The weight of the differences between variants of one network, beside that of the seconds themselves.
    members
        Networks that are trained from other starts, whose mean is the prediction.
    folder
        Where training leaves what it needs to go on after it was ended; None: nowhere.
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
        """Learn from all examples but single operators; go on where an earlier call with the same of all was ended."""
        from ngbkit.predictor.kinds.network import Encoded

        whole = examples.take(np.flatnonzero(~examples.isolated))
        self._runtimes = len(whole.runtimes)
        encoded = [Encoded.of(graph) for graph in whole.graphs]
        self._networks = [
            self._trained(
                whole,
                encoded,
                seed + number,
                lambda share, text, at=number: progress(  # type: ignore[misc]
                    (at + share) / self._members, text
                ),
            )
            for number in range(self._members)
        ]

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        import torch

        from ngbkit.predictor.kinds.network import Encoded, collate

        found = []
        with torch.no_grad():
            for at in range(0, len(graphs), _AT_ONCE):
                batch = collate([Encoded.of(graph) for graph in graphs[at : at + _AT_ONCE]])
                logs = torch.stack([network.eval()(batch) for network in self._networks])
                found.append(torch.exp(logs.double().mean(dim=0)).numpy())
        return np.concatenate(found) if found else np.empty((0, self._runtimes))

    def contributions(self, graph: Graph) -> Floats:
        """What each operator adds, in seconds, of shape ``(operators, runtimes)``."""
        import torch

        from ngbkit.predictor.kinds.network import Encoded, collate

        with torch.no_grad():
            batch = collate([Encoded.of(graph)])
            parts = torch.stack([network.eval().shares(batch)[1] for network in self._networks])
        return np.asarray(torch.exp(parts.double()).mean(dim=0).numpy())

    def settings(self) -> dict[str, Any]:
        return {
            **{"epochs": self._epochs, "width": self._width, "layers": self._layers, "learning_rate": self._rate},
            **{"batch": self._batch, "pairs": self._pairs, "members": self._members},
        }

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {
            f"{number}.{name}": value.numpy()
            for number, network in enumerate(self._networks)
            for name, value in network.state_dict().items()
        }

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        import torch

        found = cls(**settings)
        found._runtimes = len(arrays["0.prices"])
        for number in range(found._members):
            own = {name.partition(".")[2]: value for name, value in arrays.items() if name.startswith(f"{number}.")}
            network = found._new()
            network.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in own.items()})
            found._networks.append(network)
        return found

    def _new(self) -> GraphNetwork:
        from ngbkit.predictor.kinds.network import GraphNetwork

        return GraphNetwork(self._runtimes, self._width, self._layers)

    def _prices(self, examples: Examples) -> Floats:
        """Of the additive model that training begins with; nothing for a runtime that has no number."""
        table = Linear.columns(examples.graphs)
        found = np.zeros((self._runtimes, table.shape[1]))
        for runtime, rows in by_runtime(examples.seconds):
            found[runtime] = prices(table[rows], examples.seconds[rows, runtime])
        return found

    def _trained(self, examples: Examples, encoded: list[Encoded], seed: int, progress: Progress) -> GraphNetwork:
        import torch

        from ngbkit.predictor.kinds.network import collate

        truth = torch.from_numpy(np.log(examples.seconds)).float()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._new()
        network.operator_scale.learn(torch.cat([one.operators for one in encoded]))
        network.whole_scale.learn(torch.stack([one.whole for one in encoded]))
        network.prices.copy_(torch.from_numpy(self._prices(examples)))
        optimiser = torch.optim.AdamW(network.parameters(), lr=self._rate, weight_decay=1e-4)
        kept = _Checkpoint.of(self._folder, self.settings(), examples, seed)
        first = kept.load(network, optimiser) if kept else 0
        for epoch in range(first, self._epochs):
            for group in optimiser.param_groups:
                group["lr"] = self._rate * _schedule(epoch / self._epochs)
            # Of its own seed, so that an epoch is the same whether training was ended before it or not.
            generator = np.random.default_rng([seed, epoch])
            network.train()
            total = 0.0
            for places in _batches(examples.parents, self._batch, generator):
                loss = self._loss(network(collate([encoded[at] for at in places])), truth[places], places, examples)
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
                total += loss.item() * len(places)
            progress(
                (epoch + 1) / self._epochs, f"epoch {epoch + 1} of {self._epochs}, loss {total / len(encoded):.5f}"
            )
            if kept and ((epoch + 1) % kept.every == 0 or epoch + 1 == self._epochs):
                kept.save(network, optimiser, epoch + 1)
        return network.eval()

    def _loss(
        self, predicted: torch.Tensor, truth: torch.Tensor, places: Sequence[int], examples: Examples
    ) -> torch.Tensor:
        import torch
        from torch.nn.functional import huber_loss

        there = torch.isfinite(truth)
        known = torch.where(there, truth, predicted.detach())
        loss = huber_loss(predicted, known, delta=_HUBER, reduction="sum") / there.sum().clamp(min=1)
        first, second = _pairs([examples.parents[at] for at in places])
        if self._pairs and len(first):
            both = there[first] & there[second]
            gain = torch.where(both, truth[first] - truth[second], torch.zeros(()))
            guess = torch.where(both, predicted[first] - predicted[second], torch.zeros(()))
            weighted = huber_loss(guess, gain, delta=_HUBER, reduction="sum") / both.sum().clamp(min=1)
            loss = loss + self._pairs * weighted
        return loss


class _Checkpoint:
    """What is needed to go on training: weights and the optimiser's state, as plain arrays."""

    every = 10

    def __init__(self, folder: Path, key: str) -> None:
        self._path = folder / f"training-{key}.safetensors"

    @classmethod
    def of(cls, folder: Path | None, settings: Mapping[str, Any], examples: Examples, seed: int) -> _Checkpoint | None:
        """None where nothing is to be kept."""
        if folder is None:
            return None
        seconds = [[None if value != value else float(value) for value in row] for row in examples.seconds]
        about = {"settings": dict(settings), "seed": seed, "graphs": [one.digest for one in examples.graphs]}
        return cls(folder, content_hash({**about, "seconds": seconds}))

    def save(self, network: GraphNetwork, optimiser: torch.optim.Optimizer, epochs: int) -> None:
        from safetensors.torch import save_file

        states = optimiser.state_dict()["state"]
        kept = {f"network.{name}": value for name, value in network.state_dict().items()}
        kept |= {f"optimiser.{at}.{name}": value for at, state in states.items() for name, value in state.items()}
        with replacing(self._path) as temporary:
            save_file(
                {name: value.contiguous() for name, value in kept.items()}, temporary, {"epochs": json.dumps(epochs)}
            )

    def load(self, network: GraphNetwork, optimiser: torch.optim.Optimizer) -> int:
        """The epochs that are done."""
        if not self._path.exists():
            return 0
        from safetensors import safe_open

        with safe_open(self._path, framework="pt") as file:
            epochs = int(json.loads((file.metadata() or {})["epochs"]))
            kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
        network.load_state_dict(_of(kept, "network"))
        state: dict[int, dict[str, torch.Tensor]] = {}
        for name, value in _of(kept, "optimiser").items():
            at, _, what = name.partition(".")
            state.setdefault(int(at), {})[what] = value
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
        return epochs


def _of(kept: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(f"{prefix}."): value for name, value in kept.items() if name.startswith(f"{prefix}.")}


def _schedule(share: float) -> float:
    """Of the learning rate: up in the first tenth, and down along a cosine."""
    if share < 0.1:
        return 0.1 + 9 * share
    return 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


def _batches(parents: Sequence[str], size: int, generator: np.random.Generator) -> Iterator[list[int]]:
    """All places in a random order, with the variants of a network beside each other, so that they meet in a batch."""
    names = sorted(set(parents))
    rank = dict(zip(names, generator.permutation(len(names)).tolist(), strict=True))
    shuffled = generator.permutation(len(parents)).tolist()
    ordered = sorted(shuffled, key=lambda at: rank[parents[at]])
    starts = generator.permutation(range(0, len(ordered), size)).tolist()
    yield from (ordered[start : start + size] for start in starts)


def _pairs(parents: Sequence[str]) -> tuple[list[int], list[int]]:
    """Places in a batch of two variants of one network: each with the next ones, so that no large family outweighs."""
    groups: dict[str, list[int]] = {}
    for at, parent in enumerate(parents):
        groups.setdefault(parent, []).append(at)
    pairs = [
        (group[at], group[(at + step) % len(group)])
        for group in groups.values()
        for step in (1, 2)
        for at in range(len(group))
        if len(group) > step
    ]
    return [one for one, _ in pairs], [other for _, other in pairs]
