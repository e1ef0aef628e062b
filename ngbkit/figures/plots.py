"""The figures as methods of every dataset and tree: ``ds.ngb.plot.speedup()``."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from ngbkit import figures
from ngbkit.dataset import schema
from ngbkit.dataset.storage import Data
from ngbkit.figures.methods import to_method


class Plots:
    """The figures of `ngbkit.figures` as methods, those of metrics included.

    Besides its own parameters, each accepts the labels to draw by the name of their dim:
    ``ds.ngb.plot.speedup(compiler=["openvino", "tvm"], batch_size=8)``. Their reference need not be among them.
    """

    def __init__(self, data: Data) -> None:
        self._data = data

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name not in figures.list_figures():
            raise AttributeError(f"there is no figure {name!r}; `ngbkit.figures.list_figures()` lists them")
        return MethodType(schema.explain_damage(to_method(getattr(figures, name), "_data")), self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *figures.list_figures()})
