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

    from ngbkit.predict.kinds.graph_network import Encoded, GraphNetwork

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
    pairs
        The weight of the ratios between variants of one network, relative to that of the seconds.
    inside
        The weight of the seconds of operators inside their networks, where a profiler told them, relative to that of
        the seconds of networks.
    members
        Networks trained from different seeds; the prediction is their mean.
    """

    kind: ClassVar[str] = "gnn"

    def __init__(
        self,
        epochs: int = 60,
        width: int = 64,
        layers: int = 3,
        learning_rate: float = 2e-3,
        batch: int = 32,
        pairs: float = 1.0,
        inside: float = 1.0,
        members: int = 1,
    ) -> None:
        self._epochs, self._width, self._layers = epochs, width, layers
        self._rate, self._batch, self._pairs, self._members = learning_rate, batch, pairs, members
        self._inside = inside
        self._networks: list[GraphNetwork] = []
        self._runtimes = 0

    def fit(self, examples: Examples, *, seed: int, report: Progress) -> None:
        from ngbkit.predict.kinds.graph_network import Encoded

        self._runtimes = len(examples.runtimes)
        encoded = [Encoded.build(graph, self._layers) for graph in examples.graphs]
        self._networks = [
            self._train(
                examples,
                encoded,
                seed + number,
                lambda share, text, member=number: report(  # type: ignore[misc]
                    (member + share) / self._members, text
                ),
            )
            for number in range(self._members)
        ]

    def predict(self, graphs: Sequence[Graph]) -> Floats:
        import torch

        from ngbkit.predict.kinds.graph_network import Encoded, collate

        chunks = []
        with torch.no_grad():
            for start in range(0, len(graphs), _CHUNK):
                batch = collate([Encoded.build(graph, self._layers) for graph in graphs[start : start + _CHUNK]])
                logs = torch.stack([network.eval()(batch) for network in self._networks])
                chunks.append(torch.exp(logs.double().mean(dim=0)).numpy())
        return np.concatenate(chunks) if chunks else np.empty((0, self._runtimes))

    def compute_contributions(self, graph: Graph) -> Floats:
        """Return the seconds that each operator adds, of shape ``(operators, runtimes)``."""
        import torch

        from ngbkit.predict.kinds.graph_network import Encoded, collate

        with torch.no_grad():
            batch = collate([Encoded.build(graph, self._layers)])
            parts = torch.stack([network.eval().predict_parts(batch)[1] for network in self._networks])
        return np.asarray(torch.exp(parts.double()).mean(dim=0).numpy())

    def dump_settings(self) -> dict[str, Any]:
        return {
            **{"epochs": self._epochs, "width": self._width, "layers": self._layers, "learning_rate": self._rate},
            **{"batch": self._batch, "pairs": self._pairs, "inside": self._inside, "members": self._members},
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
        from ngbkit.predict.kinds.graph_network import GraphNetwork

        return GraphNetwork(self._runtimes, self._width, self._layers)

    def _train(self, examples: Examples, encoded: list[Encoded], seed: int, report: Progress) -> GraphNetwork:
        import torch

        from ngbkit.predict.kinds.training import Labels, train

        priced, held_out = split_holdout(examples, HOLDOUT, seed)
        training = priced[~examples.isolated[priced]]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._build_network()
        network.standardise([encoded[index] for index in training])
        network.prices.copy_(torch.from_numpy(np.nan_to_num(Linear.find_prices(examples.take(priced)))))
        return train(
            network,
            encoded,
            Labels.build(examples, self._pairs, self._inside),
            training,
            held_out,
            epochs=self._epochs,
            batch=self._batch,
            rate=self._rate,
            seed=seed,
            report=report,
        )
