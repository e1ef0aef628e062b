"""The graph network computes operators with equal surroundings once, and predicts as if it computed each."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from learned import graph
from onnxgraphs import Builder, residual

from ngbkit.predict import Graph, read
from ngbkit.predict.kinds.graph_network import Encoded, GraphNetwork, collate

LAYERS = 2


def build_graphs(folder: Path) -> list[Graph]:
    """Build stacks of blocks, and a network with parallel branches."""
    build = Builder(8)
    branches = [build.add("Relu", build.conv("x", 8, kernel)) for kernel in (1, 1, 3)]
    parallel = graph(build.model(build.add("Add", build.add("Add", *branches[:2]), branches[2])), folder)
    return [read(residual(folder, 8, blocks)) for blocks in (2, 6)] + [parallel]


def build_network() -> GraphNetwork:
    """Build a network whose factors matter."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = GraphNetwork(2, 16, LAYERS)
        for last in (network.factor, network.whole_factor):
            torch.nn.init.normal_(last.weight)
        network.prices.uniform_(1e-10, 1e-9)
    return network.eval()


def test_operators_with_equal_surroundings_are_computed_once(tmp_path: Path) -> None:
    """The prediction is that of a batch in which no two operators share a computation."""
    encoded = [Encoded.build(graph_, LAYERS) for graph_ in build_graphs(tmp_path)]
    count = sum(len(graph_.operators) for graph_ in encoded)
    ends = np.cumsum([len(graph_.operators) for graph_ in encoded]).tolist()
    distinct = [
        replace(graph_, codes=np.tile(np.arange(end - len(graph_.operators), end, dtype=np.uint64), (LAYERS + 1, 1)))
        for graph_, end in zip(encoded, ends, strict=True)
    ]
    shared, separate = collate(encoded), collate(distinct)
    network = build_network()

    assert len(shared.layers[-1].previous) < 0.8 * count
    assert count == len(separate.layers[-1].previous) == len(separate.operators)
    with torch.no_grad():
        for expected, actual in zip(network.predict_parts(separate), network.predict_parts(shared), strict=True):
            torch.testing.assert_close(actual, expected)


def test_a_graph_is_predicted_alike_alone_and_in_a_batch(tmp_path: Path) -> None:
    """Other graphs of the batch have no effect."""
    encoded = [Encoded.build(graph_, LAYERS) for graph_ in build_graphs(tmp_path)]
    network = build_network()

    with torch.no_grad():
        together = network(collate(encoded))
        alone = torch.cat([network(collate([graph_])) for graph_ in encoded])
    torch.testing.assert_close(alone, together)


def test_codes_differ_by_surroundings(tmp_path: Path) -> None:
    """Both first ReLUs are equal operators after equal ones; a layer later their consumers differ."""
    build = Builder(8)
    first, second = (build.add("Relu", build.conv("x", 8, 1)) for _ in range(2))
    encoded = Encoded.build(graph(build.model(build.add("Sigmoid", first), second), tmp_path), LAYERS)
    relus = encoded.operators[:, 1 + 5] > 0  # the column is_Relu

    assert 2 == relus.sum()
    assert [1, 2, 2] == [len(set(row[relus].tolist())) for row in encoded.codes]


def test_dropped_factors_leave_the_prices(tmp_path: Path) -> None:
    """The other runtime keeps its factors."""
    batch = collate([Encoded.build(graph_, LAYERS) for graph_ in build_graphs(tmp_path)])
    network, plain = build_network(), GraphNetwork(2, 16, LAYERS)
    plain.prices.copy_(network.prices)
    before = network(batch)
    network.drop_factors([True, False])

    torch.testing.assert_close(network(batch)[:, 0], plain(batch)[:, 0])
    torch.testing.assert_close(network(batch)[:, 1], before[:, 1])
    assert not torch.allclose(before[:, 0], plain(batch)[:, 0])
