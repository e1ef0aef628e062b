"""Artifacts of values have names that do not depend on the machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ngbkit.files import hash_file
from ngbkit.workloads import values

ARRAYS = {"image": np.arange(4, dtype=np.float32), "text": np.array(["a", "bc"], dtype=object)}


def test_every_python_writes_the_same_bytes(tmp_path: Path) -> None:
    """Recordings, and runs that go on elsewhere, are found by a digest that another version of Python has written."""
    values.write(tmp_path / "values.npz", ARRAYS)

    assert "48ce27608b3ad21d32266ea1904458bc" == hash_file(tmp_path / "values.npz")


def test_arrays_are_read_as_they_were_written(tmp_path: Path) -> None:
    """Numbers, text and names that NumPy has a meaning for."""
    arrays = {**ARRAYS, "file": np.ones((0, 2)), "scalar": np.array(3)}
    values.write(tmp_path / "values.npz", arrays)
    read = values.read(tmp_path / "values.npz")

    assert list(arrays) == list(read)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, read[name])
