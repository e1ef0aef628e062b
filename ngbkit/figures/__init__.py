"""The figures: a dataset in, an altair chart out, one figure a file."""

from ngbkit.figures.files import save
from ngbkit.figures.overview import overview

__all__ = ["overview", "save"]
