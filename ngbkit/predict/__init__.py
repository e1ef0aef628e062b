"""Models that predict the runtime of a network from measurements of other networks.

A cost model made for one runtime misleads on another; a model fitted to a runtime's own measurements matches that
runtime. `fit` fits a predictor to a dataset, and `evaluate` compares kinds of models on networks that they were not
fitted to. `examples` builds what they learn from out of files and seconds measured elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ngbkit.exports import export_lazily

if TYPE_CHECKING:
    from ngbkit.predict import forecast, optimizer
    from ngbkit.predict.fitting import fit, load
    from ngbkit.predict.graphs import Graph
    from ngbkit.predict.labels.collection import collect
    from ngbkit.predict.labels.example_set import Examples, load_examples, to_frame
    from ngbkit.predict.labels.labelling import examples
    from ngbkit.predict.labels.merging import merge
    from ngbkit.predict.lowering import lower
    from ngbkit.predict.network_graphs import attach, graph, profile
    from ngbkit.predict.onnx_graphs import read
    from ngbkit.predict.predictor import Predictor
    from ngbkit.predict.scoring.evaluation import evaluate, summary

_EXPORTS = {
    "Examples": "labels.example_set",
    "Graph": "graphs",
    "Predictor": "predictor",
    "attach": "network_graphs",
    "collect": "labels.collection",
    "evaluate": "scoring.evaluation",
    "examples": "labels.labelling",
    "fit": "fitting",
    "forecast": "",
    "graph": "network_graphs",
    "load": "fitting",
    "load_examples": "labels.example_set",
    "lower": "lowering",
    "merge": "labels.merging",
    "optimizer": "",
    "profile": "network_graphs",
    "read": "onnx_graphs",
    "summary": "scoring.evaluation",
    "to_frame": "labels.example_set",
}

__all__ = [
    "Examples",
    "Graph",
    "Predictor",
    "attach",
    "collect",
    "evaluate",
    "examples",
    "fit",
    "forecast",
    "graph",
    "load",
    "load_examples",
    "lower",
    "merge",
    "optimizer",
    "profile",
    "read",
    "summary",
    "to_frame",
]

__getattr__, __dir__ = export_lazily(__name__, _EXPORTS)
