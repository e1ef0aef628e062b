"""Verdicts on a slower trial name the piece of its network that takes longer, where it was profiled."""

from __future__ import annotations

import json

import numpy as np
from drawn import LOW, measured, network
from profiled import FUSED, add_profiles, build_profile
from synthetic_records import measure_sides

from ngbkit.metrics.gates import sides
from ngbkit.metrics.gates.sides import judge_sides
from ngbkit.metrics.precisions import precisions


def test_the_piece_that_regressed_is_the_reason() -> None:
    """A slower trial names the piece of its network that takes longer, where both sides were profiled."""
    data = measure_sides(1.2)
    texts = data["status"].astype(object).copy(data=np.full(data["status"].shape, "", dtype=object))
    for side, profile in (
        (sides.BEFORE, build_profile("onnxruntime")),
        (sides.AFTER, build_profile("onnxruntime", 1, slow={6: 3e-3})),
    ):
        texts.loc[{"workload": f"net{side}"}] = json.dumps(profile)
    reasons = [judge_sides(each).trials["reason"].tolist() for each in (data, data.assign(profile=texts))]

    assert [""] == reasons[0]
    assert "blocks.1.conv_dw (depthwise convolutions: 1" in reasons[1][0]


def test_a_note_names_the_operators_that_a_lower_precision_makes_slower() -> None:
    """Profiles tell the piece that loses most; the note has the command where there are none."""
    data = measured(network("net"), compilers=("identity", FUSED, LOW), batch_sizes=[1])
    slow = {FUSED: build_profile(FUSED, 1), LOW: build_profile(FUSED, 2, slow={6: 4e-3})}
    profiled = add_profiles(data, slow)
    notes = ["\n".join(precisions(each).attrs["notes"]) for each in (profiled, profiled.drop_vars("profile"))]

    assert f"Slower than in f32: {LOW} on net batch 1: most in blocks.1.conv_dw (depthwise convolutions" in notes[0]
    assert f"--profile and ds.ngb.explain('{FUSED}', '{LOW}') tell where" in notes[1]
