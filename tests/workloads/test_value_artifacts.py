"""Artifacts of values have names that do not depend on the machine."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from ngbkit.errors import UsageError
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


def write_claim(path: Path, count: int, dtype: str = "<f4") -> None:
    """Write an .npy or .npz file of 64 bytes whose header claims that many elements."""
    content = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(content, header)
    content.write(bytes(64))
    if path.suffix == ".npy":
        path.write_bytes(content.getvalue())
        return
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", content.getvalue())


@pytest.mark.parametrize(("count", "dtype"), [(10**12, "<f4"), (10**30, "<f4"), (-(10**12), "<f4"), (10**12, "<U0")])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_header_claims_no_more_than_its_file_has(suffix: str, count: int, dtype: str, tmp_path: Path) -> None:
    """No memory is allocated for elements that a header merely claims."""
    write_claim(tmp_path / f"x{suffix}", count, dtype)

    with pytest.raises(UsageError, match=r"cannot be read \(its header claims .* more than the 192 B that it has\)"):
        values.load(tmp_path / f"x{suffix}")


def test_sizes_are_checked_before_an_archive_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros take a thousandth of their size in an archive: its directory has their size."""
    monkeypatch.setattr(values, "_MOST_UNPACKED", 10**6)
    monkeypatch.setattr(values, "_read_array", None)
    np.savez_compressed(tmp_path / "zeros.npz", x=np.zeros(10**6, np.float32))

    with pytest.raises(UsageError, match=r"whose arrays take 4 MB; expected at most 1 MB here\. Give fewer samples"):
        values.load(tmp_path / "zeros.npz")


@pytest.mark.parametrize("name", ["pipe", "folder/input_0.pb"])
def test_only_plain_files_are_opened(name: str, tmp_path: Path) -> None:
    """A pipe that nobody writes to would block for ever."""
    pipe = tmp_path / name
    pipe.parent.mkdir(exist_ok=True)
    os.mkfifo(pipe)

    with pytest.raises(UsageError, match=f"^invalid values of inputs: got {pipe}, no plain file; expected an .npz"):
        values.load(pipe if name == "pipe" else pipe.parent)
