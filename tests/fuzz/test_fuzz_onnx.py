"""A short seed of `fuzz_onnx`."""

from __future__ import annotations

from pathlib import Path

import fuzz_onnx
import hypothesis
from cases import SETTINGS
from hypothesis import strategies as st


@hypothesis.seed(0)
@hypothesis.settings(SETTINGS, max_examples=200)
@hypothesis.given(data=st.data())
def test_a_damaged_onnx_file_is_read_or_refused(data: st.DataObject, tmp_path_factory) -> None:
    """Every other exception, and every crash, is a finding."""
    folder: Path = tmp_path_factory.getbasetemp() / "onnx"
    folder.mkdir(exist_ok=True)

    assert fuzz_onnx.check_onnx(data, folder)
