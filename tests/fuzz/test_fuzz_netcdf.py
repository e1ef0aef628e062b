"""A short seed of `fuzz_netcdf`."""

from __future__ import annotations

from pathlib import Path

import fuzz_netcdf
import hypothesis
from cases import SETTINGS
from hypothesis import strategies as st


@hypothesis.seed(0)
@hypothesis.settings(SETTINGS, max_examples=60)
@hypothesis.given(data=st.data())
def test_a_damaged_dataset_is_refused_or_shown(data: st.DataObject, tmp_path_factory) -> None:
    """Every other exception, and every crash, is a finding."""
    folder: Path = tmp_path_factory.getbasetemp() / "netcdf"
    folder.mkdir(exist_ok=True)

    assert fuzz_netcdf.check_netcdf(data, folder)
