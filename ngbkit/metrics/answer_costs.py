"""The cost of a precision in answers: agreement, relative error, signal to quantisation noise, and accuracy."""

from __future__ import annotations

from functools import partial
from statistics import NormalDist

import numpy as np
import xarray as xr

from ngbkit.errors import MetricError
from ngbkit.metrics.draws import Sampler
from ngbkit.metrics.metric import Chart, Metric
from ngbkit.metrics.statistics import bound_share

_COUNT = "evaluated_samples"
_NOTES = (
    "It needs samples: `calibrate=` of a sweep, of which every second judges. With `reference=` it is against that "
    "file. The interval is over samples, as if they were drawn from all that the network will see."
)

_SAMPLES = "calibrate=FILE, an .npz of arrays by input name"
_LABELLED = "evaluate=FILE, an .npz of arrays by input name and of labels"


def read_cost(metric: str, data: xr.Dataset, *, needs: str) -> xr.DataArray:
    """Read the variable of a cost; a `MetricError` that says how to measure it where there is none."""
    if needs not in data or _COUNT not in data:
        needed, remedy = ("labelled samples", _LABELLED) if needs == "accuracy" else ("samples", _SAMPLES)
        raise MetricError(
            f"{metric}() needs {needed} that judge a precision, which this dataset lacks. Measure with {remedy}."
        )
    return data[needs]


def _read(name: str, data: xr.Dataset, sampler: Sampler | None) -> xr.DataArray:
    del sampler
    return read_cost(name, data, needs=name)


def _bound_share(name: str, data: xr.Dataset, ci: float) -> tuple[xr.DataArray, xr.DataArray]:
    return bound_share(data[name], data[_COUNT], ci)


def _bound_mean(name: str, data: xr.Dataset, ci: float) -> tuple[xr.DataArray, xr.DataArray]:
    """Compute the interval of a mean over samples, normal by their standard deviation."""
    half = NormalDist().inv_cdf((1 + ci) / 2) * data[f"{name}_sd"] / np.sqrt(data[_COUNT])
    return data[name] - half, data[name] + half


AGREEMENT = Metric(
    name="agreement",
    long_name="agreement with the first answer of the uncompiled network, or of its reference",
    meaning="the share of samples for which the largest number of the first output has the same place",
    formula=r"\frac{1}{n} \sum_i [\arg\max y_c(x_i) = \arg\max y(x_i)]",
    notes=f"{_NOTES} It is Wilson's.",
    compute=partial(_read, "agreement"),
    variables=("agreement", _COUNT),
    interval=partial(_bound_share, "agreement"),
    neutral=np.nan,
    chart=Chart(zero=False),
    place=20,
)
RELATIVE_ERROR = Metric(
    name="relative_error",
    long_name="relative error against the uncompiled network, or its reference",
    meaning="the root of the squared errors of a sample over that of its squared outputs, mean over samples",
    formula=r"\frac{1}{n} \sum_i \frac{\|y_c(x_i) - y(x_i)\|}{\|y(x_i)\|}",
    notes=f"{_NOTES} Of several outputs the worst counts.",
    compute=partial(_read, "relative_error"),
    variables=("relative_error", "relative_error_sd", _COUNT),
    interval=partial(_bound_mean, "relative_error"),
    neutral=np.nan,
    chart=Chart(),
    place=21,
)
SQNR = Metric(
    name="sqnr",
    symbol="SQNR",
    unit_symbol="dB",
    long_name="signal to quantisation noise",
    meaning="the relative error of each sample in decibels, mean over samples: 20 dB are 10 %, 40 dB are 1 %",
    formula=r"-\frac{20}{n} \sum_i \log_{10} \frac{\|y_c(x_i) - y(x_i)\|}{\|y(x_i)\|}",
    notes=f"{_NOTES} Of several outputs the worst counts.",
    compute=partial(_read, "sqnr"),
    variables=("sqnr", "sqnr_sd", _COUNT),
    interval=partial(_bound_mean, "sqnr"),
    neutral=np.nan,
    chart=Chart(zero=False),
    place=22,
)
ACCURACY = Metric(
    name="accuracy",
    long_name="accuracy by the user's labels",
    meaning="the share of samples that are answered right",
    formula=r"\frac{1}{n} \sum_i [\arg\max y_c(x_i) = l_i]",
    notes="It needs labels: `evaluate=` of a sweep. The interval is Wilson's, over samples, as if they were drawn from "
    "all that the network will see. Two columns have the same samples, so that their difference is known better than "
    "either: `accuracy_change`.",
    compute=partial(_read, "accuracy"),
    variables=("accuracy", _COUNT),
    interval=partial(_bound_share, "accuracy"),
    neutral=np.nan,
    chart=Chart(zero=False),
    place=18,
)
