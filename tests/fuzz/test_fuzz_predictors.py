"""A short seed of `fuzz_predictors`."""

from __future__ import annotations

from pathlib import Path

import fuzz_predictors
import hypothesis
from cases import SETTINGS
from hypothesis import strategies as st


@hypothesis.seed(0)
@hypothesis.settings(SETTINGS, max_examples=100)
@hypothesis.given(data=st.data())
def test_a_damaged_predictor_is_refused(data: st.DataObject, tmp_path_factory) -> None:
    """Every other exception, and every crash, is a finding."""
    folder: Path = tmp_path_factory.getbasetemp() / "predictors"
    folder.mkdir(exist_ok=True)

    assert fuzz_predictors.check_predictors(data, folder)
