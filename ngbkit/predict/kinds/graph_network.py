"""The graph network in plain torch: positive contributions of operators and of the whole graph, which add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ngbkit.predict import features
from ngbkit.predict.graphs import Graph

Integers = NDArray[np.int64]
Codes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The operators of a batch with distinct surroundings, which one layer computes once each.

    `previous` is the state of each before the layer; `producers`, `consumers` and `siblings` are pairs of the state
    that is received and the number of the receiver, of shape ``(2, pairs)``.
    """

    previous: torch.Tensor
    producers: torch.Tensor
    consumers: torch.Tensor
    siblings: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Several graphs as one.

    `operators` are the features of each distinct operator, of shape ``(distinct, features)``. `wholes` are the features
    of the graphs, of shape ``(graphs, features)``. `layers` are the computations of each layer. Each operator of the
    graphs has three indices: `graph` of its graph, `first` of its features, and `last` of its state after all layers.
    """

    operators: torch.Tensor
    wholes: torch.Tensor
    layers: tuple[Surroundings, ...]
    graph: torch.Tensor
    first: torch.Tensor
    last: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One graph as arrays, encoded once and used in many batches.

    `operators` and `totals` are the features of its operators and of the whole graph, `edges` and `siblings` pairs of
    operators of shape ``(2, pairs)``. `codes`, of shape ``(layers + 1, operators)``, are equal for operators with equal
    features and equal surroundings up to that distance.
    """

    operators: features.Floats
    totals: features.Floats
    edges: Integers
    siblings: Integers
    codes: Codes

    @classmethod
    def build(cls, graph: Graph, layers: int) -> Encoded:
        encoded = features.encode(graph)
        edges, siblings = _build_pairs(graph.edges), _build_pairs(graph.siblings)
        codes = [encoded.codes]
        for _ in range(layers):
            codes.append(_hash_surroundings(codes[-1], edges, siblings))
        return cls(
            operators=encoded.operators, totals=encoded.totals, edges=edges, siblings=siblings, codes=np.stack(codes)
        )


def collate(graphs: Sequence[Encoded]) -> Batch:
    """Join graphs into one batch."""
    counts = [len(graph.operators) for graph in graphs]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()
    edges = np.concatenate([graph.edges + start for graph, start in zip(graphs, starts, strict=True)], axis=1)
    siblings = np.concatenate([graph.siblings + start for graph, start in zip(graphs, starts, strict=True)], axis=1)
    both = np.concatenate([siblings, siblings[::-1]], axis=1)
    codes = np.concatenate([graph.codes for graph in graphs], axis=1)
    _, chosen, states = np.unique(codes[0], return_index=True, return_inverse=True)
    operators, first = np.concatenate([graph.operators for graph in graphs])[chosen], states
    layers = []
    for row in codes[1:]:
        _, chosen, new_states = np.unique(row, return_index=True, return_inverse=True)
        numbers = np.full(codes.shape[1], -1)
        numbers[chosen] = np.arange(len(chosen))
        layers.append(
            Surroundings(
                previous=torch.from_numpy(states[chosen]),
                producers=_list_received(edges, states, numbers),
                consumers=_list_received(edges[::-1], states, numbers),
                siblings=_list_received(both, states, numbers),
            )
        )
        states = new_states
    return Batch(
        operators=torch.from_numpy(operators),
        wholes=torch.from_numpy(np.stack([graph.totals for graph in graphs])),
        layers=tuple(layers),
        graph=torch.from_numpy(np.repeat(np.arange(len(graphs)), counts)),
        first=torch.from_numpy(first),
        last=torch.from_numpy(states),
    )


def _list_received(pairs: Integers, states: Integers, numbers: Integers) -> torch.Tensor:
    """Return the states that the numbered operators receive, from pairs of a sender and a receiver."""
    receivers = numbers[pairs[1]]
    computed = receivers >= 0
    return torch.from_numpy(np.stack([states[pairs[0]][computed], receivers[computed]]))


def _hash_surroundings(codes: Codes, edges: Integers, siblings: Integers) -> Codes:
    """Return a hash of each operator and of the sets of its producers, consumers and siblings."""
    mixed = _mix(codes)
    hashes = mixed
    senders_and_receivers = (edges, edges[::-1], np.concatenate([siblings, siblings[::-1]], axis=1))
    for salt, (senders, receivers) in enumerate(senders_and_receivers, start=1):
        sums = np.zeros_like(codes)
        np.add.at(sums, receivers, mixed[senders])  # the order of neighbours is irrelevant
        hashes = _mix(hashes + _mix(sums + np.uint64(salt)))
    return hashes


