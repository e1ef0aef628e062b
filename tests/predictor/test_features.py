"""What a model sees of a graph."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from onnxgraphs import Builder, graph, residual

from ngbkit.predictor import features, read


def column(name: str, values: np.ndarray) -> list[float]:
    return values[:, features.OPERATOR.index(name)].tolist()


def test_an_operator_is_what_it_is_and_how_large(tmp_path: Path) -> None:
    """One kind each, sizes as logarithms, the window, and whether channels fill a register."""
    build = Builder(channels=16, size=8)
    value = build.conv("x", 32, kernel=3, stride=2)
    found = features.of_operators(graph(build.model(build.add("Relu", build.conv(value, 32, group=32))), tmp_path))

    assert (3, len(features.OPERATOR)) == found.shape
    assert [1.0, 1.0, 1.0] == found[:, : len(features.KINDS) + 1].sum(axis=1).tolist()
    assert [1.0, 1.0, 0.0] == column("is_Conv", found)
    assert pytest.approx(math.log1p(32 * 4 * 4 * 16 * 9)) == column("macs", found)[0]
    assert [3.0, 3.0, 0.0] == column("kernel", found)
    assert [2.0, 1.0, 0.0] == column("stride", found)
    assert [0.0, 1.0, 0.0] == column("depthwise", found)
    assert [1.0, 1.0, 1.0] == column("channels_of_16", found)
    assert pytest.approx([math.log1p(4)] * 3) == column("height", found)


def test_an_operator_that_is_not_known_is_one_of_the_others(tmp_path: Path) -> None:
    """It has a column, which it shares."""
    build = Builder()
    found = features.of_operators(graph(build.model(build.add("Mish", "x")), tmp_path))

    assert [1.0] == column("is_other", found)


def test_the_whole_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    """Totals, and each kind's own."""
    one = read(residual(tmp_path, width=8, blocks=3))
    found = dict(zip(features.WHOLE, np.expm1(features.of_graph(one).astype(float)), strict=True))

    assert pytest.approx(9, rel=1e-5) == found["operators"]
    assert pytest.approx(9, rel=1e-5) == found["longest"]
    assert pytest.approx(3, rel=1e-5) == found["count_of_Conv"]
    assert pytest.approx(one.macs, rel=1e-5) == found["macs_of_Conv"]
    assert pytest.approx(sum(each.bytes for each in one.operators), rel=1e-5) == found["bytes"]


def test_columns_have_names_of_their_own() -> None:
    """As many as there are numbers, each once."""
    for names in (features.OPERATOR, features.WHOLE):
        assert len(names) == len(set(names))
