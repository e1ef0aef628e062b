"""The features of operators and of graphs."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from learned import graph
from onnxgraphs import Builder, residual

from ngbkit.predict import features, read


def get_column(name: str, values: np.ndarray) -> list[float]:
    return values[:, features.OPERATOR.index(name)].tolist()


def test_an_operator_is_encoded_with_its_kind_and_sizes(tmp_path: Path) -> None:
    """The features are one kind, logarithms of sizes, the window, and whether channels fill a register."""
    build = Builder(channels=16, size=8)
    value = build.conv("x", 32, kernel=3, stride=2)
    rows = features.encode(graph(build.model(build.add("Relu", build.conv(value, 32, group=32))), tmp_path)).operators

    assert (3, len(features.OPERATOR)) == rows.shape
    assert [1.0, 1.0, 1.0] == rows[:, : len(features.PRICED)].sum(axis=1).tolist()
    assert [1.0, 1.0, 0.0] == get_column("is_Conv", rows)
    assert pytest.approx(math.log1p(32 * 4 * 4 * 16 * 9)) == get_column("macs", rows)[0]
    assert [3.0, 3.0, 0.0] == get_column("kernel", rows)
    assert [2.0, 1.0, 0.0] == get_column("stride", rows)
    assert [0.0, 1.0, 0.0] == get_column("depthwise", rows)
    assert [1.0, 1.0, 1.0] == get_column("channels_of_16", rows)
    assert pytest.approx([math.log1p(4)] * 3) == get_column("height", rows)


@pytest.mark.parametrize(
    ("channels", "outputs", "settings", "ragged"),
    [
        (16, 32, {"kernel": 3}, set()),
        (3, 16, {"kernel": 3}, set()),
        (24, 32, {"kernel": 3}, {"Conv_not_of_16"}),
        (16, 24, {"kernel": 1}, {"PointwiseConv_not_of_16"}),
        (20, 20, {"kernel": 3, "group": 20}, {"DepthwiseConv_not_of_8", "DepthwiseConv_not_of_16"}),
        (32, 32, {"kernel": 3, "group": 4}, {"GroupedConv_not_of_16"}),
    ],
)
def test_channels_that_fill_no_register_have_a_price(
    channels: int, outputs: int, settings: dict[str, int], ragged: set[str], tmp_path: Path
) -> None:
    """Channels that fill no register have a price beside that of the kind."""
    build = Builder(channels=channels, size=8)
    row = features.encode(graph(build.model(build.conv("x", outputs, **settings)), tmp_path)).operators[0]
    priced = {name for name, value in zip(features.PRICED, row, strict=False) if value}

    assert {"Conv"} | ragged == priced


def test_an_unknown_operator_is_other(tmp_path: Path) -> None:
    """An unknown operator has the shared column."""
    build = Builder()
    rows = features.encode(graph(build.model(build.add("Mish", "x")), tmp_path)).operators

    assert [1.0] == get_column("is_other", rows)


def test_the_whole_is_the_sum_of_its_parts(tmp_path: Path) -> None:
    """The features of a graph are totals, overall and by kind."""
    graph_ = read(residual(tmp_path, width=8, blocks=3))
    totals = dict(zip(features.WHOLE, np.expm1(features.encode_graph(graph_).astype(float)), strict=True))

    assert pytest.approx(9, rel=1e-5) == totals["operators"]
    assert pytest.approx(9, rel=1e-5) == totals["longest"]
    assert pytest.approx(3, rel=1e-5) == totals["count_of_Conv"]
    assert pytest.approx(graph_.macs, rel=1e-5) == totals["macs_of_Conv"]
    assert pytest.approx(sum(operator.bytes for operator in graph_.operators), rel=1e-5) == totals["bytes"]


def test_column_names_are_distinct() -> None:
    """Column names are distinct."""
    for names in (features.OPERATOR, features.WHOLE):
        assert len(names) == len(set(names))


def test_equal_operators_are_encoded_once(tmp_path: Path) -> None:
    """Equal operators have equal codes, whatever their names."""
    codes = features.encode(read(residual(tmp_path, width=8, blocks=2))).codes
    wider = features.encode(read(residual(tmp_path, width=16, blocks=2))).codes

    assert codes[0] == codes[3]
    assert 3 == len(set(codes.tolist()))
    assert not set(codes.tolist()) & set(wider.tolist())
