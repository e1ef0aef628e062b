"""The effects of disturbances, from numbers that are measured by other means than a benchmark."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ngbkit.runs.selfcheck import disturbances
from ngbkit.runs.selfcheck.disturbances import Disturbance, Numbers


def measure(rounds: int, monkeypatch: pytest.MonkeyPatch, numbers: Mapping[str, Numbers]) -> object:
    """Measure disturbances of which each has the same numbers in every round."""
    reference, *others = (Disturbance(name=name, measure=value.copy) for name, value in numbers.items())
    monkeypatch.setattr(disturbances, "REFERENCE", reference)
    return disturbances.measure(rounds=rounds, disturbances=others)


NUMBERS = {
    "nothing": {"identity": 0.010, "onnxruntime": 2.0, "openvino": 4.0},
    "slow": {"identity": 0.020, "onnxruntime": 4.0, "openvino": 4.0},
    "no eval": {"identity": 0.015},
}


def test_an_effect_is_a_ratio_to_the_number_of_the_same_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that a disturbance leaves out gains what the baseline loses; six rounds have an interval."""
    table = disturbances.tabulate(measure(6, monkeypatch, NUMBERS))

    assert ["latency of identity", "speed-up of onnxruntime", "speed-up of openvino"] == list(table.columns)
    assert ["2.00 (2.00 to 2.00)"] * 2 + ["1.00 (1.00 to 1.00)"] == table.loc["nothing", "slow"].tolist()
    assert ["1.50 (1.50 to 1.50)"] * 3 == table.loc["a busy process", "no eval"].tolist()


def test_few_rounds_have_no_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table then has the ratio alone."""
    table = disturbances.tabulate(measure(1, monkeypatch, NUMBERS))

    assert ["2.00", "2.00", "1.00"] == table.loc["nothing", "slow"].tolist()
