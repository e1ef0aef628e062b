"""Merges the datasets of several runs by label; every trial is copied whole from the run that measured it.

datasets, trees -> parts (a grid of trials each) -> clusters of parts -> one grid per cluster -> dataset or tree
"""

from ngbkit.dataset.merging.datasets import merge

__all__ = ["merge"]
