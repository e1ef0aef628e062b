"""Small datasets, written by hand."""

from measured import deepening, measured, scaling

__all__ = ["deepening", "measured", "scaling"]
