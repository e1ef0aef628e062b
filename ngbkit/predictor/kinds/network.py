"""The graph network in plain torch: positive contributions of operators and of the whole graph, which add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from ngbkit.predictor import features
from ngbkit.predictor.graphs import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Several graphs as one.

    `operators` and `wholes` are features of shape ``(operators, features)`` and ``(graphs, features)``, `graph` the
    index of the graph of each operator, `edges` and `siblings` pairs of operators of shape ``(2, pairs)``.
    """

    operators: torch.Tensor
    wholes: torch.Tensor
    graph: torch.Tensor
    edges: torch.Tensor
    siblings: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One graph as arrays, encoded once and used in many batches; `totals` are the features of the whole graph."""

    operators: torch.Tensor
    totals: torch.Tensor
    edges: torch.Tensor
    siblings: torch.Tensor

    @classmethod
    def build(cls, graph: Graph) -> Encoded:
        return cls(
            operators=torch.from_numpy(features.encode_operators(graph)),
            totals=torch.from_numpy(features.encode_graph(graph)),
            edges=_build_pairs(graph.edges),
            siblings=_build_pairs(graph.siblings),
        )


def collate(graphs: Sequence[Encoded]) -> Batch:
    """Join graphs into one batch."""
    counts = [len(graph.operators) for graph in graphs]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()
    return Batch(
        operators=torch.cat([graph.operators for graph in graphs]),
        wholes=torch.stack([graph.totals for graph in graphs]),
        graph=torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor(counts)),
        edges=torch.cat([graph.edges + start for graph, start in zip(graphs, starts, strict=True)], dim=1),
        siblings=torch.cat([graph.siblings + start for graph, start in zip(graphs, starts, strict=True)], dim=1),
    )


class GraphNetwork(nn.Module):
    """Predicts the logarithm of the seconds of each runtime.

    In each layer an operator receives the states of its producers, its consumers and its siblings. In the end it
    contributes a positive number of seconds to each runtime: its price in an additive model times a learned factor; one
    more contribution is that of the whole graph. The prediction is their sum, the logarithm of a sum of exponentials.

    Training thus starts from the additive model and learns what it cannot express, and for a network larger than all
    training networks, twice the work still takes about twice as long. `width` and `layers` are the size of the trunk.
    """

    prices: torch.Tensor

    def __init__(self, runtimes: int, width: int = 96, layers: int = 4) -> None:
        super().__init__()
        operator_features, graph_features = len(features.OPERATOR), len(features.WHOLE)
        self.operator_scale, self.whole_scale = Standard(operator_features), Standard(graph_features)
        self.embed = nn.Sequential(nn.Linear(operator_features, width), nn.ReLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.factor = nn.Linear(width, runtimes)
        self.whole_hidden = nn.Sequential(nn.Linear(graph_features + width, width), nn.ReLU())
        self.whole_factor = nn.Linear(width, runtimes)
        self.register_buffer("prices", torch.zeros(runtimes, 1 + 3 * (len(features.KINDS) + 1)))
        for last in (self.factor, self.whole_factor):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Return logarithms of seconds, of shape ``(graphs, runtimes)``."""
        return self.predict_parts(batch)[0]

    def predict_parts(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the prediction, and the logarithm of each contribution of an operator, of shape ``(operators,
        runtimes)``.
        """
        hidden = self.embed(self.operator_scale(batch.operators))
        for layer in self.layers:
            hidden = layer(hidden, batch.edges, batch.siblings)
        graphs = len(batch.wholes)
        call, parts = self._price(batch.operators)
        parts = parts + self.factor(hidden).clamp(-_LIMIT, _LIMIT)
        pooled = _average(hidden, batch.graph, graphs)
        context = torch.cat([self.whole_scale(batch.wholes), pooled], dim=1)
        remainder = call + self.whole_factor(self.whole_hidden(context)).clamp(-_LIMIT, _LIMIT)
        index = batch.graph[:, None].expand_as(parts)
        largest = remainder.scatter_reduce(0, index, parts, "amax").detach()
        total = torch.exp(remainder - largest).scatter_add(0, index, torch.exp(parts - largest[batch.graph]))
        return largest + torch.log(total), parts

    def _price(self, operators: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logarithms of the price of a call, and of the prices of each operator's amounts."""
        kinds = operators[:, : len(features.KINDS) + 1]
        amounts = [kinds, *(kinds * torch.expm1(operators[:, column : column + 1]) for column in _AMOUNTS)]
        by_kind = self.prices[:, 1:].reshape(len(self.prices), -1, 3)
        costs = torch.stack([amount @ by_kind[:, :, index].T for index, amount in enumerate(amounts)]).sum(dim=0)
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

    def forward(self, hidden: torch.Tensor, edges: torch.Tensor, siblings: torch.Tensor) -> torch.Tensor:
        normalised = self.norm(hidden)
        count, (start, end), (left, right) = len(normalised), edges, siblings
        producers, consumers = _average(normalised[start], end, count), _average(normalised[end], start, count)
        neighbours = _average(torch.cat([normalised[right], normalised[left]]), torch.cat([left, right]), count)
        mixed: torch.Tensor = self.mix(torch.cat([normalised, producers, consumers, neighbours], dim=1))
        return hidden + mixed


def _average(values: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean of the rows of each index; 0 if there is none."""
    total = values.new_zeros(count, values.shape[1]).index_add_(0, index, values)
    number = torch.bincount(index, minlength=count).clamp(min=1)
    return total / number[:, None]


def _build_pairs(pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
