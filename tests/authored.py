"""Notebooks as an author writes them."""

from __future__ import annotations

from typing import Any

from nbformat.v4 import new_notebook

SWEEP = "-c identity,onnxruntime -b 1,2 -r 10 --threads 1 -o ds"


def build_notebook(*cells: Any) -> Any:
    notebook = new_notebook(cells=list(cells))
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    return notebook
