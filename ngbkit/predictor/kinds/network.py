"""The graph network itself, in plain torch: positive contributions of operators and of the whole, which add up."""

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

    Parameters
    ----------
    operators
        Features, of shape ``(operators, features)``.
    wholes
        Features of the graphs, of shape ``(graphs, features)``.
    graph
        Which graph each operator is of.
    edges, siblings
        Pairs of operators, of shape ``(2, pairs)``.
    """

    operators: torch.Tensor
    wholes: torch.Tensor
    graph: torch.Tensor
    edges: torch.Tensor
    siblings: torch.Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """One graph as arrays; made once, and put into many batches."""

    operators: torch.Tensor
    whole: torch.Tensor
    edges: torch.Tensor
    siblings: torch.Tensor

    @classmethod
    def of(cls, graph: Graph) -> Encoded:
        return cls(
            operators=torch.from_numpy(features.of_operators(graph)),
            whole=torch.from_numpy(features.of_graph(graph)),
            edges=_pairs(graph.edges),
            siblings=_pairs(graph.siblings),
        )


def collate(several: Sequence[Encoded]) -> Batch:
    """The graphs side by side."""
    counts = [len(one.operators) for one in several]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).tolist()
    return Batch(
        operators=torch.cat([one.operators for one in several]),
        wholes=torch.stack([one.whole for one in several]),
        graph=torch.repeat_interleave(torch.arange(len(several)), torch.tensor(counts)),
        edges=torch.cat([one.edges + start for one, start in zip(several, starts, strict=True)], dim=1),
        siblings=torch.cat([one.siblings + start for one, start in zip(several, starts, strict=True)], dim=1),
    )


class GraphNetwork(nn.Module):
    """Predicts the logarithm of the seconds of each runtime.

    Every operator hears, layer by layer, of those that it takes values from, of those that take its own, and of those
    that take the same as it does. At the end it contributes a positive number of seconds to each runtime: what the
    prices of an additive model say of it, times a factor that is learned; one more is of the graph as a whole. Their
    sum is the prediction, a logarithm of a sum of exponentials.

    So it begins as an additive model, and what it learns is what such a one cannot say: of a network that is larger
    than all that it has seen, it still knows that twice the work takes about twice as long.

    Parameters
    ----------
    runtimes
        Columns of the prediction: one trunk, a head each.
    width, layers
        Of the trunk.
    """

    prices: torch.Tensor

    def __init__(self, runtimes: int, width: int = 96, layers: int = 4) -> None:
        super().__init__()
        own, whole = len(features.OPERATOR), len(features.WHOLE)
        self.operator_scale, self.whole_scale = Standard(own), Standard(whole)
        self.embed = nn.Sequential(nn.Linear(own, width), nn.ReLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(_Layer(width) for _ in range(layers))
        self.factor = nn.Linear(width, runtimes)
        self.whole_hidden = nn.Sequential(nn.Linear(whole + width, width), nn.ReLU())
        self.whole_factor = nn.Linear(width, runtimes)
        self.register_buffer("prices", torch.zeros(runtimes, 1 + 3 * (len(features.KINDS) + 1)))
        for last in (self.factor, self.whole_factor):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def forward(self, batch: Batch) -> torch.Tensor:
        """Logarithms of seconds, of shape ``(graphs, runtimes)``."""
        return self.shares(batch)[0]

    def shares(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """The prediction, and the logarithm of what each operator contributes, of shape ``(operators, runtimes)``."""
        hidden = self.embed(self.operator_scale(batch.operators))
        for layer in self.layers:
            hidden = layer(hidden, batch.edges, batch.siblings)
        graphs = len(batch.wholes)
        call, parts = self._additive(batch.operators)
        parts = parts + self.factor(hidden).clamp(-_MOST, _MOST)
        pooled = _mean(hidden, batch.graph, graphs)
        about = torch.cat([self.whole_scale(batch.wholes), pooled], dim=1)
        whole = call + self.whole_factor(self.whole_hidden(about)).clamp(-_MOST, _MOST)
        index = batch.graph[:, None].expand_as(parts)
        most = whole.scatter_reduce(0, index, parts, "amax").detach()
        total = torch.exp(whole - most).scatter_add(0, index, torch.exp(parts - most[batch.graph]))
        return most + torch.log(total), parts

    def _additive(self, operators: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logarithms of what a call costs, and of what each operator does, by the prices alone."""
        kinds = operators[:, : len(features.KINDS) + 1]
        amounts = [kinds, *(kinds * torch.expm1(operators[:, at : at + 1]) for at in _AMOUNTS)]
        by_kind = self.prices[:, 1:].reshape(len(self.prices), -1, 3)
        costs = torch.stack([amount @ by_kind[:, :, at].T for at, amount in enumerate(amounts)]).sum(dim=0)
        return torch.log(self.prices[:, 0] + _LEAST_S), torch.log(costs + _LEAST_S)


# The columns of the operations and of the bytes of an operator, which are logarithms.
_AMOUNTS = (features.OPERATOR.index("macs"), features.OPERATOR.index("bytes"))
# What an additive model has no price for may still cost something.
_LEAST_S = 1e-7
# The logarithm of the largest factor either way.
_MOST = 12.0


class Standard(nn.Module):
    """Features with the mean 0 and the deviation 1 that they had in training."""

    mean: torch.Tensor
    deviation: torch.Tensor

    def __init__(self, count: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(count))
        self.register_buffer("deviation", torch.ones(count))

    def learn(self, values: torch.Tensor) -> None:
        """Take the mean and the deviation of these rows."""
        self.mean.copy_(values.mean(dim=0))
        deviation = values.std(dim=0, correction=0)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        # What was constant in training has no say, and what is far outside has a bounded one.
        return ((values - self.mean) / self.deviation).clamp(-6.0, 6.0)


class _Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Sequential(nn.Linear(4 * width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, hidden: torch.Tensor, edges: torch.Tensor, siblings: torch.Tensor) -> torch.Tensor:
        seen = self.norm(hidden)
        count, (start, end), (one, other) = len(seen), edges, siblings
        before, after = _mean(seen[start], end, count), _mean(seen[end], start, count)
        beside = _mean(torch.cat([seen[other], seen[one]]), torch.cat([one, other]), count)
        mixed: torch.Tensor = self.mix(torch.cat([seen, before, after, beside], dim=1))
        return hidden + mixed


def _mean(values: torch.Tensor, index: torch.Tensor, count: int) -> torch.Tensor:
    """The mean of the rows of each index; 0 where there is none."""
    total = values.new_zeros(count, values.shape[1]).index_add_(0, index, values)
    number = torch.bincount(index, minlength=count).clamp(min=1)
    return total / number[:, None]


def _pairs(pairs: Sequence[tuple[int, int]]) -> torch.Tensor:
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
