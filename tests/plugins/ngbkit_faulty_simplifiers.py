"""Simplifiers that go wrong, one per fault, one that copies, and a rule that fails."""

from __future__ import annotations

import ctypes
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from ngbkit.predict.optimizer.rules import Rule
from ngbkit.predict.optimizer.simplifiers import Simplifier


def _simplifier(name: str, simplify: Callable[[Path, Path], None], package: str = "numpy") -> Simplifier:
    install = f"pip install {package}"
    return Simplifier(name=name, summary=name, packages=(package,), install=install, simplify=simplify)


def _copy(source: Path, target: Path) -> None:
    shutil.copy(source, target)


def _crash(source: Path, target: Path) -> None:
    ctypes.string_at(0)


def _fail(source: Path, target: Path) -> None:
    raise ValueError("no such operator")


def _hang(source: Path, target: Path) -> None:
    time.sleep(3600)


def _do_nothing(source: Path, target: Path) -> None:
    """Write no file."""


def _spoil(source: Path, target: Path) -> None:
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(values * np.float32(1.01), tensor.name))
    onnx.save(model, target)


def _raise(*_: object) -> None:
    raise ValueError("no luck")


ABSENT = _simplifier("absent", _copy, "ngbkit-no-such-package")
COPYING = _simplifier("copying", _copy)
CRASHING = _simplifier("crashing", _crash)
FAILING = _simplifier("failing", _fail)
HANGING = _simplifier("hanging", _hang)
LAZY = _simplifier("lazy", _do_nothing)
WRONG = _simplifier("wrong", _spoil)

RULES = [
    Rule(name="faulty-find", summary="fails", find=_raise, rewrite=_raise),  # type: ignore[arg-type]
    Rule(name="faulty-rewrite", summary="fails", find=lambda graph: ((node,) for node in graph), rewrite=_raise),
]