def _mix(codes: Codes) -> Codes:
    """Return a bijection of 64-bit numbers whose sums rarely collide: the last steps of splitmix64."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


class GraphNetwork(nn.Module):
    """Predicts the logarithm of the seconds of each runtime.

    In each layer an operator receives the states of its producers, its consumers and its siblings, and in the end that
    of a virtual node, which stands for the whole graph. It then contributes a positive number of seconds to each
    runtime: its price in an additive model times a learned factor. One more contribution is that of the whole graph.
    The prediction is their sum, the logarithm of a sum of exponentials.

    Training thus starts from the additive model and learns what it cannot express, and for a network larger than all
    training networks, twice the work still takes about twice as long. `width` and `layers` are the size of the trunk.
    """

    prices: torch.Tensor

    def __init__(self, runtimes: int, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        operator_features, graph_features = len(features.OPERATOR), len(features.WHOLE)
        self.operator_scale, self.whole_scale = Standard(operator_features), Standard(graph_features)
        self.embed = nn.Sequential(nn.Linear(operator_features, width), nn.ReLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.virtual = nn.Sequential(nn.Linear(graph_features + width, width), nn.ReLU(), nn.Linear(width, width))
        self.factor = nn.Linear(width, runtimes)
        self.whole_hidden = nn.Sequential(nn.Linear(graph_features + width, width), nn.ReLU())
        self.whole_factor = nn.Linear(width, runtimes)
        self.register_buffer("prices", torch.zeros(runtimes, 1 + 3 * len(features.PRICED)))
        for last in (self.factor, self.whole_factor):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def standardise(self, graphs: Sequence[Encoded]) -> None:
        """Scale features to the mean 0 and the deviation 1 of these graphs."""
        self.operator_scale.fit(torch.from_numpy(np.concatenate([graph.operators for graph in graphs])))
        self.whole_scale.fit(torch.from_numpy(np.stack([graph.totals for graph in graphs])))

    def drop_factors(self, runtimes: Sequence[bool]) -> None:
        """Predict these runtimes by the prices alone."""
        with torch.no_grad():
            for last in (self.factor, self.whole_factor):
                last.weight[list(runtimes)] = 0.0
                last.bias[list(runtimes)] = 0.0

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return logarithms of seconds, of shape ``(graphs, runtimes)``."""
        return self.predict_parts(batch)[0]

    def predict_parts(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the prediction, and the logarithm of each contribution of an operator, of shape ``(operators,
        runtimes)``.
        """
        hidden = self.embed(self.operator_scale(batch.operators))
        for layer, surroundings in zip(self.layers, batch.layers, strict=True):
            hidden = layer(hidden, surroundings)
        graphs = len(batch.wholes)
        call, costs = self._price(batch.operators)
        pooled = _average(hidden, torch.stack([batch.last, batch.graph]), graphs)
        context = torch.cat([self.whole_scale(batch.wholes), pooled], dim=1)
        states = torch.relu(hidden[batch.last] + self.virtual(context)[batch.graph])
        parts = costs[batch.first] + self.factor(states).clamp(-_LIMIT, _LIMIT)
        remainder = call + self.whole_factor(self.whole_hidden(context)).clamp(-_LIMIT, _LIMIT)
        index = batch.graph[:, None].expand_as(parts)
        largest = remainder.scatter_reduce(0, index, parts, "amax").detach()
        total = torch.exp(remainder - largest).scatter_add(0, index, torch.exp(parts - largest[batch.graph]))
        return largest + torch.log(total), parts

    def _price(self, operators: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logarithms of the price of a call, and of the prices of each operator's amounts."""
        priced = operators[:, : len(features.PRICED)]
        amounts = [priced, *(priced * torch.expm1(operators[:, column : column + 1]) for column in _AMOUNTS)]
        prices = self.prices[:, 1:].reshape(len(self.prices), -1, 3)
        costs = torch.stack([amount @ prices[:, :, index].T for index, amount in enumerate(amounts)]).sum(dim=0)
        return torch.log(self.prices[:, 0] + _LEAST_S), torch.log(costs + _LEAST_S)


# The columns of the operations and the bytes of an operator, which are logarithms.
_AMOUNTS = (features.OPERATOR.index("macs"), features.OPERATOR.index("bytes"))
# The least cost, so that an amount without a price has a logarithm.
_LEAST_S = 1e-7
# The logarithm of the largest and of the smallest factor.
_LIMIT = 12.0


class Standard(nn.Module):
    """Features standardised to the mean 0 and the deviation 1 of the training data."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("deviation", torch.ones(count))

    def fit(self, values: torch.Tensor) -> None:
        """Store the mean and the deviation of these rows."""
        self.mean.copy_(values.mean(dim=0))
        deviation = values.std(dim=0, correction=0)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        # A feature that was constant in training has no effect, and an outlier a bounded one.
        return ((values - self.mean) / self.deviation).clamp(-6.0, 6.0)


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(4 * width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, hidden: torch.Tensor, surroundings: Surroundings) -> torch.Tensor:
        normalised, count = self.norm(hidden), len(surroundings.previous)
        received = [
            _average(normalised, pairs, count)
            for pairs in (surroundings.producers, surroundings.consumers, surroundings.siblings)
        ]
        mixed: torch.Tensor = self.mix(torch.cat([normalised[surroundings.previous], *received], dim=1))
        return hidden[surroundings.previous] + mixed


def _average(states: torch.Tensor, pairs: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean of the states that each receiver has a pair with; 0 if it has none."""
    senders, receivers = pairs
    total = states.new_zeros(count, states.shape[1]).index_add_(0, receivers, states[senders])
    number = torch.bincount(receivers, minlength=count).clamp(min=1)
    return total / number[:, None]


def _build_pairs(pairs: Sequence[tuple[int, int]]) -> Integers:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2).T
