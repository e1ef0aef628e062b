"""Units: programs read those of the dataset, and people their symbols."""

from __future__ import annotations

import re

import pytest

from ngbkit.metrics.metric import load_metrics
from ngbkit.sweep.variables import COORDINATES, VARIABLES

# UDUNITS reads products of these, with exponents; to it "B" is no byte, and it knows no "samples".
UNITS = re.compile(r"|1|%|(s|(mega)?byte|J)(-?[1-9])?( (s|byte|J)(-?[1-9])?)*")
DECLARED = {name: variable.units for name, variable in {**VARIABLES, **COORDINATES}.items()}
DECLARED |= {name: metric.units for name, metric in load_metrics().items()}


@pytest.mark.parametrize("name", DECLARED)
def test_units_are_those_of_udunits(name: str) -> None:
    """Every unit of a variable is in the form of UDUNITS, which the CF conventions require."""
    assert UNITS.fullmatch(DECLARED[name])


def test_people_read_symbols() -> None:
    """A byte is B, a number has none, and samples a second say so."""
    names = ("throughput", "peak_memory", "weight_bytes", "cpu_percent", "latency", "rmse_ratio", "error")
    symbols = [{**VARIABLES, **COORDINATES}[name].unit_symbol for name in names]

    assert ["samples/s", "B", "B", "%", "s", "", ""] == symbols
