"""Trains a graph network on most of the networks, and returns the epoch that predicts the others best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import huber_loss

from ngbkit.predict.kinds.base import TOLERANCE, Floats, Progress, compute_weights
from ngbkit.predict.kinds.graph_network import Encoded, GraphNetwork, collate
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.splits import Indices

# Errors of a logarithm above this size count linearly instead of quadratically.
_HUBER = 0.1
# The share of the epochs at the end, 1 of so many, in which the held-out graphs are fitted as well; and the share of
# the schedule of the learning rate that these epochs repeat.
_JOINED, _JOINED_RATE = 5, 0.3
# The least seconds of an operator, so that its logarithm exists: a tick of the profilers.
_LEAST_S = 1e-7
# Graphs predicted at once.
_CHUNK = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """The labels that a network is fitted to: logarithms of seconds, and their ratios between variants of one network.

    `logs` and `weights` are of shape ``(graphs, runtimes)``, `noise` is the standard error of the logarithm of the gain
    of a variant, 0 for an original network. `operators` are the logarithms of the seconds of the operators of each
    graph, of shape ``(operators, runtimes)``, where a profiler told them. All three have the same weight.
    """

    logs: torch.Tensor
    weights: torch.Tensor
    noise: torch.Tensor
    parents: tuple[str, ...]
    operators: tuple[torch.Tensor, ...]

    @classmethod
    def build(cls, examples: Examples) -> Labels:
        variant = np.array([bool(rule) for rule in examples.rules], dtype=bool)
        noise = np.zeros(examples.seconds.shape)
        if examples.errors is not None:
            noise[variant] = np.nan_to_num(examples.errors[variant])
        return cls(
            logs=torch.from_numpy(np.log(examples.seconds)).float(),
            weights=torch.from_numpy(compute_weights(examples)).float(),
            noise=torch.from_numpy(noise).float(),
            parents=examples.parents,
            operators=tuple(
                torch.from_numpy(np.log(np.maximum(seconds, _LEAST_S))).float()
                for seconds in examples.operator_seconds or ()
            ),
        )

    def compute_loss(self, predicted: torch.Tensor, parts: torch.Tensor, indices: Sequence[int]) -> torch.Tensor:
        """Return the loss of the predictions of these graphs, and of `parts`, those of all their operators."""
        logs = self.logs[indices]
        loss = _compute_mean_error(predicted, logs, self.weights[indices])
        left, right = _list_pairs([self.parents[index] for index in indices])
        if left:
            noise = self.noise[indices]
            weights = TOLERANCE / torch.hypot(torch.hypot(noise[left], noise[right]), torch.tensor(TOLERANCE))
            gains, predicted_gains = logs[left] - logs[right], predicted[left] - predicted[right]
            loss = loss + _compute_mean_error(predicted_gains, gains, weights)
        if self.operators:
            operators = torch.cat([self.operators[index] for index in indices])
            owner = torch.repeat_interleave(
                torch.arange(len(indices)), torch.tensor([len(self.operators[index]) for index in indices])
            )
            # What takes more of its network's time counts more, though not in proportion.
            shares = torch.exp((operators - logs[owner]).clamp(max=0.0) / 2) * self.weights[indices][owner]
            loss = loss + _compute_mean_error(parts, operators, shares.nan_to_num())
        return loss

    def compute_errors(
        self, network: GraphNetwork, encoded: Sequence[Encoded], indices: Indices
    ) -> tuple[Floats, Floats]:
        """Return the summed absolute errors of these graphs by runtime, weighted, and the sum of their weights."""
        network.eval()
        total = torch.zeros(2, self.logs.shape[1], dtype=torch.float64)
        with torch.no_grad():
            for start in range(0, len(indices), _CHUNK):
                chunk = indices[start : start + _CHUNK]
                predicted = network(collate([encoded[index] for index in chunk]))
                errors = (predicted - self.logs[chunk]).abs()
                weights = torch.where(torch.isfinite(errors), self.weights[chunk], 0.0)
                total[0] += (weights * errors.nan_to_num()).sum(dim=0)
                total[1] += weights.sum(dim=0)
        return total[0].numpy(), total[1].numpy()


def train(
    network: GraphNetwork,
    encoded: Sequence[Encoded],
    labels: Labels,
    training: Indices,
    held_out: Indices,
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    report: Progress,
) -> GraphNetwork:
    """Train a network on most graphs, and from the epoch with the least error on those that are held out on all.

    A runtime whose latencies of these it predicts no better than at the start is predicted as at the start.
    """
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=1e-4)
    start_errors, weights = labels.compute_errors(network, encoded, held_out)
    best_error, best_state = math.inf, _copy_state(network)
    joined = np.union1d(training, held_out)
    search = epochs - epochs // _JOINED
    for epoch in range(epochs):
        if epoch == search:
            network.load_state_dict(best_state)
        share = epoch / search if epoch < search else 1 - _JOINED_RATE * (1 - (epoch - search) / (epochs - search))
        for group in optimizer.param_groups:
            group["lr"] = rate * _compute_rate_share(share)
        generator = np.random.default_rng([seed, epoch])
        members = training if epoch < search else joined
        loss = _train_epoch(network, optimizer, encoded, labels, members, batch, generator)
        message = f"epoch {epoch + 1} of {epochs}, loss {loss:.5f}"
        if epoch < search:
            errors, _ = labels.compute_errors(network, encoded, held_out)
            error = float(errors.sum() / max(weights.sum(), 1e-9))
            if error < best_error:
                best_error, best_state = error, _copy_state(network)
            message += f", held out {error:.5f}"
        report((epoch + 1) / epochs, message)
    final = _copy_state(network) if epochs > search else best_state
    network.load_state_dict(best_state)
    errors, _ = labels.compute_errors(network, encoded, held_out)
    network.load_state_dict(final)
    network.drop_factors((errors >= start_errors).tolist())
    return network.eval()


def _train_epoch(
    network: GraphNetwork,
    optimizer: torch.optim.Optimizer,
    encoded: Sequence[Encoded],
    labels: Labels,
    members: Indices,
    batch: int,
    generator: np.random.Generator,
) -> float:
    """Train on all members once, and return the mean loss."""
    network.train()
    total = 0.0
    for places in _draw_batches([labels.parents[index] for index in members], batch, generator):
        indices = members[places].tolist()
        predicted, parts = network.predict_parts(collate([encoded[index] for index in indices]))
        loss = labels.compute_loss(predicted, parts, indices)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        total += loss.item() * len(indices)
    return total / len(members)


def _copy_state(network: GraphNetwork) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in network.state_dict().items()}


def _compute_mean_error(predicted: torch.Tensor, truth: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted mean of the errors where there is a label."""
    finite = torch.isfinite(truth)
    # With gradients of at most `_HUBER`, below the norm at which they are clipped.
    errors = huber_loss(predicted, torch.where(finite, truth, predicted.detach()), delta=_HUBER, reduction="none")
    weights = torch.where(finite, weights, 0.0)
    return (weights * errors).sum() / weights.sum().clamp(min=1e-9)


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
