"""What a network will take on a runtime, learned from what others took there.

A cost model that was made for one runtime misleads on another; one that was learned from a runtime's own measurements
belongs to it. `fit` learns from a dataset, `evaluate` says how well that works beside simpler models.
"""

from ngbkit.predictor.drawing import draw
from ngbkit.predictor.evaluation import evaluate, summary
from ngbkit.predictor.examples import Examples, attach, collect, graph
from ngbkit.predictor.graphs import Graph, read
from ngbkit.predictor.predictor import Predictor, fit, load
from ngbkit.predictor.profiling import profile

__all__ = [
    "Examples",
    "Graph",
    "Predictor",
    "attach",
    "collect",
    "draw",
    "evaluate",
    "fit",
    "graph",
    "load",
    "profile",
    "read",
    "summary",
]
