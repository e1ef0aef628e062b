"""Models that predict the runtime of a network from measurements of other networks.

A cost model made for one runtime misleads on another; a model fitted to a runtime's own measurements matches that
runtime. `fit` fits a predictor to a dataset, and `evaluate` compares kinds of models on networks that they were not
fitted to. `examples` builds what they learn from out of files and seconds measured elsewhere.
"""

from ngbkit.predictor.fitting import fit, load
from ngbkit.predictor.graphs import Graph
from ngbkit.predictor.labels.collection import collect
from ngbkit.predictor.labels.example_set import Examples, load_examples
from ngbkit.predictor.labels.frame import to_frame
from ngbkit.predictor.labels.labelling import examples
from ngbkit.predictor.labels.merging import merge
from ngbkit.predictor.lowering import lower
from ngbkit.predictor.network_graphs import attach, graph, profile
from ngbkit.predictor.onnx_graphs import read
from ngbkit.predictor.predictor import Predictor
from ngbkit.predictor.scoring.evaluation import evaluate, summary

__all__ = [
    "Examples",
    "Graph",
    "Predictor",
    "attach",
    "collect",
    "evaluate",
    "examples",
    "fit",
    "graph",
    "load",
    "load_examples",
    "lower",
    "merge",
    "profile",
    "read",
    "summary",
    "to_frame",
]
