"""The learning curve scores models of more and more networks on the same others, and its figure shows the floor."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn import Spec
from learned import build_examples

from ngbkit import predictor
from ngbkit.errors import UsageError
from ngbkit.predictor import Examples
from ngbkit.predictor.scoring import scores


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    examples = build_examples(tmp_path_factory.mktemp("graphs"))
    return replace(examples, errors=np.full(examples.seconds.shape, 0.02))


@pytest.fixture(scope="module")
def curve(examples: Examples) -> pd.DataFrame:
    return predictor.learning_curve(examples, ["flops", "linear"], sizes=[5, 8], seeds=[0, 1])


def test_a_curve_has_a_row_per_size(curve: pd.DataFrame) -> None:
    """Each size is scored on the same networks."""
    assert 2 * 2 * 2 * 2 == len(curve)
    assert [5, 8] == sorted(set(curve["networks"]))
    assert 1 == curve["graphs"].nunique()
    assert pytest.approx(scores.noise_floor([0.02])) == curve["floor"].iloc[0]


def test_the_default_sizes_are_halves(examples: Examples) -> None:
    """Less than five networks are no training set."""
    assert [8] == sorted(set(predictor.learning_curve(examples, ["flops"])["networks"]))


@pytest.mark.parametrize("sizes", [[9], [2]])
def test_an_impossible_size_is_an_error(examples: Examples, sizes: list[int]) -> None:
    """The error lists the possible ones."""
    with pytest.raises(UsageError, match="expected numbers of networks from 5 to 8"):
        predictor.learning_curve(examples, ["flops"], sizes=sizes)


def test_a_curve_goes_on_as_a_power() -> None:
    """An error that halves with twice the networks is a tenth of it with ten times as many, but not below the floor."""
    labels = {"kind": "gnn", "device": "cpu", "compiler": "openvino"}
    table = pd.DataFrame([labels | {"networks": n, "mape": 2 / n, "floor": 0.001} for n in (10, 20, 40)])
    (row,) = predictor.extrapolate(table).to_dict("records")

    assert pytest.approx((400, 0.005, -1.0)) == (row["networks"], row["mape"], row["exponent"])
    (row,) = predictor.extrapolate(table.assign(floor=0.02)).to_dict("records")
    assert pytest.approx(0.02) == row["mape"]
    assert predictor.extrapolate(table[:1]).empty


def test_the_figure_has_a_line_per_kind_and_the_floor(curve: pd.DataFrame) -> None:
    """A panel per runtime; the axis is in per cent."""
    chart = predictor.draw_curve(curve)
    rows = Spec(chart).rows

    assert "mean of 2 seeds" in str(chart.title.subtitle)
    assert all(row["low"] < row["mape"] < row["high"] for row in rows if row["kind"] == "flops")
    assert {"flops", "linear"} == {row["kind"] for row in rows}
    assert {"openvino", "onnxruntime"} == {row["runtime"] for row in rows}
    assert 8 == len(rows)
    assert all(row["floor"] == pytest.approx(0.016, rel=0.01) for row in rows)
    with pytest.raises(UsageError, match="empty"):
        predictor.draw_curve(curve[:0])
