"""The kind `gnn`: a graph network, fitted to the latencies of networks and to the ratios between variants of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ngbkit.predict.graphs import Graph
from ngbkit.predict.kinds.additive import Linear
from ngbkit.predict.kinds.base import Arrays, Floats, Progress
from ngbkit.predict.labels.example_set import Examples
from ngbkit.predict.scoring.splits import HOLDOUT, split_holdout

if TYPE_CHECKING:
    from typing import Self

    from ngbkit.predict.kinds.graph_network import GraphNetwork

# Graphs predicted at once.
_CHUNK = 128


class Gnn:
    """Positive contributions of operators and of the whole graph: one trunk, and a head per runtime.

    Training starts from the prices of an additive model, which single operators take part in. It is not fitted to a
    tenth of the networks: the result is the epoch that predicts these best, and the additive model for a runtime whose
    latencies of these it predicts no worse.

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
    """

    kind: ClassVar[str] = "gnn"

    def __init__(
        self,
        epochs: int = 60,
        width: int = 64,
        layers: int = 3,
        learning_rate: float = 2e-3,
        batch: int = 32,
    ) -> None:
        self._epochs, self._width, self._layers = epochs, width, layers
        self._rate, self._batch = learning_rate, batch
        self._network: GraphNetwork | None = None
        self._runtimes = 0

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:
        import torch

        from ngbkit.predict.kinds.graph_network import Encoded
        from ngbkit.predict.kinds.training import Labels, train

        self._runtimes = len(examples.runtimes)
        encoded = [Encoded.build(graph, self._layers) for graph in examples.graphs]
        priced, held_out = split_holdout(examples, HOLDOUT, seed)
        training = priced[~examples.isolated[priced]]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._build_network()
        network.standardise([encoded[index] for index in training])
        network.prices.copy_(torch.from_numpy(np.nan_to_num(Linear.find_prices(examples.take(priced)))))
        self._network = train(
            network,
            encoded,
            Labels.build(examples),
            training,
            held_out,
            epochs=self._epochs,
            batch=self._batch,
            rate=self._rate,
            seed=seed,
            report=report,
        )

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        parts = [self._predict_parts(graphs[start : start + _CHUNK])[0] for start in range(0, len(graphs), _CHUNK)]
        return np.concatenate([np.empty((0, self._runtimes)), *parts])

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return the seconds that each operator adds, of shape ``(operators, runtimes)``."""
        return self._predict_parts([graph])[1]

    def _predict_parts(self, graphs: Sequence[Graph]) -> tuple[Floats, Floats]:
        """Return the seconds of graphs, and of all their operators: each of shape ``(…, runtimes)``."""
        import torch

        from ngbkit.predict.kinds.graph_network import Encoded, collate

        assert self._network is not None
        with torch.no_grad():
            logs, parts = self._network.eval().predict_parts(
                collate([Encoded.build(each, self._layers) for each in graphs])
            )
        return torch.exp(logs.double()).numpy(), torch.exp(parts.double()).numpy()

    def dump_settings(self) -> dict[str, Any]:
        sizes = {"epochs": self._epochs, "width": self._width, "layers": self._layers}
        return {**sizes, "learning_rate": self._rate, "batch": self._batch}

    def dump_arrays(self) -> dict[str, NDArray[Any]]:
        assert self._network is not None
        return {name: value.numpy() for name, value in self._network.state_dict().items()}

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Arrays) -> Self:
        import torch

        model = cls(**settings)
        model._runtimes = len(arrays["prices"])
        if model._layers > len(arrays):
            raise ValueError(f"{len(arrays)} arrays are too few for a network of {model._layers} layers")
        with torch.device("meta"):  # no memory before the arrays are known to have the sizes of the settings
            network = model._build_network()
        tensors = {name: torch.from_numpy(np.array(value, np.float32)) for name, value in arrays.items()}
        network.load_state_dict(tensors, assign=True)
        model._network = network
        return model

    def _build_network(self) -> GraphNetwork:
        from ngbkit.predict.kinds.graph_network import GraphNetwork

        return GraphNetwork(self._runtimes, self._width, self._layers)
