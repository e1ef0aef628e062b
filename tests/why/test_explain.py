"""The gap between two columns of a dataset, explained."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import xarray as xr
from drawn import measured, network
from profiled import FUSED, SPLIT, add_profiles, build_profile, make_explained

from ngbkit.errors import MetricError, UnknownNameError, UsageError
from ngbkit.metrics.estimate import Estimate
from ngbkit.why.explain import explain


def test_the_sentence_names_the_cause() -> None:
    """It says who is faster, by how much, and what the largest part of the gap is and why."""
    text = str(explain(make_explained(), FUSED, SPLIT))

    assert text.startswith("openvino is 1.2")
    assert "times as fast as onnxruntime on net (batch 1, cpu): " in text
    assert text.endswith(
        "% of the gap is depthwise convolutions with SiLU, which openvino fuses and onnxruntime does not."
    )


def test_the_order_of_columns_does_not_matter() -> None:
    """The faster column is the subject of the sentence, and gaps have the opposite sign."""
    data = make_explained()
    forward, backward = explain(data, FUSED, SPLIT), explain(data, SPLIT, FUSED)

    assert str(forward).partition(":")[0] == str(backward).partition(":")[0]
    assert forward.attribution.total == pytest.approx(-backward.attribution.total)


def test_equal_columns_have_no_cause() -> None:
    """Two columns that do not differ surely are said not to."""
    data = add_profiles(
        make_explained(), {name: build_profile(SPLIT, seed) for seed, name in enumerate((FUSED, SPLIT))}
    )

    assert "do not differ surely" in str(explain(data, FUSED, SPLIT))


def test_contended_rounds_name_no_cause() -> None:
    """The sentence has the ratio with its doubt, and no cause, where other work disturbed the samples."""
    data = make_explained()
    contended = xr.full_like(data["round"], 1).astype("int8")
    text = str(explain(data.assign(contended=contended), FUSED, SPLIT))

    assert "? times as fast as onnxruntime" in text
    assert text.endswith("; no cause is named, since rounds were contended or outputs were not checked.")


def test_the_frame_has_a_row_for_each_piece() -> None:
    """Its shares sum to one, its blocks hold all pieces, and its notes say how well it agrees with the samples."""
    explanation = explain(make_explained(copies=1e-4), FUSED, SPLIT)
    pieces, blocks = explanation.to_frame(), explanation.to_frame(depth=1)

    assert [14, 6, 14] == [len(pieces), len(blocks), blocks["pieces"].sum()]
    assert [1, 1] == [pytest.approx(frame["share"].sum()) for frame in (pieces, blocks)]
    assert pieces["guilty"].tolist() == [False, True, False] * 4 + [False] * 2
    assert re.match(r"The parts sum to \S+ ± \S+ ms \(onnxruntime minus openvino\);", explanation.list_notes()[0])
    assert "Kernel time mapped to the network: 100 % of openvino and 100 % of onnxruntime." in explanation.list_notes()


def test_a_note_says_where_the_parts_and_the_samples_disagree() -> None:
    """Intervals that exclude each other are of a machine that changed in between; others have no further sentence."""
    explanation = explain(make_explained(), FUSED, SPLIT)
    other = replace(explanation, timed_gap=Estimate(1.0, 0.9, 1.1))

    assert ["exclude each other" in each.list_notes()[0] for each in (explanation, other)] == [False, True]


def test_the_trial_must_be_selected() -> None:
    """Two batch sizes are an error that lists them, until one is chosen; unknown names have their own errors."""
    data = make_explained(batch_sizes=(1, 8))

    with pytest.raises(UsageError, match=r"in 2 trials each; expected one. Select it: batch_size=1; batch_size=8"):
        explain(data, FUSED, SPLIT)
    assert 8 == explain(data, FUSED, SPLIT, batch_size=8).batch_size
    with pytest.raises(UnknownNameError, match="unknown compiler 'tvm'"):
        explain(data, FUSED, "tvm")
    with pytest.raises(UsageError, match="got 'openvino' twice"):
        explain(data, FUSED, FUSED)


def test_a_missing_profile_is_measured_by_an_option() -> None:
    """The error has the options that measure it."""
    data = make_explained().drop_vars("profile")

    with pytest.raises(MetricError, match=r"no profile of openvino and onnxruntime; .* `-c openvino,onnxruntime --pro"):
        explain(data, FUSED, SPLIT)


def test_two_networks_are_compared() -> None:
    """Columns may be a version before and a version after; the piece that regressed has a name."""
    data = measured(network("before"), network("after"), compilers=[SPLIT], batch_sizes=(1,))
    profiles = {"before": build_profile(SPLIT), "after": build_profile(SPLIT, 1, slow={6: 3e-3})}
    parts = [add_profiles(data.sel(workload=[name]), {SPLIT: profile}) for name, profile in profiles.items()]
    joined = parts[0].merge(parts[1], compat="no_conflicts", join="outer").assign_attrs(data.attrs)
    explanation = explain(joined, "before", "after")

    assert "blocks.1.conv_dw (depthwise convolutions: 1" in explanation.regression
    assert "" == explain(joined, "after", "before").regression
