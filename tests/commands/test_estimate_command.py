"""An estimate in words: the same in a shell and in a notebook, with the digits that its intervals support."""

from __future__ import annotations

import numpy as np
import pytest
from drawn import measured

from ngbkit.commands.run import answer_estimate
from ngbkit.metrics.estimate import format_time
from ngbkit.predictor.forecast import SweepEstimate
from ngbkit.predictor.forecast.imputation import VARIABLES, fill


@pytest.fixture
def estimated() -> SweepEstimate:
    """A sweep of which two trials of three are predicted, one without an interval that says much."""
    data = measured(batch_sizes=[1, 4])
    pending = data.assign(status=data["status"].copy(data=np.full(data["status"].shape, "pending", dtype=object)))
    pending["latency"] = pending["latency"] * np.nan
    predictions = {
        ("net", (), "cpu", "openvino", 1): (0.12863036474046108, 0.11, 0.15),
        ("net", (), "cpu", "identity", 1): (0.2, 0.19, 0.21),
        ("net", (), "cpu", "identity", 4): (0.0000123, np.nan, np.nan),
    }
    return SweepEstimate(seconds=84.2, text="4 trials in 2 groups, about 1 min 24 s", data=fill(pending, predictions))


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((0.12863036474046108, 0.11, 0.15), "129 ± 20 ms"),
        ((0.0000123, None, None), "~12 µs"),
        ((2.5, 2.4, 2.6), "2.50 ± 0.10 s"),
        ((3e-9, None, None), "~0.0030 µs"),
    ],
)
def test_a_time_has_sensible_digits_and_a_unit(times: tuple[float, float | None, float | None], text: str) -> None:
    """A time has as many digits as its interval supports, or two."""
    assert text == format_time(*times)


def test_the_likely_results_are_a_table(estimated: SweepEstimate) -> None:
    """A row a group, with the interval of the prediction and the distance to the next compiler, if there is one."""
    first, second = answer_estimate(estimated).report.frames[0].cells

    assert ["openvino", "129 ± 20 ms", "1.55"] == first[-3:]
    assert ["identity", "~12 µs", ""] == second[-3:]


def test_text_and_html_have_the_same_words(estimated: SweepEstimate) -> None:
    """The text and the HTML of an estimate have the same words and no float of full length."""
    text, html = answer_estimate(estimated).to_text(), answer_estimate(estimated)._repr_html_()

    for word in ("4 trials in 2 groups, about 1 min 24 s", "likely fastest", "129 ± 20 ms", "lead"):
        assert word in text
        assert word in html
    assert "0.1286" not in text + html


def test_programs_get_every_digit(estimated: SweepEstimate) -> None:
    """The JSON of an estimate has every digit, and None for a missing end of an interval."""
    report = answer_estimate(estimated).json

    assert 84.2 == report["seconds"]
    assert (0.12863036474046108, 0.11, 0.15) == tuple(report["best"][0][name] for name in ("latency", "low", "high"))
    assert report["best"][1]["low"] is None


def test_the_table_of_python_is_as_before(estimated: SweepEstimate) -> None:
    """The ends of the interval are in the dataset."""
    assert ["compiler", "latency", "measured", "lead", "conclusive"] == list(estimated.best().columns)[-5:]
    assert set(VARIABLES) <= set(estimated.data)
    assert "<SweepEstimate: 4 trials in 2 groups, about 1 min 24 s>" == repr(estimated)
