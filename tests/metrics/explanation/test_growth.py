"""The pieces of a network over the batch size: which of them loses when it grows."""

from __future__ import annotations

from typing import Any

import pytest
import xarray as xr
from profiled import FUSED, SPLIT, add_profiles, build_profile, make_explained

import ngbkit  # noqa: F401  the accessor
from ngbkit.errors import UnknownNameError, UsageError
from ngbkit.metrics.explanation.pieces import COPIES


@pytest.fixture(scope="module")
def data() -> xr.Dataset:
    """The fused runtime loses in one convolution at batch 8, where both take eight times as long otherwise."""
    data = make_explained(batch_sizes=(1, 8))
    slow: dict[int, float] = {5 * block: 8e-3 for block in range(4)}
    large: dict[str, Any] = {
        FUSED: build_profile(FUSED, 2, scale=8, slow=slow),
        SPLIT: build_profile(SPLIT, 3, scale=8),
    }
    small = {name: build_profile(name, seed) for seed, name in enumerate((FUSED, SPLIT))}
    parts = [add_profiles(data.sel(batch_size=[size]), each) for size, each in ((1, small), (8, large))]
    return xr.concat(parts, "batch_size", data_vars="minimal", coords="minimal", compat="override", join="outer")


def test_a_piece_that_loses_has_a_bsr_below_one(data: xr.Dataset) -> None:
    """The batch scaling ratio of a piece is its speed-up at the large batch over that at the small one."""
    frame = data.ngb.explain(FUSED, SPLIT, over="batch_size").to_frame()
    last = frame[frame["batch_size"] == 8].set_index("part")["bsr"]

    assert last["blocks.0.conv_pw"] == pytest.approx(0.5, rel=0.05)
    assert last["blocks.0.conv_dw"] == pytest.approx(1.0, rel=0.05)
    assert {1.0} == set(frame.loc[frame["batch_size"] == 1, "bsr"])


def test_the_sentence_and_the_figure_name_it(data: xr.Dataset) -> None:
    """The sentence names what loses most with its ratio; table and figure have a row for each kind of operator."""
    result = data.ngb.explain(FUSED, SPLIT, over="batch_size")

    assert "from batch size 1 to 8: it loses most in convolutions (BSR 0.6" in str(result)
    assert ["part", "batch size 1", "batch size 8", "BSR"] == list(result.to_table())
    assert "it loses most" in str(result.plot().to_dict()["title"])


def test_a_single_level_is_an_error(data: xr.Dataset) -> None:
    """A growth needs two levels, and a condition of the dataset."""
    with pytest.raises(UsageError, match="profiled at 1 level; expected two or more"):
        data.sel(batch_size=[1]).ngb.explain(FUSED, SPLIT, over="batch_size")
    with pytest.raises(UnknownNameError, match=r"unknown condition 'depth'. Expected batch_size"):
        data.ngb.explain(FUSED, SPLIT, over="depth")


def test_a_part_of_one_side_has_no_ratio(data: xr.Dataset) -> None:
    """Copies that only one runtime makes have no batch scaling ratio, and cause no warning."""
    copying = {name: build_profile(name, copies=1e-4 if name == FUSED else 0.0) for name in (FUSED, SPLIT)}
    frame = add_profiles(data, copying).ngb.explain(FUSED, SPLIT, over="batch_size").to_frame()

    assert frame.loc[frame["part"] == COPIES, "bsr"].isna().all()
