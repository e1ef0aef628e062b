"""Different programs in a self-check: what can be told of their speed-up, from datasets whose truth is drawn."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import synthetic
import xarray as xr
from measured import build_rounds
from selfchecks import NOISE, make

from ngbkit import metrics
from ngbkit.metrics.draws import HOSTED_SD
from ngbkit.metrics.statistics import Floats
from ngbkit.runs.selfcheck import noise
from ngbkit.runs.selfcheck.report import Pair

ROUNDS, SAMPLES = 20, 5
SPEEDUP = 2.0


def draw(groups: int, *, round_sd: float, group_sd: float, hog: bool = False, bend: float = 1.0) -> xr.Dataset:
    """Draw groups of identity, its copy and a compiler twice as fast; a busy process makes it `bend` times faster."""
    sweep = noise.build_sweep(groups, hog=hog, compilers=("onnxruntime",), repeats=ROUNDS * SAMPLES)
    dataset = synthetic.make_dataset(sweep)
    generator = np.random.default_rng(0)
    latency = dataset["latency"].transpose("replicate", "compiler", ..., "repeat")
    values = np.full(latency.shape, 1e-3)
    shape = (*(1 for _ in latency.shape[2:-1]), 1)
    by_group = generator.normal(0, group_sd, (latency.shape[0], *shape))
    by_round = np.repeat(generator.normal(0, round_sd, (*latency.shape[:1], *latency.shape[2:-1], ROUNDS)), SAMPLES, -1)
    values[:, 2] = 1e-3 / SPEEDUP * np.exp(by_group + by_round)
    latency = latency.copy(data=values)
    if hog:
        latency = latency.where((latency["hog"] == 0) | (latency["compiler"] != "onnxruntime"), latency / bend)
    rounds = xr.zeros_like(latency, dtype=int) + xr.DataArray(np.repeat(np.arange(ROUNDS), SAMPLES), dims=["repeat"])
    dims = dataset["latency"].dims
    return dataset.assign(latency=latency.transpose(*dims), round=rounds.transpose(*dims))


def test_the_spread_of_a_speed_up_between_groups_is_estimated() -> None:
    """Intervals that allow for it agree as often as they claim; the copies do not show it."""
    data = draw(100, round_sd=0.01, group_sd=0.05)
    (pair,) = noise.estimate_pairs(data)
    quiet, _ = noise.estimate(data)

    assert ("onnxruntime", False, 100, 0, "") == (
        pair.compiler,
        pair.beside_busy,
        pair.groups,
        pair.inconclusive,
        pair.problem,
    )
    assert pytest.approx(0.05, rel=0.25) == pair.group_sd
    assert 1.96 * 0.04 < pair.half_width < 1.96 * 0.07
    assert pair.low < SPEEDUP < pair.high
    assert 0.88 <= pair.agreeing / pair.judged <= 1
    assert 0 == quiet.process_sd


def test_a_busy_process_that_bends_one_program_is_seen() -> None:
    """Copies cannot show it; the intervals of its groups miss what the quiet ones measured."""
    data = draw(20, round_sd=0.01, group_sd=0.0, hog=True, bend=1.4)
    quiet, busy = noise.estimate_pairs(data)
    text = make(pairs=(quiet, busy)).to_report().to_text()

    assert (False, True) == (quiet.beside_busy, busy.beside_busy)
    assert pytest.approx(1.4, rel=0.02) == busy.speedup / quiet.speedup
    assert quiet.agreeing >= 8
    assert (10, 10, 0) == (quiet.judged, busy.judged, busy.agreeing)
    assert "The speed-up of onnxruntime over identity is 1.40 times as high beside a busy process." in text
    assert "Only 0 of 10 intervals of onnxruntime over identity beside a busy process contain what the quiet" in text
    assert "onnxruntime, beside a busy process" in text


def test_groups_that_are_not_conclusive_are_counted_and_left_out() -> None:
    """The estimates are of the others, as long as there are any."""
    data = draw(12, round_sd=0.01, group_sd=0.0)
    contended = xr.zeros_like(data["latency"]) + ((data["replicate"] < 4) & (data["compiler"] == "onnxruntime"))
    bent = data.assign(
        contended=contended,
        latency=data["latency"].where(contended == 0, data["latency"] / 3),
    )
    (pair,) = noise.estimate_pairs(bent)
    (all_bent,) = noise.estimate_pairs(bent.isel(replicate=slice(4)))

    assert (12, 4) == (pair.groups, pair.inconclusive)
    assert pytest.approx(SPEEDUP, rel=0.02) == pair.speedup
    assert (4, 4) == (all_bent.groups, all_bent.inconclusive)
    assert pytest.approx(3 * SPEEDUP, rel=0.02) == all_bent.speedup
    assert "4 of 12 groups of onnxruntime are marked as not conclusive" in make(pairs=(pair,)).to_report().to_text()


def test_a_compiler_that_is_missing_is_told() -> None:
    """The rest of the check goes on without it."""
    data = draw(6, round_sd=0.01, group_sd=0.0)
    missing = data["compiler"] == "onnxruntime"
    data = data.assign(
        status=xr.where(missing, "unsupported", data["status"]), error=xr.where(missing, "not installed", data["error"])
    )
    quiet, _ = noise.estimate(data)
    (pair,) = noise.estimate_pairs(data)

    assert (6, 0) == (quiet.groups, quiet.failed)
    assert "not installed" == pair.problem
    assert math.isnan(pair.speedup)
    assert "not installed" in make(pairs=(pair,))._repr_html_()


def test_the_report_says_how_well_each_pair_is_known() -> None:
    """The report has the uncertainty of each pair, and the effect of a drift on it."""
    ends = {"low": 1.9, "high": 2.1, "group_sd": 0.04, "half_width": 0.08}
    pair = Pair(compiler="openvino", groups=12, speedup=2.0, judged=12, agreeing=12, **ends)
    unsteady = make(quiet=replace(NOISE, drift=0.53, process_sd=0.0), pairs=(pair,))
    text = "\n".join(unsteady.conclude())

    assert "known to ± 8 % for openvino here" in text
    assert "that of two copies of identity by 0 %, that of identity to openvino by 4 % (standard deviations" in text
    assert "2.00 ± 0.10" in unsteady.to_report().to_text()


def test_the_report_says_what_narrower_intervals_cost() -> None:
    """Waves and minutes to half widths of 5, 2 and 1 %; none where hours change the speed-up by more."""
    pair = Pair(compiler="openvino", groups=12, speedup=2.0, judged=12, agreeing=12, half_width=0.04)
    text = " ".join(make(pairs=(pair,), group_s=10.0).conclude())
    limited = " ".join(make(pairs=(pair,), hours={"openvino": 0.008}).conclude())

    expected = "the speed-up of openvino takes for ± 5 % 1 (10 s), for ± 2 % 4 (40 s), for ± 1 % 16 (2 min 40 s)."
    assert expected in text
    assert "for ± 5 % 1, for ± 2 % 11, for ± 1 % no number of them; hours change it by ± 1.6 %." in limited


@pytest.mark.parametrize("groups", [[], [np.zeros(5)]])
def test_too_few_groups_have_no_spread(groups: list[Floats]) -> None:
    """The deviation of fewer than two groups is 0."""
    assert 0 == noise.estimate_group_sd(groups)


def build_columns(labels: list[str]) -> xr.Dataset:
    """Build a trial of each column, whose rounds hardly differ."""
    latency = np.exp(np.random.default_rng(0).normal(0, 1e-4, (1, len(labels), 1, 12)))
    return build_rounds({"device": ["cpu"], "compiler": labels, "batch_size": [1]}, latency)


def compute_deviations(data: xr.Dataset, device: dict[str, Any], **options: str) -> list[float]:
    """Return the deviations for which the speed-ups of a device with this description allow."""
    aware = data.assign_attrs(environments=json.dumps({"cpu": device}))
    intervals = metrics.speedup(aware, ci=0.95, **options).squeeze()
    return (np.log(intervals["ci_high"] / intervals["ci_low"]) / 2 / 1.96).values.tolist()


def test_later_intervals_allow_for_what_the_pairs_showed() -> None:
    """A compiler that the self-check did not measure gets the largest; identity's own copy the least."""
    data = build_columns(["identity", noise.COPY, "onnxruntime", "openvino", "tvm"])
    measured = [{"compiler": "onnxruntime", "group_sd": 0.05}, {"compiler": "openvino", "group_sd": 0.1}]
    bent = {"compiler": "onnxruntime", "group_sd": 9.0, "beside_busy": True}
    check = {"process_sd": 0.01, "pairs": [*measured, bent, {"compiler": "tvm", "group_sd": None}]}
    device = {"selfcheck": check}

    assert [0.0, 0.01, 0.05, 0.1, 0.1] == pytest.approx(compute_deviations(data, device), rel=0.1, abs=1e-6)
    part = 0.05**2 / 2  # of identity: half of the least variance of its ratios
    expected = math.sqrt((0.05**2 - part) + (0.1**2 - part))
    assert pytest.approx(expected, rel=0.1) == compute_deviations(data, device, baseline="openvino")[2]


def test_a_virtual_machine_has_an_allowance_until_its_history_is_known() -> None:
    """Two copies of one program need none: what a host does slows them alike."""
    data = build_columns(["identity", noise.COPY, "openvino", 'identity{"channels_last":true}'])
    hosted = {"conditions": {"virtual_machine": True}, "selfcheck": {"process_sd": 0.01}}
    experienced = {**hosted, "history": {"deviations": {"openvino": 0.02, "onnxruntime": 0.03}}}

    for device, expected in ((hosted, [0, 0.01, HOSTED_SD, HOSTED_SD]), (experienced, [0, 0.01, 0.02, 0.03])):
        assert expected == pytest.approx(compute_deviations(data, device), rel=0.1, abs=1e-6)
