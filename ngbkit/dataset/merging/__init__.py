"""Where the datasets of several runs become one: each trial whole from the run that measured it, by its labels.

datasets, trees -> parts (a grid of trials each) -> clusters of parts -> one grid a cluster -> dataset or tree
"""

from ngbkit.dataset.merging.datasets import merge

__all__ = ["merge"]
